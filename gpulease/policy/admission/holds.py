"""What is free but kept for somebody.

Owns the claims of those for whom devices were given up, and when a request for several devices
holds what comes free until it has them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2

from gpulease.policy import limits, queue
from gpulease.policy.capacity import coming_devices, free_devices
from gpulease.policy.capacity.fitting import suits, together
from gpulease.policy.fairness import turns
from gpulease.policy.model import Lease, LeaseState, Snapshot

#: A request for several devices gathers them in turns: for this long (seconds) it takes what is
#: there or waits, then for twice as long it holds what comes free, and so on with doubled turns.
#: So others are served meanwhile, and yet no stream of small requests can starve it.
GATHER_TURN = 600.0


def holds(snapshot: Snapshot, ending: frozenset[str] = frozenset()) -> Mapping[str, str]:
    """Return which device is kept for which request: what was reclaimed for somebody is not free.

    Today nominations hold devices; what reservations and gangs keep is held here, too.  A
    request's claim stands from its nomination until it starts or ends, while nothing but capacity
    keeps it waiting.  What comes free by itself is claimed in turn.  All claims are served in
    turn, whichever of the devices comes free first.

    Args:
        snapshot: with the ended leases whose nominee still waits.
        ending: the leases that end in this same plan.
    """
    bounds = limits.Limits.of(snapshot, bounds=True)
    admissible = [
        each for each in turns(snapshot) if limits.kept_waiting(each, snapshot.now, bounds) is None
    ]
    free = free_devices(snapshot)
    coming = coming_devices(snapshot, ending)
    claims, reclaimed = _nominated(snapshot)
    held: dict[str, str] = {}
    for pool in sorted({queue.pool_of(snapshot, request) for request in admissible}):
        line = [request for request in admissible if queue.pool_of(snapshot, request) == pool]
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
    requests = queue.waiting_ids(snapshot)
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
