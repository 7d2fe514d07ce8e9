"""The plan: one snapshot in, a list of actions out.

First the order of the steps, most of which have a module of their own; then the last of them, the
next step of each lease that holds devices: warned, cleared, drained, resumed, ended.  Pure,
deterministic, and independent of the order in which the snapshot lists things; each lease gets at
most one action a plan.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gpulease.policy import budgets, queue
from gpulease.policy.admission import admit
from gpulease.policy.capacity import leaving_devices
from gpulease.policy.fairness import PREEMPTED, PREEMPTED_IN_PART, TAKEN
from gpulease.policy.health import FAR, observed_of, reactions, reshaped_too_late, stuck, unoffered
from gpulease.policy.lifecycle import time_outs_of
from gpulease.policy.limits import Limits
from gpulease.policy.model import (
    Action,
    Alert,
    Clear,
    Drain,
    End,
    EndReason,
    Lease,
    LeaseState,
    Nominate,
    Requeue,
    Reshape,
    Resume,
    Snapshot,
    TimeOuts,
    Verdict,
    Warn,
)
from gpulease.policy.queue import finishes_cell, waiting_ids
from gpulease.policy.reclaim.preemption_targets import Doubts, Taken, nominations
from gpulease.policy.reclaim.reclaim_candidates import why_idle
from gpulease.policy.remaining_capacity import Admission, came_free, holds
from gpulease.policy.reservations.departures import OVER, REASONS, departures
from gpulease.policy.reservations.seats import window_of

#: Why a lease leaves whose project or holder has nothing left to spend.
NO_BUDGET = "budget_over"
#: Why a lease leaves that takes memory which others' shares of a card lack.
OVER_SHARE = "over_share"
#: A warned lease of which nothing is heard for less than this (seconds) stays warned.
SHORT_GAP = 10.0
#: By so much (seconds) a warning may end after the window that it is for: it begins with a round.
LATE = 5.0


Planner = Callable[[Snapshot], list[Action]]


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
    back = dict[str, Requeue]()
    if snapshot.capacity_known:
        held = holds(snapshot, ending)
        back, kept = came_free(snapshot, held, healed.keys())
        admitted = admit(snapshot, {**held, **kept}, ending)
    else:
        admitted = Admission(Limits.of(snapshot))
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


def decide(snapshot: Snapshot, lease: Lease, taken: Taken, *, reclaims: bool) -> Action | None:
    """Return the next step of one lease that holds devices, or ``None``."""
    nominee = taken.by.get(lease.id)
    if lease.state is LeaseState.ACTIVE:
        return (
            _expiring(snapshot, lease, nominee)
            or _node_leaving(snapshot, lease, nominee)
            or _for_window(snapshot, lease, nominee)
            or _over_share(snapshot, lease, nominee)
            or _budget_over(snapshot, lease, nominee)
            or (_warned_as_idle(snapshot, lease, nominee) if reclaims else None)
            or (_preempted(snapshot, lease, taken) if lease.id in taken.borrowed else None)
        )
    if lease.state is LeaseState.WARNED:
        action = _warned(snapshot, lease, nominee, reclaims=reclaims)
    elif lease.state is LeaseState.DRAINING:
        action = _draining(snapshot, lease, nominee)
    else:
        return None
    if action is None and _name(snapshot, lease, nominee) != lease.nominated_for:
        return Nominate(lease.id, lease.reason, nominee)
    return action


def _name(snapshot: Snapshot, lease: Lease, nominee: str | None) -> str | None:
    """Return in whose name a lease leaves: a nomination lapses with its request only."""
    return lease.nominated_for if lease.nominated_for in waiting_ids(snapshot) else nominee


def _expiring(snapshot: Snapshot, lease: Lease, nominee: str | None) -> Action | None:
    """Warn before the hard end, with the full warning even when the service was away."""
    warning = timedelta(seconds=time_outs_of(snapshot.policy, lease).warning)
    if lease.hard_end is None or snapshot.now < lease.hard_end - warning:
        return None
    until = max(lease.hard_end, snapshot.now + warning)
    return Warn(lease.id, "hard_end", until, EndReason.EXPIRED, nominee)


def _node_leaving(snapshot: Snapshot, lease: Lease, nominee: str | None) -> Action | None:
    """Warn at once when the lease's node is about to go, however busy the lease is."""
    if not _leaves_with_node(snapshot, lease):
        return None
    until = snapshot.now + timedelta(seconds=time_outs_of(snapshot.policy, lease).warning)
    return Warn(lease.id, "node_leaving", until, EndReason.FORCED, nominee)


def _for_window(snapshot: Snapshot, lease: Lease, nominee: str | None) -> Action | None:
    """Warn in time for a window that needs the device, or because the lease's own is over."""
    found = departures(snapshot).get(lease.id) if snapshot.capacity_known else None
    warning = timedelta(seconds=time_outs_of(snapshot.policy, lease).warning)
    if found is None or snapshot.now < found.until - warning:
        return None
    until = max(found.until, snapshot.now + warning)
    shape = lease.shrunk(found.gives) if found.gives else None
    return Warn(lease.id, found.reason, until, found.end_reason, nominee, shape)


def _budget_over(snapshot: Snapshot, lease: Lease, nominee: str | None) -> Action | None:
    """Warn when nothing is left of the budget that a lease is charged to."""
    if lease.id not in budgets.ended(snapshot):
        return None
    until = snapshot.now + timedelta(seconds=time_outs_of(snapshot.policy, lease).warning)
    return Warn(lease.id, NO_BUDGET, until, EndReason.EXPIRED, nominee)


def _over_share(snapshot: Snapshot, lease: Lease, nominee: str | None) -> Action | None:
    """Warn when others of a shared card have for long lacked the memory that a lease took."""
    since = _harms_since(snapshot, lease)
    if since is None or (snapshot.now - since).total_seconds() < snapshot.policy.share_harm:
        return None
    until = snapshot.now + timedelta(seconds=time_outs_of(snapshot.policy, lease).warning)
    return Warn(lease.id, OVER_SHARE, until, EndReason.PREEMPTED, nominee)


def _harms_since(snapshot: Snapshot, lease: Lease) -> datetime | None:
    evidence = snapshot.evidence.get(lease.id)
    return evidence.harms_since if evidence is not None else None


def _preempted(snapshot: Snapshot, lease: Lease, taken: Taken) -> Action:
    """Warn a lease that is held over quota, however busy it is: its owner needs it, or a part."""
    until = snapshot.now + timedelta(seconds=time_outs_of(snapshot.policy, lease).warning)
    fewer = taken.parts.get(lease.id)
    reason, shape = (PREEMPTED_IN_PART, lease.shrunk(fewer)) if fewer else (PREEMPTED, None)
    return Warn(lease.id, reason, until, EndReason.PREEMPTED, taken.by.get(lease.id), shape)


def _stays_after_all(snapshot: Snapshot, lease: Lease) -> bool:
    """Whether the window that a warned lease leaves for was cancelled, moved or extended."""
    if lease.reason not in REASONS:
        return False
    found = departures(snapshot).get(lease.id)
    until = lease.warned_until or snapshot.now
    # Of a window that is over nobody has to leave; who was to, does so, also where they would have
    # to leave later for those who have more time in it.
    due = snapshot.now >= until - timedelta(seconds=LATE)
    if due and lease.reason == OVER and window_of(snapshot, lease) is None:
        return False
    warning = timedelta(seconds=time_outs_of(snapshot.policy, lease).warning)
    return found is None or found.until > until + warning


def _leaves_with_node(snapshot: Snapshot, lease: Lease) -> bool:
    leaving = leaving_devices(snapshot)
    return snapshot.capacity_known and not leaving.isdisjoint(lease.devices)


def _warned_as_idle(snapshot: Snapshot, lease: Lease, nominee: str | None) -> Action | None:
    reason = why_idle(snapshot, lease, nominee is not None)
    if not reason:
        return None
    until = snapshot.now + timedelta(seconds=time_outs_of(snapshot.policy, lease).warning)
    return Warn(lease.id, reason, until, EndReason.IDLE, nominee)


def _warned(
    snapshot: Snapshot, lease: Lease, nominee: str | None, *, reclaims: bool
) -> Action | None:
    wanted = lease.end_reason_wanted or EndReason.IDLE
    reason = lease.reason
    if called_off := _called_off(snapshot, lease, nominee):
        return Clear(lease.id, called_off)
    if wanted is EndReason.IDLE:
        reason = why_idle(snapshot, lease, nominee is not None)
        if not reason and _short_gap(snapshot, lease):
            return None
        if not reason:
            return Clear(lease.id, _why_cleared(snapshot, lease, nominee))
        if not reclaims:
            return None
    early = lease.warned_until is not None and snapshot.now < lease.warned_until
    if early or (reason in TAKEN and finishes_cell(lease, snapshot)):
        return None
    time_outs = time_outs_of(snapshot.policy, lease)
    until = snapshot.now + _drain_bound(snapshot, lease, time_outs)
    # Without pressure an idle lease may turn out undrainable once; else there is no way back.
    park = nominee is not None or lease.undrainable or wanted is not EndReason.IDLE
    name = _name(snapshot, lease, nominee)
    return Drain(lease.id, reason, until, wanted, park, name, lease.becomes)


def _called_off(snapshot: Snapshot, lease: Lease, nominee: str | None) -> str:
    """Return why what a lease was warned of does not come, ``""`` where it comes."""
    if not snapshot.capacity_known:
        return ""
    if lease.reason in TAKEN and nominee is None and not _claimed(snapshot, lease):
        return "nobody_waits"
    if lease.reason == NO_BUDGET and lease.id not in budgets.ended(snapshot):
        return "budget_back"
    if lease.reason == OVER_SHARE and _harms_since(snapshot, lease) is None:
        return "within_share"
    if lease.reason == "node_leaving" and not _leaves_with_node(snapshot, lease):
        return "node_back"
    far = "clock_set" if _ends_far_ahead(snapshot, lease) else ""
    return "hold_lifted" if _stays_after_all(snapshot, lease) else far


def _ends_far_ahead(snapshot: Snapshot, lease: Lease) -> bool:
    """Whether the hard end comes so late that the clock was wrong when it was warned of."""
    warning = timedelta(seconds=time_outs_of(snapshot.policy, lease).warning)
    if lease.reason != "hard_end" or lease.hard_end is None:
        return False
    return snapshot.now < lease.hard_end - warning - FAR


def _claimed(snapshot: Snapshot, lease: Lease) -> bool:
    """Whether whom a lease is taken for still waits."""
    return lease.nominated_for in waiting_ids(snapshot)


def _drain_bound(snapshot: Snapshot, lease: Lease, time_outs: TimeOuts) -> timedelta:
    """A running cell is interrupted first and gets its grace on top."""
    evidence = snapshot.evidence.get(lease.id)
    grace = time_outs.interrupt_grace if evidence is not None and evidence.cells else 0.0
    return timedelta(seconds=time_outs.drain_max + grace)


def _short_gap(snapshot: Snapshot, lease: Lease) -> bool:
    """Whether the data stopped so lately that the warning just waits: samples come in batches."""
    evidence = snapshot.evidence.get(lease.id)
    if evidence is None or evidence.unknown_since is None:
        return False
    return (snapshot.now - evidence.unknown_since).total_seconds() < SHORT_GAP


def _why_cleared(snapshot: Snapshot, lease: Lease, nominee: str | None) -> str:
    evidence = snapshot.evidence.get(lease.id)
    if evidence is None or evidence.verdict is Verdict.UNKNOWN:
        return "no_data"
    if evidence.verdict is not Verdict.IDLE or (
        lease.reason == "unclaimed" and lease.claimed is not None
    ):
        return "used"
    if evidence.before is Verdict.UNKNOWN:
        return "no_data"  # the count began again: the service was restarted
    left_alone = lease.nominated_for is not None and nominee is None
    return "nobody_waits" if left_alone else "policy_changed"


def _draining(snapshot: Snapshot, lease: Lease, nominee: str | None) -> Action | None:
    seen = observed_of(snapshot, lease)
    drained = seen.drained if seen is not None else ""
    wanted = lease.end_reason_wanted or EndReason.IDLE
    if drained in ("done", "parked"):
        return _reshaped(snapshot, lease) or End(lease.id, drained, wanted)
    over = _over(lease.drain_until, snapshot.now)
    if drained != "blocked" and not over:
        return None
    if lease.park:
        ends = End(lease.id, drained or "drain_timeout", wanted)
        return _reshaped(snapshot, lease) or ends
    waited_for = nominee is not None and lease.becomes is None
    if wanted is EndReason.RETURNED and not waited_for and not lease.is_over(snapshot.now):
        # The holder did not say that it may be lost.  That is no way to hold it against somebody
        # who waits, or beyond its end.
        return Resume(lease.id, "not_home")
    if wanted is EndReason.IDLE and nominee is None and not lease.undrainable:
        return Resume(lease.id, "undrainable", undrainable=True)
    # Somebody waits, or it is the second time: park what cannot go home, then end.
    grace = timedelta(seconds=time_outs_of(snapshot.policy, lease).interrupt_grace)
    until = max(lease.drain_until or snapshot.now, snapshot.now + grace)
    return Drain(lease.id, lease.reason, until, wanted, True, _name(snapshot, lease, nominee))


def _reshaped(snapshot: Snapshot, lease: Lease) -> Action | None:
    """Let a lease continue as what it becomes, if it has any time left."""
    if lease.becomes is None or lease.is_over(snapshot.now):
        return None
    return Reshape(lease.id, "reshaped")


def _over(until: datetime | None, now: datetime) -> bool:
    return until is None or now >= until
