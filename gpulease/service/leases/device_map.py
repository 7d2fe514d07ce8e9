"""Each device with what it does now, for whom and why: the capacity as an admin looks at it.

Pure, from a snapshot.  What stands in words is ``policy.explanation``'s.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NotRequired

from typing_extensions import TypedDict  # pydantic takes no other one before Python 3.12

from gpulease.policy import capacity, queue
from gpulease.policy.catalog import percent
from gpulease.policy.model import Device, Lease, LeaseState, PolicyDocument, Snapshot, Verdict
from gpulease.policy.remaining_capacity import holds
from gpulease.policy.reservations.seats import in_hold, seating
from gpulease.texts import Text, instant

Use = Literal[
    "free",
    "reserved",
    "ready",
    "starting",
    "busy",
    "quiet",
    "idle",
    "unknown",
    "warned",
    "draining",
    "occupied",
    "quarantined",
    "lost",
]
_PARTS = re.compile(r"[0-9]+|[^0-9]+")


class DeviceState(TypedDict):
    """One device: what it is, what it does, and for whom; of parts of one card all that are alike.

    Those are named by the first of them.
    """

    uuid: str
    name: str
    pool: str
    node: str
    memory: int
    simulated: bool
    use: Use
    user: str
    lease: str
    gpu_class: str
    why: str
    card: NotRequired[str]  # it is a part of this one; absent: a whole device
    percent: NotRequired[int]  # of the card, so much


def device_map(
    snapshot: Snapshot, pods: Mapping[str, Sequence[str]] | None = None
) -> list[DeviceState]:
    """Return every device, by pool, node and name.

    Args:
        snapshot: what there is.
        pods: by node, the class of each pod that stands ready there.
    """
    held = {uuid: lease for lease in queue.holding(snapshot) for uuid in lease.devices}
    kept = _kept(snapshot)
    ordered = sorted(
        snapshot.devices,
        key=lambda d: (d.pool, *map(_natural, (d.node, d.name, d.uuid))),
    )
    found = _by_card(
        [(device, _state(snapshot, device, held.get(device.uuid), kept)) for device in ordered]
    )
    for node, classes in (pods or {}).items():
        _stand_ready(found, node, classes, snapshot.policy)
    return found


def _by_card(states: Sequence[tuple[Device, DeviceState]]) -> list[DeviceState]:
    """Return the parts of a card that do the same for the same lease as one entry."""
    found: dict[tuple[str, ...], DeviceState] = {}
    alike: Counter[tuple[str, ...]] = Counter()
    for device, state in states:
        does = (state["use"], state["lease"], state["why"])
        key = (device.card, *does) if device.card else (device.uuid,)
        alike[key] += 1
        one = found.setdefault(key, state)
        if device.card:
            one["card"], one["percent"] = device.card, percent(alike[key], device.card_parts)
    return list(found.values())


def _stand_ready(
    found: Sequence[DeviceState], node: str, classes: Sequence[str], policy: PolicyDocument
) -> None:
    """Mark as many free devices of a node: which of them a pod has, its node alone knows."""
    pools = {each.name: each.pool for each in policy.classes}
    free = [each for each in found if each["node"] == node and each["use"] == "free"]
    for name in classes:
        device = next((each for each in free if each["pool"] == pools.get(name)), None)
        if device is not None:
            free.remove(device)
            device["use"] = "ready"
            device["gpu_class"] = name
            device["why"] = Text("A pod of the class {name} stands ready on it.", name=name)


def _natural(name: str) -> list[tuple[int, str]]:
    """Return what sorts ``GPU 2`` before ``GPU 10``."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in _PARTS.findall(name)]


def _state(
    snapshot: Snapshot, device: Device, lease: Lease | None, kept: Mapping[str, str]
) -> DeviceState:
    use, why = _broken(device) or _use(snapshot, device, lease, kept)
    return {
        "uuid": device.uuid,
        "name": device.name,
        "pool": device.pool,
        "node": device.node,
        "memory": device.memory,
        "simulated": device.simulated,
        "use": use,
        "user": lease.user if lease is not None else "",
        "lease": lease.id if lease is not None else "",
        "gpu_class": lease.gpu_class if lease is not None else "",
        "why": why,
    }


def _broken(device: Device) -> tuple[Use, str] | None:
    if device.lost:
        return "lost", Text("It is no longer visible: its state is unknown.")
    if not device.healthy:
        return "quarantined", Text("It is not healthy: it is not assigned until it works again.")
    if device.serves == () and device.occupied_by is None:
        return "quarantined", Text("It serves none of its pool's classes: see Health.")
    return None


def _use(
    snapshot: Snapshot, device: Device, lease: Lease | None, kept: Mapping[str, str]
) -> tuple[Use, str]:
    if lease is not None:
        return _of_lease(snapshot, lease)
    if device.occupied_by == "foreign":
        return "occupied", Text("Processes that are no lease's use it.")
    if device.occupied_by is not None:
        return "draining", Text("Processes of a lease that ended are still on it.")
    if device.leaving:
        return "quarantined", Text("Its node takes nothing new: it is about to go.")
    return ("reserved", kept[device.uuid]) if device.uuid in kept else ("free", "")


_BY_STATE: Mapping[LeaseState, tuple[Use, str]] = {
    LeaseState.STARTING: ("starting", Text("The lease starts.")),
    LeaseState.DRAINING: ("draining", Text("Variables are copied back to the notebook.")),
}
_BY_VERDICT: Mapping[Verdict, tuple[Use, str]] = {
    Verdict.BUSY: ("busy", Text("Something computes on it.")),
    Verdict.QUIET: ("quiet", Text("A cell is running, but the GPU is idle.")),
    Verdict.IDLE: ("idle", Text("No cell runs on it.")),
    Verdict.UNKNOWN: ("unknown", Text("There is no data on its use.")),
}


def _of_lease(snapshot: Snapshot, lease: Lease) -> tuple[Use, str]:
    if lease.state is LeaseState.WARNED:
        if lease.warned_until is None:
            return "warned", Text("Its holder is warned.")
        until = instant(lease.warned_until)
        return "warned", Text("Its holder is warned until {time}.", time=until)
    if lease.state in _BY_STATE:
        return _BY_STATE[lease.state]
    evidence = snapshot.evidence.get(lease.id)
    return _BY_VERDICT[evidence.verdict if evidence is not None else Verdict.UNKNOWN]


def _kept(snapshot: Snapshot) -> dict[str, str]:
    """Return the free devices that are kept for somebody, with a sentence on whom for.

    A reservation keeps a number of a pool's devices and no particular ones: the last ones stand
    for them here.
    """
    waiting = {request.id: request for request in queue.waiting(snapshot)}
    found: dict[str, str] = {
        uuid: Text("It is kept for {user}, who waits.", user=waiting[lease_id].user)
        for uuid, lease_id in holds(snapshot).items()
        if lease_id in waiting
    }
    rest: dict[str, list[Device]] = {
        pool: [each for each in devices if each.uuid not in found]
        for pool, devices in capacity.free_devices(snapshot).items()
    }
    left = seating(snapshot).left
    for window in in_hold(snapshot.windows, snapshot.now):
        mine = _last(rest.get(window.pool, []), left.get(window.key, 0))
        name = window.of.title or window.of.name
        why = Text("It is reserved for “{name}” of {group}.", name=name, group=window.of.group)
        found |= {device.uuid: why for device in mine}
    return found


def _last(devices: list[Device], number: int) -> Sequence[Device]:
    """Take so many off the end of a list, or all there are."""
    taken = devices[len(devices) - min(number, len(devices)) :]
    del devices[len(devices) - len(taken) :]
    return taken
