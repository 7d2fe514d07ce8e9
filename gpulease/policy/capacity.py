"""What is free, and what is free but held for somebody.

Owns the reading of capacity: which device may be granted now and to whom.  Today only nominations
hold devices; reservations and calendars get their place in ``holds``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2

from gpulease.policy.fitting import suits, together
from gpulease.policy.memo import once
from gpulease.policy.model import Device, Lease, LeaseState, Snapshot
from gpulease.policy.queue import holding, pool_of, waiting_ids

#: A request for several devices gathers them in turns: for this long (seconds) it takes what is
#: there or waits, then for twice as long it holds what comes free, and so on with doubled turns.
#: So others are served meanwhile, and yet no stream of small requests can starve it.
GATHER_TURN = 600.0


def usable(device: Device) -> bool:
    """Whether the device works and somebody knows what runs on it."""
    return device.healthy and not device.lost


def grantable(device: Device) -> bool:
    """Whether the device may be given to somebody once it is free."""
    return usable(device) and not device.leaving


@once
def known_devices(snapshot: Snapshot) -> Mapping[str, Device]:
    """Return the devices by identifier, in the order of the identifiers."""
    return {device.uuid: device for device in sorted(snapshot.devices, key=lambda d: d.uuid)}


@once
def free_devices(snapshot: Snapshot) -> Mapping[str, Sequence[Device]]:
    """Return each pool's devices that may be given now: grantable, unoccupied, in no lease."""
    taken = {uuid for lease in holding(snapshot) for uuid in lease.devices}
    free: dict[str, list[Device]] = {}
    for device in known_devices(snapshot).values():
        if grantable(device) and device.occupied_by is None and device.uuid not in taken:
            free.setdefault(device.pool, []).append(device)
    return free


def coming_devices(snapshot: Snapshot, ending: frozenset[str]) -> dict[str, list[Device]]:
    """Return each pool's devices that come free by themselves: their lease ended or ends now.

    They are granted only once they are free, but nobody else is asked to leave for them.
    """
    held_by = {uuid: x.id for x in holding(snapshot) for uuid in x.devices}
    coming: dict[str, list[Device]] = {}
    for device in known_devices(snapshot).values():
        holder = held_by.get(device.uuid)
        releasing = holder in ending if holder else device.occupied_by not in (None, "foreign")
        if grantable(device) and releasing:
            coming.setdefault(device.pool, []).append(device)
    return coming


@once
def in_service(snapshot: Snapshot) -> Mapping[str, Sequence[Device]]:
    """Return each pool's devices that may be given to somebody, now or when they come free."""
    found: dict[str, list[Device]] = {}
    for device in snapshot.devices:
        if grantable(device) and device.occupied_by != "foreign":
            found.setdefault(device.pool, []).append(device)
    return found


@once
def leaving_devices(snapshot: Snapshot) -> frozenset[str]:
    """Return the devices whose node is about to go."""
    return frozenset(device.uuid for device in snapshot.devices if device.leaving)


def holds(
    snapshot: Snapshot, admissible: Sequence[Lease], ending: frozenset[str] = frozenset()
) -> Mapping[str, str]:
    """Return which device is kept for which request: what was reclaimed for somebody is not free.

    A request's claim stands from its nomination until it starts or ends, while nothing but capacity
    keeps it waiting.  What comes free by itself is claimed in queue order.  All claims are served
    in queue order, whichever of the devices comes free first.

    Args:
        snapshot: with the ended leases whose nominee still waits.
        admissible: the requests that only capacity keeps waiting, in queue order.
        ending: the leases that end in this same plan.
    """
    free = free_devices(snapshot)
    coming = coming_devices(snapshot, ending)
    claims, reclaimed = _nominated(snapshot)
    held: dict[str, str] = {}
    for pool in sorted({pool_of(snapshot, request) for request in admissible}):
        line = [request for request in admissible if pool_of(snapshot, request) == pool]
        now, soon = free.get(pool, []), coming.get(pool, [])
        open_now = sum(device.uuid not in reclaimed for device in now)
        loose = {device.uuid for device in soon if device.uuid not in reclaimed}
        _claim_rest(line, claims, open_now, len(loose))
        kept = [d for d in [*now, *soon] if d.uuid in reclaimed or d.uuid in loose]
        for request in line:
            count = min(request.count, claims.get(request.id, 0))
            if not count or not kept:
                continue
            mine = together([d for d in kept if suits(request.gpu_class, d)], count)
            held.update((device.uuid, request.id) for device in mine)
            kept = [device for device in kept if device.uuid not in held]
    return held


def _nominated(snapshot: Snapshot) -> tuple[dict[str, int], set[str]]:
    """Return each nominee's number of devices, and the devices that were given up already."""
    claims: dict[str, int] = {}
    reclaimed: set[str] = set()
    requests = waiting_ids(snapshot)
    for lease in snapshot.leases:
        if lease.nominated_for in requests and lease.nominated_for is not None:
            claims[lease.nominated_for] = claims.get(lease.nominated_for, 0) + len(lease.devices)
            reclaimed.update(lease.devices if lease.state is LeaseState.ENDED else ())
    return claims, reclaimed


def _claim_rest(line: Sequence[Lease], claims: dict[str, int], open_now: int, loose: int) -> None:
    """Let the first in the line claim what comes free by itself, after what is free for all."""
    for request in line:
        missing = max(0, request.count - claims.get(request.id, 0))
        now = min(missing, open_now)
        later = min(missing - now, loose)
        open_now, loose = open_now - now, loose - later
        claims[request.id] = claims.get(request.id, 0) + later


def gathers(request: Lease, snapshot: Snapshot) -> bool:
    """Whether it is the turn of a request for several devices to hold what comes free."""
    if request.count < 2:
        return False
    waited = (snapshot.now - request.ticket[0]).total_seconds()
    return waited > 0 and int(log2(waited / GATHER_TURN + 1)) % 2 == 1
