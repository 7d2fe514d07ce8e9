"""Grants what is free, first in queue order per pool.

Owns who of the waiting gets which free device in this plan, and why the others wait.  It is
work-conserving: a request under its limits that fits what is free and not held never waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpulease.policy import capacity, fitting, queue, substitution
from gpulease.policy.model import (
    Action,
    Device,
    End,
    EndReason,
    GPUClass,
    Lease,
    Snapshot,
    Start,
    Wait,
)


@dataclass(frozen=True)
class Unmet:
    """A request that nothing but capacity keeps waiting.

    ``missing`` is how many devices it lacks on each node that could serve it at all: what is free
    or comes free there by itself is counted.
    """

    request: Lease
    pool: str
    missing: Mapping[str, int]


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
    limits = queue.Limits(snapshot.policy, queue.holding(snapshot), snapshot.bounds)
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
            bound = limits.bound(request, request.gpu_class) if why == queue.QUOTA else None
            _wait(outcome, request, why, bound.detail if bound is not None else "")
            continue
        pool_free = free.get(gpu_class.pool, [])
        suiting = fitting.suiting(gpu_class, pool_free)
        near = snapshot.near.get(request.id, "")
        chosen = _choose(request, suiting, held, near)
        if len(chosen) == request.count:
            uuids = tuple(device.uuid for device in chosen)
            outcome.actions.append(Start(request.id, "starting", uuids))
            free[gpu_class.pool] = [d for d in pool_free if d not in chosen]
            limits.start(request, gpu_class.name)
            continue
        soon = fitting.suiting(gpu_class, coming.get(gpu_class.pool, []))
        lines = [*_line(request, suiting, held), *_line(request, soon, held)]
        hoped = fitting.together(lines, request.count, near=near)
        if capacity.gathers(request, snapshot):
            held.update({d.uuid: request.id for d in hoped if d in suiting})
        coming[gpu_class.pool] = [d for d in coming.get(gpu_class.pool, []) if d not in hoped]
        missing = _missing(snapshot, gpu_class, request, lines)
        outcome.unmet.append(Unmet(request, gpu_class.pool, missing))
        _wait(outcome, request, _lacking(snapshot, gpu_class, suiting, request))
    _substitute(snapshot, outcome, free, held, limits)
    return outcome


def _substitute(
    snapshot: Snapshot,
    outcome: Admission,
    free: dict[str, list[Device]],
    held: Mapping[str, str],
    limits: queue.Limits,
) -> None:
    """Serve by a fall-back who lacks a device that does not come free by itself."""
    for want in list(outcome.unmet):
        request = want.request
        if min(want.missing.values(), default=1) == 0 or limits.exceeded(request):
            continue
        near = snapshot.near.get(request.id, "")
        found = substitution.substitute(snapshot.policy, request, free, held, near)
        if found is None or limits.bound(request, found[0].name) is not None:
            continue
        other, chosen = found
        free[other.pool] = [d for d in free[other.pool] if d not in chosen]
        limits.start(request, other.name)
        outcome.unmet.remove(want)
        outcome.actions = [each for each in outcome.actions if each.lease_id != request.id]
        uuids = tuple(device.uuid for device in chosen)
        outcome.actions.append(Start(request.id, "starting", uuids, other.name))


def _choose(request: Lease, free: list[Device], held: Mapping[str, str], near: str) -> list[Device]:
    """Pick the request's devices, of one node: what is held for it first, then by identifier."""
    mine = [uuid for uuid, holder in held.items() if holder == request.id]
    return fitting.together(_line(request, free, held), request.count, mine, near)


def _line(request: Lease, free: list[Device], held: Mapping[str, str]) -> list[Device]:
    """Return what the request may take, what is held for it first."""
    mine = [d for d in free if held.get(d.uuid) == request.id]
    return [*mine, *(d for d in free if d.uuid not in held)]


def _missing(
    snapshot: Snapshot, gpu_class: GPUClass, request: Lease, lines: list[Device]
) -> dict[str, int]:
    there = fitting.by_node(lines)
    good = fitting.suiting(gpu_class, capacity.in_service(snapshot, gpu_class.pool))
    return {
        node: max(0, request.count - len(there.get(node, ())))
        for node in sorted(fitting.room(good, request.count))
    }


def _wait(outcome: Admission, request: Lease, reason: str, detail: str = "") -> None:
    if reason != request.reason:
        outcome.actions.append(Wait(request.id, reason, detail=detail))


def _lacking(snapshot: Snapshot, gpu_class: GPUClass, free: list[Device], request: Lease) -> str:
    if fitting.room(free, request.count):
        return "held"
    good = fitting.suiting(gpu_class, capacity.in_service(snapshot, gpu_class.pool))
    return "no_capacity" if fitting.room(good, request.count) else "quarantined"
