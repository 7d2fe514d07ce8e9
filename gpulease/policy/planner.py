"""The plan: one snapshot in, a list of actions out.

Here is the order of the steps; each step has a layer of its own.  Pure, deterministic, and
independent of the order in which the snapshot lists things; each lease gets at most one action a
plan.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace

from gpulease.policy import queue
from gpulease.policy.admission import admit
from gpulease.policy.health import reactions, reshaped_too_late, stuck, unoffered
from gpulease.policy.limits import Limits
from gpulease.policy.model import Action, Alert, End, Lease, Requeue, Snapshot
from gpulease.policy.reclaim.leaving import decide
from gpulease.policy.reclaim.preemption_targets import Doubts, nominations
from gpulease.policy.remaining_capacity import Admission, came_free, holds

Planner = Callable[[Snapshot], list[Action]]


def isolated(steps: Planner, snapshot: Snapshot) -> list[Action]:
    """Return what ``steps`` plans, without the leases on which it fails.

    Raises:
        Exception: what ``steps`` raises, where no single lease is to blame.
    """
    try:
        return steps(snapshot)
    except Exception:
        # A fault in what is decided of one lease; which one it is, plans without each tell.
        leases = sorted(snapshot.leases, key=queue.order)
        failing = _failing(steps, snapshot, leases)
        if not failing:
            raise
    planned = steps(_without(snapshot, frozenset(failing)))
    return [*planned, *(_alert(lease_id, error) for lease_id, error in failing.items())]


def _failing(
    steps: Planner, snapshot: Snapshot, leases: Sequence[Lease]
) -> dict[str, BaseException]:
    """Return the leases on which a plan fails alone, with how; halves that are sound are done."""
    try:
        steps(replace(snapshot, leases=tuple(leases)))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told of this lease
        if len(leases) <= 1:
            return {each.id: error for each in leases}
        half = len(leases) // 2
        first, second = leases[:half], leases[half:]
        return _failing(steps, snapshot, first) | _failing(steps, snapshot, second)
    return {}


def _without(snapshot: Snapshot, failing: frozenset[str]) -> Snapshot:
    """Return the snapshot without some leases; their devices count as somebody else's."""
    theirs = {uuid for x in snapshot.leases if x.id in failing for uuid in x.devices}
    return replace(
        snapshot,
        leases=tuple(x for x in snapshot.leases if x.id not in failing),
        devices=tuple(
            replace(d, occupied_by="foreign") if d.uuid in theirs else d for d in snapshot.devices
        ),
    )


def _alert(lease_id: str, error: BaseException) -> Alert:
    where = traceback.extract_tb(error.__traceback__)
    place = f" ({where[-1].name}, line {where[-1].lineno})" if where else ""
    sentence = (
        f"Nothing can be planned for lease {lease_id}: {type(error).__name__}: {error}{place}. It "
        "stays as it is, and all others go on. End it, and report this."
    )
    return Alert(lease_id, "not_plannable", sentence)


def plan(snapshot: Snapshot) -> list[Action]:
    """Return what to do now.

    Health, then holds, then admission from what is free, and only then reclaim, of what is idle
    before what is held over quota: so nobody loses a device while a free one exists.  Where the
    capacity is not known, nothing is granted and nothing reclaimed; leases that start, drain or
    reach their hard end go on.  A lease on which a step fails is left out and an admin told.
    """
    return isolated(_steps, snapshot)


def admissions(snapshot: Snapshot) -> list[Action]:
    """Return only what becomes of those who wait; what holds devices stays as it is.

    For an ask that comes between two plans: who gets what is free.  That anybody has to leave for
    it, the next whole plan says.
    """
    return isolated(_admissions, snapshot)


def _admissions(snapshot: Snapshot) -> list[Action]:
    if not snapshot.capacity_known:
        return []
    late = {each.id for each in reshaped_too_late(snapshot)}
    snapshot = queue.without(snapshot, late)
    held = holds(snapshot, frozenset())
    _, kept = came_free(snapshot, held, frozenset())
    return admit(snapshot, {**held, **kept}, frozenset()).actions


def _steps(snapshot: Snapshot) -> list[Action]:
    healed = reactions(snapshot)
    over = {request.id for request in queue.reshaping(snapshot)} & healed.keys()
    if over:  # what waits for them is not to be started in the same plan
        still = tuple([each for each in snapshot.leases if each.id not in over])
        snapshot = replace(snapshot, leases=still)
    ending = frozenset(a.lease_id for a in healed.values() if isinstance(a, End))
    admitted, back = Admission(Limits.of(snapshot)), dict[str, Requeue]()
    if snapshot.capacity_known:
        held = holds(snapshot, ending)
        back, kept = came_free(snapshot, held, healed.keys())
        admitted = admit(snapshot, {**held, **kept}, ending)
    doubts = Doubts.of(snapshot)
    settled = healed.keys() | back.keys()
    # Leases that leave anyway are paired first, then idle ones, then what is held over quota.
    taken = nominations(snapshot, admitted, settled, doubts=doubts)
    rest = queue.without(snapshot, settled)
    leaving = [
        decide(rest, lease, taken, reclaims=doubts.reclaims(queue.pool_of(rest, lease)))
        for lease in queue.holding(rest)
    ]
    steps = [action for action in leaving if action is not None]
    return [
        *healed.values(),
        *back.values(),
        *admitted.actions,
        *steps,
        *doubts.alerts,
        *stuck(snapshot),
        *unoffered(snapshot),
    ]
