"""A lease pod that is started before it is known whose it will be, and what makes it somebody's.

Such a pod lacks its lease, its person, its end and its server's variables.  What it was made from
is told by its *shape*, a digest for each class and server: it can only become a lease whose own
pod would have had the same.  Which of them go, and how many more are made, stands below; how many
there should be is policy's word.  Pure.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from gpulease.policy.capacity import ReadyPods, grantable
from gpulease.policy.model import Device, GPUClass, Lease
from gpulease.protocol import labels
from gpulease.protocol import names as protocol
from gpulease.providers.kubernetes.api.client import Manifest
from gpulease.providers.kubernetes.api.watch import key_of
from gpulease.providers.kubernetes.manifests.manifest import (
    PodSettings,
    lease_pod,
    notebook_container,
)
from gpulease.providers.kubernetes.observed.cluster import Cluster
from gpulease.providers.kubernetes.observed.pods import runs
from gpulease.providers.kubernetes.pod_resources.ask import pod_fields
from gpulease.providers.kubernetes.pod_resources.volumes import MIRROR, SHARED_INLINE, Files
from gpulease.sides.environment import MARK_ROOM


class Shapes:
    """The shapes.

    Args:
        namespace: in which servers run.
    """

    def __init__(self, cluster: Cluster, settings: PodSettings, namespace: str) -> None:
        self._cluster = cluster
        self._settings = settings
        self._namespace = namespace
        self._known: dict[str, tuple[GPUClass, dict[str, str]]] = {}  # by class: UID -> shape

    def of(self, gpu_class: GPUClass, server: Manifest) -> str:
        """Return the shape of a server's lease pod of a class."""
        known_class, known = self._known.get(gpu_class.name, (gpu_class, {}))
        found = known.get(str(server["metadata"]["uid"])) if known_class == gpu_class else None
        return found or shape(gpu_class, server, self._settings)

    def all(self, gpu_class: GPUClass) -> dict[str, str]:
        """Return the shapes of all servers, by the server's UID."""
        found = {str(x["metadata"]["uid"]): self.of(gpu_class, x) for x in self._servers()}
        self._known[gpu_class.name] = gpu_class, found
        return found

    def usual(self, gpu_class: GPUClass) -> Manifest | None:
        """Return a server of the shape that most have; ``None`` where there is no server."""
        shapes = self.all(gpu_class)
        often = Counter(shapes.values())
        most = min(often, key=lambda each: (-often[each], each), default="")
        servers = (x for x in self._servers() if shapes[str(x["metadata"]["uid"])] == most)
        return next(servers, None)

    def _servers(self) -> list[Manifest]:
        return [
            each
            for each in self._cluster.pods.all_servers()
            if key_of(each)[0] == self._namespace and runs(each)
        ]


FILES: Final = Files(MIRROR, "warm", "The pod was started ahead, when it was nobody's yet.")
_NEVER: Final = datetime(2000, 1, 1, tzinfo=UTC)
#: What a pod's environment says of its lease; the rest is the same for all of a class.
_OF_A_LEASE: Final = frozenset(
    {
        protocol.ENV_LEASE,
        protocol.ENV_ATTEMPT,
        protocol.ENV_USER,
        protocol.ENV_SERVER,
        protocol.ENV_HARD_END,
    }
)


def warm_pod(
    name: str, gpu_class: GPUClass, server: Mapping[str, Any], settings: PodSettings
) -> Manifest:
    """Return the manifest of a pod that stands ready for leases of a class.

    Args:
        name: of the pod.
        gpu_class: has an image of its own.
        server: the pod of any notebook server for whose leases it may serve.
        settings: the site's.
    """
    body = _nobodys(gpu_class, server, settings)
    meta, container = body["metadata"], body["spec"]["containers"][0]
    marks = {
        key: value
        for key, value in meta["labels"].items()
        if key not in (labels.LEASE, labels.ATTEMPT)
    }
    # Room for the mark of the lease that comes: it is written over this one, where it lies.
    container["env"] += [
        {"name": protocol.ENV_WARM, "value": "1"},
        {"name": protocol.ENV_LEASE, "value": name.ljust(MARK_ROOM)},
    ]
    notes = {
        labels.INSTANCE: settings.instance,
        labels.GPU_CLASS: gpu_class.name,
        labels.SHAPE: shape(gpu_class, server, settings),
    }
    body["metadata"] = {
        "name": name,
        "namespace": meta["namespace"],
        "labels": marks | {labels.WARM: labels.label_value(gpu_class.name)},
        "annotations": pod_fields(gpu_class, 1, "").annotations | notes,
    }
    return body


def shape(gpu_class: GPUClass, server: Mapping[str, Any], settings: PodSettings) -> str:
    """Return a digest of what pods of a class for such a server have in common."""
    spec = _nobodys(gpu_class, server, settings)["spec"]
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]


def claim(
    pod: Manifest,
    lease: Lease,
    gpu_class: GPUClass,
    server: Mapping[str, Any],
    settings: PodSettings,
    *,
    now: datetime,
) -> tuple[Manifest, dict[str, str]]:
    """Return what makes a pod that stands ready this attempt's of a lease.

    That is the patch of its manifest, and what its process is told.

    Only this very pod is changed: its UID is part of the patch.  Its own deadline, which counts
    from its start, is set now, since it can never be raised.
    """
    own = lease_pod(lease, gpu_class, server, FILES, settings, now=now)
    meta, marks = own["metadata"], own["metadata"]["labels"]
    began = datetime.fromisoformat(pod["status"]["startTime"])
    age = math.ceil(max(0.0, (now - began).total_seconds()))
    patch = {
        "metadata": {
            "uid": pod["metadata"]["uid"],
            "labels": {each: marks[each] for each in (labels.LEASE, labels.ATTEMPT)}
            | {labels.WARM: None},
            "annotations": meta["annotations"],
            "ownerReferences": meta["ownerReferences"],
        },
        "spec": {"activeDeadlineSeconds": age + own["spec"]["activeDeadlineSeconds"]},
    }
    return patch, _of_its_own(own, gpu_class, server, settings)


def told(
    lease: Lease,
    gpu_class: GPUClass,
    server: Mapping[str, Any],
    settings: PodSettings,
    *,
    now: datetime,
) -> dict[str, str]:
    """Return what the process of a claimed pod is told: what its manifest would have said."""
    own = lease_pod(lease, gpu_class, server, FILES, settings, now=now)
    return _of_its_own(own, gpu_class, server, settings)


def _of_its_own(
    own: Manifest, gpu_class: GPUClass, server: Mapping[str, Any], settings: PodSettings
) -> dict[str, str]:
    """Return the variables of a lease's own pod that one which is nobody's has not."""
    nobodys = _nobodys(gpu_class, server, settings)
    env, known = (each["spec"]["containers"][0]["env"] for each in (own, nobodys))
    values = {each["name"]: each.get("value") for each in known}
    return {
        each["name"]: each["value"]
        for each in env
        if "value" in each and values.get(each["name"]) != each["value"]
    }


def _nobodys(gpu_class: GPUClass, server: Mapping[str, Any], settings: PodSettings) -> Manifest:
    """Return the pod that a lease of a class would have, without what is that lease's alone."""
    lease = Lease(
        id="none",
        user="",
        server="",
        gpu_class=gpu_class.name,
        count=1,
        ticket=(_NEVER, 0),
        created=_NEVER,
        devices=("/",),  # somewhere
    )
    body = lease_pod(lease, gpu_class, _plain(server), FILES, settings, now=_NEVER)
    spec, container = body["spec"], body["spec"]["containers"][0]
    del spec["activeDeadlineSeconds"]
    spec["affinity"]["nodeAffinity"].pop("preferredDuringSchedulingIgnoredDuringExecution", None)
    container["env"] = [each for each in container["env"] if each["name"] not in _OF_A_LEASE]
    return body


def _plain(server: Mapping[str, Any]) -> dict[str, Any]:
    """Return a server's pod without where it is and its variables, which may be a person's."""
    spec = {key: value for key, value in server["spec"].items() if key != "nodeName"}
    spec["containers"] = [
        {key: value for key, value in each.items() if key != "env"}
        for each in spec.get("containers") or []
    ]
    return {"metadata": dict(server["metadata"]), "spec": spec}


def has_other_data(server: Mapping[str, Any], home: str) -> bool:
    """Whether a lease pod of this server would mount more than its home: one started ahead cannot.

    Args:
        home: path of the student's home in the server.
    """
    sources = {each["name"]: each for each in server["spec"].get("volumes") or ()}
    mounts = notebook_container(server).get("volumeMounts") or ()
    data = ("persistentVolumeClaim", *SHARED_INLINE)
    return any(
        key in sources.get(each["name"], {})
        for each in mounts
        if str(each["mountPath"]).rstrip("/") != home.rstrip("/")
        for key in data
    )


#: Node and resource: where slots are alike.
AlikeSlots = tuple[str, str]


@dataclass(frozen=True)
class Ready:
    """A pod that stands ready or will: ``node`` is "" until it has its place."""

    uid: str
    gpu_class: str
    resource: str
    node: str
    ready: bool
    created: str

    @property
    def worth(self) -> tuple[bool, bool, str, str]:
        """What is kept first: what is ready, then what has its place, then the newest."""
        return self.ready, bool(self.node), self.created, self.uid


def surplus(
    pods: Iterable[Ready],
    standing: ReadyPods,
    devices: Iterable[Device],
    refused: Collection[str] = (),
) -> set[str]:
    """Return the pods that go: those in somebody's way, and those that are too many.

    Args:
        pods: all of them.
        standing: what should stand ready, and the devices that are about to be somebody's.
        devices: as they were shown last.
        refused: leases that no pod which stands ready can serve, though one of their class does.
    """
    alive = sorted(pods, key=lambda pod: pod.worth, reverse=True)
    if not alive:  # devices are many, and most sites have no such pods
        return set()
    coming = [
        (place_of(uuid), name)
        for uuid, (lease, name) in standing.granted.items()
        if lease not in refused
    ]
    gone = _in_the_way(alive, Counter(coming), _free(devices, standing))
    allowed = Counter(standing.pods) + Counter(name for _, name in coming)
    for pod in alive:
        if pod.uid in gone:
            continue
        if allowed[pod.gpu_class] > 0:
            allowed[pod.gpu_class] -= 1
        else:
            gone.add(pod.uid)
    return gone


def place_of(uuid: str) -> AlikeSlots:
    """Return node and resource of a slot."""
    node, _, rest = uuid.partition("/")
    return node, rest.rpartition("/")[0]


def _free(devices: Iterable[Device], standing: ReadyPods) -> Counter[AlikeSlots]:
    return Counter(
        place_of(each.uuid)
        for each in devices
        if grantable(each) and each.occupied_by is None and each.uuid not in standing.granted
    )


def _in_the_way(
    alive: Sequence[Ready], coming: Counter[tuple[AlikeSlots, str]], free: Counter[AlikeSlots]
) -> set[str]:
    """Return the pods on a device that somebody was granted whose pod they cannot become."""
    found = set()
    for pod in alive:
        place = pod.node, pod.resource
        if not pod.node:
            continue
        if coming[place, pod.gpu_class]:
            coming[place, pod.gpu_class] -= 1
        elif free[place]:
            free[place] -= 1
        else:
            found.add(pod.uid)
    return found
