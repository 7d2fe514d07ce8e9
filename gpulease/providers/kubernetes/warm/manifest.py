"""A lease pod that is started before it is known whose it will be, and what makes it somebody's.

Owns what such a pod lacks: its lease, its person, its end and its server's variables.  What it was
made from is told by its *shape*: it can only become a lease whose own pod would have had the same.
Pure.  Refuses to know how many there are.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from gpulease import labels, protocol
from gpulease.policy.model import GPUClass, Lease
from gpulease.providers.kubernetes.api.client import Manifest
from gpulease.providers.kubernetes.asks.ask import pod_fields
from gpulease.providers.kubernetes.asks.volumes import MIRROR, SHARED_INLINE, Files
from gpulease.providers.kubernetes.manifests.manifest import (
    PodSettings,
    lease_pod,
    notebook_container,
)
from gpulease.sides.environment import MARK_ROOM

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


@dataclass(frozen=True)
class Claim:
    """What makes a pod a lease's: the patch of its manifest, and what its process is told."""

    patch: Manifest
    environment: Mapping[str, str]


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
) -> Claim:
    """Return what makes a pod that stands ready this attempt's of a lease.

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
    return Claim(patch, _of_its_own(own, gpu_class, server, settings))


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
