"""Grants what is free, first in queue order per pool.

Owns who of the waiting gets which free device in this plan, and why the others wait.  It is
work-conserving: a request under its limits that fits what is free and not held never waits.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpulease.policy import capacity, queue
from gpulease.policy.model import Action, Device, End, EndReason, Lease, Snapshot, Start, Wait


@dataclass(frozen=True)
class Unmet:
    """A request that nothing but capacity keeps waiting, and how many devices it lacks."""

    request: Lease
    pool: str
    missing: int


@dataclass
class Admission:
    """The outcome of one pass over the queue."""

    actions: list[Action] = field(default_factory=list)
    unmet: list[Unmet] = field(default_factory=list)


def admit(snapshot: Snapshot, ending: frozenset[str] = frozenset()) -> Admission:
    """Go through the queue once, in order, and grant what is free.

    ``ending`` names the leases that end in this same plan.
    """
    outcome = Admission()
    limits = queue.Limits(snapshot.policy, queue.holding(snapshot))
    requests = queue.waiting(snapshot)
    admissible = [r for r in requests if queue.kept_waiting(r, snapshot.now, limits) is None]
    held = dict(capacity.holds(snapshot, admissible, ending))
    free = capacity.free_devices(snapshot)
    coming = capacity.coming_devices(snapshot, ending)
    for request in requests:
        gpu_class = queue.class_of(snapshot.policy, request.gpu_class)
        if gpu_class is None:
            outcome.actions.append(End(request.id, "unknown_class", EndReason.DENIED))
            continue
        why = queue.kept_waiting(request, snapshot.now, limits)
        if why is not None:
            _wait(outcome, request, why)
            continue
        pool_free = free.get(gpu_class.pool, [])
        chosen = _choose(request, pool_free, held)
        if len(chosen) == request.count:
            uuids = tuple(device.uuid for device in chosen)
            outcome.actions.append(Start(request.id, "starting", uuids))
            free[gpu_class.pool] = [d for d in pool_free if d not in chosen]
            limits.grant(request)
            continue
        if capacity.gathers(request, snapshot):
            held.update({device.uuid: request.id for device in chosen})
        soon = coming.get(gpu_class.pool, [])
        awaited = _choose(request, soon, held)[: request.count - len(chosen)]
        coming[gpu_class.pool] = [d for d in soon if d not in awaited]
        missing = request.count - len(chosen) - len(awaited)
        outcome.unmet.append(Unmet(request, gpu_class.pool, missing))
        _wait(outcome, request, _lacking(snapshot, gpu_class.pool, pool_free, request))
    return outcome


def _choose(request: Lease, free: list[Device], held: dict[str, str]) -> list[Device]:
    """Pick the request's devices: what is held for it first, then by identifier."""
    mine = [d for d in free if held.get(d.uuid) == request.id]
    open_to_all = [d for d in free if d.uuid not in held]
    return [*mine, *open_to_all][: request.count]


def _wait(outcome: Admission, request: Lease, reason: str) -> None:
    if reason != request.reason:
        outcome.actions.append(Wait(request.id, reason))


def _lacking(snapshot: Snapshot, pool: str, free: list[Device], request: Lease) -> str:
    if len(free) >= request.count:
        return "held"
    total = sum(device.pool == pool for device in snapshot.devices)
    if total - capacity.quarantined(snapshot, pool) < request.count:
        return "quarantined"
    return "no_capacity"
