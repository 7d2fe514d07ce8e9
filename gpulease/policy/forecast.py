"""Where a request stands in its queue and when it may start.

Owns the estimate from the ends, time-outs and observed lengths of present leases.  It rather says
nothing than guesses: ``None`` is unknown.  Refuses to promise: the plan decides.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from gpulease.policy import capacity, queue
from gpulease.policy.idle_case import warned_at
from gpulease.policy.lifecycle import time_outs_of
from gpulease.policy.model import Lease, LeaseState, Snapshot

#: A drain rarely takes its whole bound; what is expected of one is this share of it.
USUAL_DRAIN = 0.1


def position(snapshot: Snapshot, lease_id: str) -> int | None:
    """Return the request's place in its pool's queue, 1 is next; ``None`` when it is not queued."""
    line = _line(snapshot, lease_id)
    return next((n for n, request in enumerate(line, 1) if request.id == lease_id), None)


def expected_start(snapshot: Snapshot, lease_id: str) -> datetime | None:
    """Return when the request is expected to start, ``None`` when that is unknown.

    Each request of the line takes the devices that come free first; what those hold again
    afterwards is not looked into.
    """
    line = _line(snapshot, lease_id)
    if not line or not snapshot.capacity_known:
        return None
    limits = queue.Limits(snapshot.policy, queue.holding(snapshot))
    slots = _slots(snapshot, queue.pool_of(snapshot, line[0]))
    for request in line:
        blocked = queue.kept_waiting(request, snapshot.now, limits)
        if request.id == lease_id and blocked and not _backs_off(request, snapshot.now):
            return None
        if blocked and request.id != lease_id:
            continue
        if len(slots) < request.count:
            return None
        taken, slots = slots[: request.count], slots[request.count :]
        if request.id == lease_id:
            return max(taken[-1], request.not_before or taken[-1])
    return None


def expected_end(snapshot: Snapshot, lease: Lease) -> datetime | None:
    """Return when a lease is expected to give its devices back, ``None`` when unknown.

    A used lease is expected to last as long as leases usually do; when it has lasted longer
    already, or no usual length is known, only an end that its holder named is known.
    """
    now, outs = snapshot.now, time_outs_of(snapshot.policy, lease)
    drain = timedelta(seconds=outs.drain_max * USUAL_DRAIN)
    if lease.state is LeaseState.DRAINING:
        return min(lease.drain_until or now, now + drain)
    if lease.state is LeaseState.WARNED:
        return (lease.warned_until or now) + drain
    known = [lease.hard_end] if lease.wanted is not None and lease.hard_end is not None else []
    warned = warned_at(lease, snapshot.evidence.get(lease.id), now, outs)
    if warned is not None:
        known.append(warned + timedelta(seconds=outs.warning) + drain)
    if snapshot.typical_length is not None:
        begun = lease.active_since or now
        usual = begun + timedelta(seconds=snapshot.typical_length)
        known += [usual] if usual > now else []
    if lease.hard_end is not None:
        known = [min(end, lease.hard_end) for end in known]
    return min(known, default=None)


def _line(snapshot: Snapshot, lease_id: str) -> list[Lease]:
    """Return the queue of the pool that this request waits for."""
    requests = queue.waiting(snapshot)
    mine = next((request for request in requests if request.id == lease_id), None)
    if mine is None:
        return []
    pool = queue.pool_of(snapshot, mine)
    return [request for request in requests if queue.pool_of(snapshot, request) == pool]


def _slots(snapshot: Snapshot, pool: str) -> list[datetime]:
    """Return when the pool's devices come free, soonest first; unknown ones are left out."""
    now = snapshot.now
    free = capacity.free_devices(snapshot).get(pool, [])
    coming = capacity.coming_devices(snapshot, frozenset()).get(pool, [])
    slots = [now] * (len(free) + len(coming))
    usable = {d.uuid for d in snapshot.devices if d.pool == pool and capacity.usable(d)}
    for lease in queue.holding(snapshot):
        end = expected_end(snapshot, lease)
        if end is not None:
            slots += [max(now, end)] * sum(uuid in usable for uuid in lease.devices)
    return sorted(slots)


def _backs_off(request: Lease, now: datetime) -> bool:
    return request.server_ready and request.not_before is not None and request.not_before > now
