"""What a pod's manifest shows: whose lease it is, what it takes, where it is.

All pods of the cluster are read, gpulease's and others'.  Pure.  ``reasons`` finds out why a pod
does not run; ``manifest`` writes pods.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from gpulease.policy.model import Lease, LeaseState, Observed
from gpulease.protocol import labels
from gpulease.providers.base import LinkState
from gpulease.providers.kubernetes.api.client import Manifest
from gpulease.providers.kubernetes.api.watch import Key, key_of
from gpulease.providers.kubernetes.pod_resources.claims import amount


class Part(NamedTuple):
    """What one pod is for: a node, by its rank, of an attempt of a lease."""

    lease: str
    attempt: int
    rank: int = 0


#: The slots of each part.
Granted = Mapping[Part, tuple[str, ...]]


def slots_of(lease: Lease) -> dict[Part, tuple[str, ...]]:
    """Return the slots that each part of a lease's attempt was granted: equal parts, in order."""
    each = lease.per_node
    return {
        Part(lease.id, lease.attempt, rank): lease.devices[rank * each : (rank + 1) * each]
        for rank in range(lease.nodes)
    }


def devices_of(held: Granted, lease_id: str, attempt: int, nodes: int) -> tuple[str, ...]:
    """Return the slots on which all pods of an attempt are, none while one is not bound."""
    found = [held.get(Part(lease_id, attempt, rank), ()) for rank in range(nodes)]
    return tuple(slot for slots in found for slot in slots) if all(found) else ()


def granted_node(lease: Lease, rank: int = 0) -> str:
    """Return the node of the slots that a part was granted, "" where it was granted none."""
    mine = slots_of(lease)[Part(lease.id, lease.attempt, rank)]
    return mine[0].partition("/")[0] if mine else ""


_T = TypeVar("_T")
#: Longer texts (characters) are seldom the same twice.
_SHORT = 80
#: KubeSpawner's own annotations, where a server's pod lacks ours.
_HUB_USER, _HUB_SERVER = "hub.jupyter.org/username", "hub.jupyter.org/servername"
#: No pod has more devices than this; a higher number is nonsense.
MOST_DEVICES = 4096
_OVER = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True)
class PodUse:
    """What one pod takes of a node's devices.  ``lease`` is "" for pods that are not our leases'.

    ``asks`` are extended resources in the API's own units, ``count`` the devices of a lease's pod.
    ``warm`` names the class of a pod that stands ready for a lease and is nobody's yet.
    """

    key: Key
    uid: str
    node: str
    created: str
    asks: Mapping[str, int] = field(default_factory=dict)
    lease: str = ""
    attempt: int = 0
    rank: int = 0
    count: int = 0
    deleting: bool = False
    over: bool = False
    warm: str = ""

    @property
    def part(self) -> Part:
        """What a lease's pod is for."""
        return Part(self.lease, self.attempt, self.rank)


def lean(manifest: Manifest) -> Manifest:
    """Return a pod without what nobody here reads: field managers alone are half of it."""
    meta = {k: v for k, v in manifest.get("metadata", {}).items() if k != "managedFields"}
    return shared({**manifest, "metadata": meta})


def shared(value: _T) -> _T:
    """Return a copy in which equal short texts are one: thousands of objects say the same words."""
    if isinstance(value, dict):
        return {sys.intern(k): shared(v) for k, v in value.items()}  # type: ignore[return-value]
    if isinstance(value, list):
        return [shared(each) for each in value]  # type: ignore[return-value]
    if isinstance(value, str) and len(value) <= _SHORT:
        return sys.intern(value)  # type: ignore[return-value]
    return value


def outline(manifest: Manifest) -> Manifest | None:
    """Return what counts of a pod that only takes devices; ``None`` when it takes none.

    Its labels do not: it is nobody's lease and nobody's server, whatever it says of itself.
    """
    spec = manifest.get("spec") or {}
    if not asks_of(manifest) and not spec.get("resourceClaims"):
        return None
    meta = manifest["metadata"]
    kept = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp")
    parts = ("nodeName", "containers", "initContainers", "resourceClaims")
    status = manifest.get("status") or {}
    taking = {k: spec[k] for k in parts if k in spec}
    for kind in ("containers", "initContainers"):
        if kind in taking:
            taking[kind] = [
                {k: each[k] for k in ("name", "resources", "restartPolicy") if k in each}
                for each in taking[kind]
            ]
    return shared(
        {
            "metadata": {k: meta[k] for k in kept if k in meta},
            "spec": taking,
            "status": {k: status[k] for k in ("phase", "resourceClaimStatuses") if k in status},
        }
    )


def asks_of(manifest: Manifest) -> dict[str, int]:
    """Return the extended resources that the scheduler charges a pod for.

    Containers run together, and so do init containers that stay (sidecars); the others run one
    after the other, so only the largest counts.
    """
    spec = manifest.get("spec") or {}
    total: dict[str, int] = {}
    for container in spec.get("containers") or []:
        _add(total, _extended(container))
    largest: dict[str, int] = {}
    beside: dict[str, int] = {}
    for container in spec.get("initContainers") or []:
        asked = _extended(container)
        if container.get("restartPolicy") == "Always":
            _add(beside, asked)
            asked = beside
        else:
            asked = {k: asked.get(k, 0) + beside.get(k, 0) for k in asked.keys() | beside.keys()}
        for name, number in asked.items():
            largest[name] = max(largest.get(name, 0), number)
    _add(total, beside)
    return {
        name: max(total.get(name, 0), largest.get(name, 0))
        for name in sorted(total.keys() | largest.keys())
        if total.get(name, 0) or largest.get(name, 0)
    }


def use_of(manifest: Manifest, instance: str) -> PodUse:
    """Return what a pod takes; it is a lease's when it carries our label and our instance."""
    meta = manifest.get("metadata") or {}
    ours = is_lease(manifest, instance)
    marks = meta.get("labels") or {}
    return PodUse(
        key=key_of(manifest),
        uid=str(meta.get("uid", "")),
        node=str((manifest.get("spec") or {}).get("nodeName", "")),
        created=str(meta.get("creationTimestamp", "")),
        asks=asks_of(manifest),
        lease=_lease_id(manifest) if ours else "",
        attempt=_whole(marks.get(labels.ATTEMPT)) if ours else 0,
        rank=_whole(marks.get(labels.RANK)) if ours else 0,
        count=_count(manifest) // _nodes(manifest) if ours else 0,
        deleting=bool(meta.get("deletionTimestamp")),
        over=(manifest.get("status") or {}).get("phase") in _OVER,
        warm=warm_class(manifest, instance),
    )


def warm_class(manifest: Manifest, instance: str) -> str:
    """Return the class for which a pod of this installation stands ready, "" for any other pod."""
    marks = (manifest.get("metadata") or {}).get("labels") or {}
    if not marks.get(labels.WARM) or labels.LEASE in marks or not is_ours(manifest, instance):
        return ""
    return str(_notes(manifest).get(labels.GPU_CLASS, ""))


def is_lease(manifest: Manifest, instance: str) -> bool:
    """Whether this is a lease pod of this installation."""
    marks = (manifest.get("metadata") or {}).get("labels") or {}
    return bool(marks.get(labels.LEASE)) and is_ours(manifest, instance)


def is_ours(manifest: Manifest, instance: str) -> bool:
    """Whether this is a lease pod of this installation, be it somebody's yet or not."""
    marks = (manifest.get("metadata") or {}).get("labels") or {}
    own = labels.label_value(instance)
    component = marks.get(labels.COMPONENT)
    return component == labels.LEASE_COMPONENT and marks.get(labels.INSTANCE) == own


def server_of(manifest: Manifest, instance: str) -> tuple[str, str] | None:
    """Return user and server name of a notebook server's pod, ``None`` for any other pod."""
    marks = (manifest.get("metadata") or {}).get("labels") or {}
    if marks.get(labels.INSTANCE, labels.label_value(instance)) != labels.label_value(instance):
        return None
    if labels.LEASE in marks:
        return None
    notes = _notes(manifest)
    user = notes.get(labels.USER) or notes.get(_HUB_USER)
    if not user:
        return None
    return str(user), str(notes.get(labels.SERVER, notes.get(_HUB_SERVER, "")))


def runs(manifest: Manifest) -> bool:
    """Whether a pod lives: it is neither over nor being deleted."""
    deleting = (manifest.get("metadata") or {}).get("deletionTimestamp")
    return not deleting and (manifest.get("status") or {}).get("phase") not in _OVER


def files_of(manifest: Manifest | None) -> str:
    """Return how the student's files reach a lease pod and why, "" where it does not say."""
    notes = _notes(manifest) if manifest is not None else {}
    way, why = notes.get(labels.FILES), notes.get(labels.FILES_WHY)
    return f"Files: {way}. {why}" if way else ""


def granted_at(manifest: Mapping[str, Any]) -> str:
    """Return when a lease pod became its lease's, "" where it does not say."""
    return str(_notes(manifest).get(labels.GRANTED, ""))


def ends_of(manifest: Manifest) -> datetime | None:
    """Return until when a lease pod may be used, so that all goes home before its deadline.

    That is what it was made for, or what is left before ``activeDeadlineSeconds``, which others may
    have lowered, ends it; ``None`` where it says neither.
    """
    spec = manifest.get("spec") or {}
    started = _instant((manifest.get("status") or {}).get("startTime"))
    deadline = spec.get("activeDeadlineSeconds")
    found = [_instant(_notes(manifest).get(labels.ENDS))]
    if started is not None and deadline is not None:
        leaving = int(spec.get("terminationGracePeriodSeconds") or 0)
        found.append(started + timedelta(seconds=int(deadline) - leaving))
    return min((each for each in found if each is not None), default=None)


def record_of(manifest: Manifest) -> Lease | None:
    """Return the lease that a lease pod describes, for a store that does not know it.

    ``None`` where the pod does not say enough.  Times that it does not say are those of the pod.
    """
    notes, marks = _notes(manifest), manifest["metadata"].get("labels") or {}
    user, gpu_class = notes.get(labels.USER), notes.get(labels.GPU_CLASS)
    created = _instant(notes.get(labels.CREATED)) or _instant(
        manifest["metadata"].get("creationTimestamp")
    )
    if not user or not gpu_class or created is None:
        return None
    granted = _instant(notes.get(labels.GRANTED)) or created
    return Lease(
        id=_lease_id(manifest),
        user=str(user),
        server=str(notes.get(labels.SERVER, "")),
        gpu_class=str(gpu_class),
        count=_count(manifest),
        nodes=_nodes(manifest),
        ticket=_ticket(notes.get(labels.TICKET)) or (created, 0),
        created=created,
        state=LeaseState.ACTIVE,
        state_since=granted,
        reason="connected",
        kernel_id=notes.get(labels.KERNEL) or None,
        project=str(notes.get(labels.PROJECT, "")),
        card_parts=_whole(notes.get(labels.CARD_PARTS)),
        attempt=_whole(marks.get(labels.ATTEMPT)),
        devices=tuple(each for each in str(notes.get(labels.SLOTS, "")).split(",") if each),
        active_since=granted,
        hard_end=ends_of(manifest),
    )


def stranger(
    group: Mapping[int, Manifest], attempt: int, link: LinkState | None, held: Granted
) -> Observed:
    """Return what is shown of a lease that nobody told of, with what its pods say of themselves.

    Args:
        group: the pods of the attempt, by rank.
        attempt: the newest.
        link: the lease's supervisor channel.
        held: the slots of all pods.
    """
    manifest = group[min(group)]
    lease_id = _lease_id(manifest)
    return Observed(
        lease_id,
        attempt,
        connected=link is not None and link.attempt == attempt and link.connected,
        gone=any((each.get("status") or {}).get("phase") in _OVER for each in group.values()),
        devices=devices_of(held, lease_id, attempt, _nodes(manifest)),
        record=record_of(manifest) if all(runs(each) for each in group.values()) else None,
    )


def _lease_id(manifest: Manifest) -> str:
    """Return the exact identifier; the label holds a form of it that may differ."""
    marks = manifest["metadata"].get("labels") or {}
    return str(_notes(manifest).get(labels.LEASE) or marks.get(labels.LEASE, ""))


def _count(manifest: Manifest) -> int:
    """Return how many devices a lease's pod says that it has: at least one, and no nonsense."""
    return min(MOST_DEVICES, max(1, _whole(_notes(manifest).get(labels.COUNT))))


def _nodes(manifest: Manifest) -> int:
    """Return how many pods a lease's pod says that the lease has; one where that cannot be."""
    told = max(1, _whole(_notes(manifest).get(labels.NODES)))
    return told if _count(manifest) % told == 0 else 1


def _ticket(text: Any) -> tuple[datetime, int] | None:
    since, _, number = str(text or "").partition("#")
    at = _instant(since)
    return (at, _whole(number)) if at is not None else None


def _notes(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    return (manifest.get("metadata") or {}).get("annotations") or {}


def _extended(container: Mapping[str, Any]) -> dict[str, int]:
    given = container.get("resources") or {}
    # A limit of an extended resource is its request, too, and one without the other is refused.
    asked = {**(given.get("limits") or {}), **(given.get("requests") or {})}
    return {name: amount_of(value) for name, value in asked.items() if "/" in name}


def amount_of(value: Any) -> int:
    """Return a whole quantity as the API writes it: ``8``, ``"8"``, ``"1k"``; 0 for nonsense."""
    try:
        return math.ceil(float(amount(str(value).strip())))
    except (ValueError, ArithmeticError):
        return 0


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, number in more.items():
        total[name] = total.get(name, 0) + number


def _whole(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        return 0


def _instant(value: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
