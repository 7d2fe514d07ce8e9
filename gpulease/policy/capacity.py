"""What is free, and what is free but held for somebody.

Owns the reading of capacity: which device may be granted now and to whom.  Today only nominations
hold devices; reservations and calendars get their place in ``holds``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2

from gpulease.policy.model import Device, Lease, LeaseState, Snapshot
from gpulease.policy.queue import holding, pool_of

#: A request for several devices gathers them in turns: for this long (seconds) it takes what is
#: there or waits, then for twice as long it holds what comes free, and so on with doubled turns.
#: So others are served meanwhile, and yet no stream of small requests can starve it.
GATHER_TURN = 600.0


def usable(device: Device) -> bool:
    """Whether the device works and somebody knows what runs on it."""
    return device.healthy and not device.lost


def free_devices(snapshot: Snapshot) -> dict[str, list[Device]]:
    """Return each pool's grantable devices by identifier: usable, unoccupied, in no lease."""
    taken = {uuid for lease in holding(snapshot) for uuid in lease.devices}
    free: dict[str, list[Device]] = {}
    for device in sorted(snapshot.devices, key=lambda d: d.uuid):
        if usable(device) and device.occupied_by is None and device.uuid not in taken:
            free.setdefault(device.pool, []).append(device)
    return free


def coming_devices(snapshot: Snapshot, ending: frozenset[str]) -> dict[str, list[Device]]:
    """Return each pool's devices that come free by themselves: their lease ended or ends now.

    They are granted only once they are free, but nobody else is asked to leave for them.
    """
    held_by = {uuid: x.id for x in holding(snapshot) for uuid in x.devices}
    coming: dict[str, list[Device]] = {}
    for device in sorted(snapshot.devices, key=lambda d: d.uuid):
        holder = held_by.get(device.uuid)
        releasing = holder in ending if holder else device.occupied_by not in (None, "foreign")
        if usable(device) and releasing:
            coming.setdefault(device.pool, []).append(device)
    return coming


def quarantined(snapshot: Snapshot, pool: str) -> int:
    """Count the pool's devices that nobody can be given until somebody looks at them."""
    return sum(
        device.pool == pool and (not usable(device) or device.occupied_by == "foreign")
        for device in snapshot.devices
    )


def holds(snapshot: Snapshot, admissible: Sequence[Lease]) -> Mapping[str, str]:
    """Return which device is kept for which request: what was reclaimed for somebody is not free.

    A request's claim stands from its nomination until it starts or ends, while nothing but capacity
    keeps it waiting.  Claims are served in queue order, whichever of the devices comes free first.

    Args:
        snapshot: with the ended leases whose nominee still waits.
        admissible: the requests that only capacity keeps waiting, in queue order.
    """
    claims: dict[str, int] = {}
    released: dict[str, list[str]] = {}
    now_held = {uuid for lease in holding(snapshot) for uuid in lease.devices}
    free = {device.uuid for each in free_devices(snapshot).values() for device in each}
    pools = {device.uuid: device.pool for device in snapshot.devices}
    for lease in snapshot.leases:
        if lease.nominated_for is None or lease.state in (LeaseState.QUEUED, LeaseState.ACTIVE):
            continue
        claims[lease.nominated_for] = claims.get(lease.nominated_for, 0) + len(lease.devices)
        for uuid in lease.devices:
            if lease.state is LeaseState.ENDED and uuid in pools and uuid not in now_held:
                released.setdefault(pools[uuid], []).append(uuid)
    held: dict[str, str] = {}
    for request in admissible:
        count = min(request.count, claims.get(request.id, 0))
        open_ones = [u for u in released.get(pool_of(snapshot, request), []) if u not in held]
        soonest = sorted(set(open_ones), key=lambda uuid: (uuid not in free, uuid))
        held.update(dict.fromkeys(soonest[:count], request.id))
    return held


def gathers(request: Lease, snapshot: Snapshot) -> bool:
    """Whether it is the turn of a request for several devices to hold what comes free."""
    if request.count < 2:
        return False
    waited = (snapshot.now - request.ticket[0]).total_seconds()
    return waited > 0 and int(log2(waited / GATHER_TURN + 1)) % 2 == 1
