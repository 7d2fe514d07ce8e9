"""One picture of a site: what the cluster, the store, the kubelet and the node's processes show.

Each is read from its source: pods from the API server, leases from the store's file, who has which
card from the processes that run and from the kubelet's books (its PodResources socket, as the node
agent reads it).  `invariants` judges the picture.
"""

import json
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from gpulease.gpus.agent.pod_resources import PodResources
from gpulease.gpus.agent.wire import ContainerDevice
from gpulease.protocol import labels
from testcluster.api import Object
from testcluster.cluster import is_ready
from testcluster.layout import NODE, Layout
from testcluster.site.shipped import HUB_NAMESPACE
from testcluster.site.site import Site

_POD = re.compile(r"/pod([0-9a-f]{8}-[0-9a-f-]{27})/")
_CARDS = b"NVIDIA_VISIBLE_DEVICES="
GPU = "nvidia.com/gpu"


@dataclass(frozen=True)
class Pod:
    """A pod in the servers' namespace; `lease` is "" for one that is no lease's."""

    name: str
    uid: str
    phase: str
    ending: bool = False
    gpus: int = 0
    lease: str = ""
    attempt: int = 0
    owners: tuple[str, ...] = ()
    user: str = ""

    @property
    def lives(self) -> bool:
        return self.phase == "Running" and not self.ending

    @property
    def full_name(self) -> str:
        """Its name as the kubelet's books have it."""
        return f"{HUB_NAMESPACE}/{self.name}"


@dataclass(frozen=True)
class Lease:
    """A lease as the store has it."""

    id: str
    user: str
    server: str
    state: str
    why: str  # its reason, or its end reason

    @property
    def lives(self) -> bool:
        return self.state != "ended"


@dataclass(frozen=True)
class Picture:
    """What was seen at one moment.

    Attributes:
        pods: of the servers' namespace, by UID.
        leases: by id.
        grants: device -> lease, as the store has it.
        cards: card -> the UIDs of the pods whose processes have it.
        held: device -> the `namespace/name` of the pods that the kubelet has given it to; None
            while the kubelet does not say.
        node_ready: whether the node says so.
    """

    pods: Mapping[str, Pod] = field(default_factory=dict)
    leases: Mapping[str, Lease] = field(default_factory=dict)
    grants: Mapping[str, str] = field(default_factory=dict)
    cards: Mapping[str, frozenset[str]] = field(default_factory=dict)
    held: Mapping[str, frozenset[str]] | None = field(default_factory=dict)
    node_ready: bool = True


def look(site: Site) -> Picture:
    """Look at everything now.

    Raises:
        OSError, ApiError: the API server is away.
        sqlite3.OperationalError: the store is just being written to, or recovered.
    """
    # Processes last: what they have, the kubelet and the API server must have known before.
    leases, grants = _stored(site.settings.directory / "gpulease.sqlite")
    listed = site.cluster.api.items(f"/api/v1/namespaces/{HUB_NAMESPACE}/pods")
    node = site.cluster.api.get(f"/api/v1/nodes/{NODE}")
    pods = {each.uid: each for each in map(pod_of, listed)}
    layout = site.cluster.layout
    held = held_devices(layout)
    return Picture(pods, leases, grants, cards_in_use(layout), held, is_ready(node))


def pod_of(found: Object) -> Pod:
    """Return what counts of a pod."""
    meta, spec = found["metadata"], found["spec"]
    marks, notes = meta.get("labels", {}), meta.get("annotations", {})
    asked = [each.get("resources", {}).get("limits", {}) for each in spec["containers"]]
    return Pod(
        name=meta["name"],
        uid=meta["uid"],
        phase=found["status"].get("phase", ""),
        ending="deletionTimestamp" in meta,
        gpus=sum(int(each.get(GPU, 0)) for each in asked) or len(spec.get("resourceClaims", [])),
        lease=notes.get(labels.LEASE) or marks.get(labels.LEASE, ""),
        attempt=int(marks.get(labels.ATTEMPT, 0)),
        owners=tuple(each["uid"] for each in meta.get("ownerReferences", [])),
        user=notes.get(labels.USER) or notes.get("hub.jupyter.org/username", ""),
    )


def _stored(path: Path) -> tuple[dict[str, Lease], dict[str, str]]:
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)
    try:
        rows = database.execute("SELECT id, user, server, state, record FROM leases").fetchall()
        grants = dict(database.execute("SELECT device, lease_id FROM grants").fetchall())
    finally:
        database.close()
    leases = {}
    for lease_id, user, server, state, record in rows:
        known = json.loads(record)
        why = known.get("end_reason") if state == "ended" else known.get("reason")
        leases[lease_id] = Lease(lease_id, user, server, state, why or "")
    return leases, grants


def cards_in_use(layout: Layout) -> dict[str, frozenset[str]]:
    """Return the cards that the containers' own processes were given, each with their pods."""
    found: dict[str, set[str]] = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            pod, cards = _of_process(directory, layout)
            for card in cards:
                found.setdefault(card, set()).add(pod)
    return {card: frozenset(pods) for card, pods in found.items()}


def _of_process(directory: Path, layout: Layout) -> tuple[str, Iterator[str]]:
    """Return the pod of a process and the cards of its environment."""
    try:
        group = (directory / "cgroup").read_text(encoding="utf-8")
        inside = _POD.search(group)
        if inside is None or f"/{layout.control_group}/" not in group:
            return "", iter(())
        environment = (directory / "environ").read_bytes()
    except OSError:  # it has just ended
        return "", iter(())
    given = [each for each in environment.split(b"\0") if each.startswith(_CARDS)]
    words = given[0].removeprefix(_CARDS).decode().split(",") if given else []
    return inside[1], (word for word in words if word not in ("", "void", "none"))


def held_devices(layout: Layout) -> dict[str, frozenset[str]] | None:
    """Return each device with the `namespace/name` of the pods it is given to, as of now.

    None while the kubelet does not answer.
    """
    # A new client for each look: what a client keeps from before is not what is so now.
    with closing(PodResources(layout.pod_resources_socket)) as kubelet:
        now = time.monotonic()
        kubelet.refresh(now)
        found = None if kubelet.problem else kubelet.holders(now, {})
    return None if found is None else books(found)


def books(found: Iterable[ContainerDevice]) -> dict[str, frozenset[str]]:
    """Return the pods of each device; one of a claim is named by its driver and pool, too."""
    pods: dict[str, set[str]] = {}
    for each in found:
        device = "/".join(part for part in (each.driver, each.pool, each.device) if part)
        pods.setdefault(device, set()).add(f"{each.namespace}/{each.pod}")
    return {device: frozenset(names) for device, names in pods.items()}
