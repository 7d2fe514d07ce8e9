"""The one table of a lease's life, and the pure functions that move a lease through it.

Owns which state may follow which and for which reasons, and what each step changes in the record.
Refuses to decide *whether* a step is taken (``planner`` and people do) and to perform or store it.

Every function returns a new ``Lease`` whose ``version`` is one higher; a step that the table does
not allow raises ``GPULeaseError`` with reason ``not_possible_now`` and status 409.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import singledispatch
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.policy import model
from gpulease.policy.model import EndReason, Lease, LeaseState, PolicyDocument, TimeOuts

#: States in which a lease holds devices.
HOLDING = frozenset(
    {LeaseState.STARTING, LeaseState.ACTIVE, LeaseState.WARNED, LeaseState.DRAINING}
)
#: Warned for one of these, the holder cannot keep the lease.
NOT_KEEPABLE = frozenset(
    {EndReason.PREEMPTED, EndReason.WINDOW_OVER, EndReason.EXPIRED, EndReason.FORCED}
)


@dataclass(frozen=True)
class Transition:
    """One allowed step and the reason codes it may be recorded with."""

    source: LeaseState
    target: LeaseState
    reasons: frozenset[str]


_Q, _S, _A = LeaseState.QUEUED, LeaseState.STARTING, LeaseState.ACTIVE
_W, _D, _E = LeaseState.WARNED, LeaseState.DRAINING, LeaseState.ENDED

WAIT_REASONS = frozenset(
    {
        "",
        "no_capacity",
        "capacity_taken",
        "user_limit",
        "server_limit",
        "held",
        "quarantined",
        "server_starting",
        "backing_off",
    }
)
#: What a start does at present, in the order in which it happens.
STAGES = ("starting", "scheduling", "pulling", "starting_container", "connecting")
#: Starts that failed by what was asked for: after a few in a row the request ends.
OWN_FAILURES = frozenset(
    {
        "supervisor_failed",
        "start_timeout",
        "image_error",
        "no_gpulease",
        "container_error",
        "out_of_memory",
        "unschedulable",
        "admission_refused",
        "claim_failed",
    }
)
#: Starts that failed by what others do or have: tried again until they work.
OTHERS_FAILURES = frozenset(
    {
        "capacity_taken",
        "device_unhealthy",
        "quota_exceeded",
        "evicted",
        "node_lost",
        "volume_failed",
        "cluster_unreachable",
        "server_pod_missing",
    }
)
START_FAILURES = OWN_FAILURES | OTHERS_FAILURES
IDLE_REASONS = frozenset({"idle", "quiet", "busy_max", "no_data", "unclaimed"})
DEVICE_REASONS = frozenset({"device_unhealthy", "device_lost"})
OTHER_LEAVING = frozenset({"hard_end", "preempted", "window_over", "node_leaving"})
PERSON_LEAVING = frozenset({"returned", "forced"})
LEAVING = IDLE_REASONS | DEVICE_REASONS | OTHER_LEAVING | PERSON_LEAVING
BACK = frozenset(
    {
        "used",
        "nobody_waits",
        "kept",
        "no_data",
        "policy_changed",
        "asked_again",
        "undrainable",
        "node_back",
    }
)
END_REASONS = frozenset(reason.value for reason in EndReason)

TRANSITIONS: tuple[Transition, ...] = (
    Transition(_Q, _Q, WAIT_REASONS),
    Transition(_Q, _S, frozenset({"starting"})),
    Transition(_Q, _E, END_REASONS),
    Transition(_S, _S, frozenset(STAGES)),
    Transition(_S, _Q, START_FAILURES),
    Transition(_S, _A, frozenset({"connected"})),
    Transition(_S, _D, LEAVING),
    Transition(_S, _E, END_REASONS),
    Transition(_A, _A, frozenset({"kept", "connected"}) | BACK),
    Transition(_A, _W, LEAVING),
    Transition(_A, _D, LEAVING),
    Transition(_A, _E, END_REASONS),
    Transition(_W, _W, LEAVING),
    Transition(_W, _A, BACK),
    Transition(_W, _D, LEAVING),
    Transition(_W, _E, END_REASONS),
    Transition(_D, _D, LEAVING),
    Transition(_D, _A, BACK),
    Transition(_D, _E, END_REASONS),
)
_TABLE = {(row.source, row.target): row for row in TRANSITIONS}


#: Actions that make sense in one state only: a late one must not restart what runs.
_SOURCES: dict[type[model.Action], LeaseState] = {
    model.Start: _Q,
    model.Wait: _Q,
    model.Activate: _S,
    model.Progress: _S,
    model.Requeue: _S,
    model.Warn: _A,
}


def allowed(source: LeaseState, target: LeaseState) -> bool:
    """Say whether ``target`` may follow ``source``."""
    return (source, target) in _TABLE


def time_outs_of(policy: PolicyDocument, lease: Lease) -> TimeOuts:
    """Return the time-outs that govern a lease now: its class's, else the document's.

    A lease whose class was taken out of the policy goes on under the document's own.
    """
    for gpu_class in policy.classes:
        if gpu_class.name == lease.gpu_class:
            return gpu_class.time_outs
    return policy.time_outs


def apply(lease: Lease, action: model.Action, now: datetime, time_outs: TimeOuts) -> Lease:
    """Return the lease as it is once ``action`` (of the planner) is recorded at ``now``.

    Raises:
        GPULeaseError: ``not_possible_now``: the lease has moved on since the plan was made.
    """
    source = _SOURCES.get(type(action))
    if source is not None and lease.state is not source:
        raise _not_possible(lease, f"changed by {type(action).__name__.lower()}")
    applied = _applied(action, lease, now, time_outs)
    return replace(applied, detail=action.detail) if action.detail else applied


def claim(lease: Lease, now: datetime) -> Lease:
    """Record that the person is there: a home kernel connected or a cell ran."""
    _require(lease, HOLDING, "claimed")
    if lease.claimed is not None:
        return lease
    return replace(lease, claimed=now, version=lease.version + 1)


def server_ready(lease: Lease, *, ready: bool) -> Lease:
    """Record whether the server that asked is up; an ask from a page may precede it."""
    if lease.server_ready == ready:
        return lease
    return replace(lease, server_ready=ready, version=lease.version + 1)


def keep(lease: Lease, now: datetime, time_outs: TimeOuts) -> Lease:
    """Keep the lease for a while although it is idle.

    Raises:
        GPULeaseError: ``keep_not_possible`` (status 409) with why.
    """
    why = keep_refusal(lease, time_outs)
    if why is not None:
        raise why
    kept = _move(lease, LeaseState.ACTIVE, "kept", now)
    return replace(
        kept,
        keeps=lease.keeps + 1,
        kept_until=now + timedelta(seconds=time_outs.keep),
        claimed=lease.claimed or now,
        **_NO_WARNING,
    )


def keep_refusal(lease: Lease, time_outs: TimeOuts) -> GPULeaseError | None:
    """Return why the holder cannot keep this lease now, or ``None``."""
    if lease.state not in (LeaseState.ACTIVE, LeaseState.WARNED):
        return GPULeaseError(
            "keep_not_possible",
            f"A lease that is {lease.state.value} cannot be kept.",
            next_step="Run a GPU cell or request a GPU again.",
            status=409,
        )
    if lease.state is LeaseState.WARNED and lease.end_reason_wanted in NOT_KEEPABLE:
        return GPULeaseError(
            "keep_not_possible",
            f"This lease ends because of: {lease.end_reason_wanted.value}. It cannot be kept.",
            next_step="Your variables are brought home; request a GPU again afterwards.",
            status=409,
        )
    if lease.keeps >= time_outs.keeps:
        return GPULeaseError(
            "keep_used_up",
            f"Keep was used {lease.keeps} of {time_outs.keeps} times.",
            next_step="Run a GPU cell: a lease in use stays.",
            numbers={"keeps": lease.keeps, "max": time_outs.keeps},
            status=409,
        )
    return None


def give_back(lease: Lease, now: datetime, time_outs: TimeOuts) -> Lease:
    """The holder gives the lease back or withdraws the request; a repeat changes nothing."""
    if lease.state in (LeaseState.DRAINING, LeaseState.ENDED):
        return lease
    if lease.state is LeaseState.QUEUED:
        return end(lease, EndReason.WITHDRAWN, now)
    if lease.state is LeaseState.STARTING:
        return end(lease, EndReason.RETURNED, now)
    return _leave(lease, EndReason.RETURNED, "returned", now, time_outs)


def force_end(lease: Lease, now: datetime, time_outs: TimeOuts, note: str) -> Lease:
    """An admin ends the lease; ``note`` is what its holder reads.  Variables are drained first."""
    if lease.state is LeaseState.ENDED:
        return lease
    noted = replace(lease, end_note=note)
    if lease.state in (LeaseState.QUEUED, LeaseState.STARTING):
        return end(noted, EndReason.FORCED, now)
    return _leave(noted, EndReason.FORCED, "forced", now, time_outs)


def server_gone(lease: Lease, now: datetime) -> Lease:
    """The notebook server stopped or was deleted: nothing is left to drain to."""
    return lease if lease.state is LeaseState.ENDED else end(lease, EndReason.SERVER_GONE, now)


def end(lease: Lease, reason: EndReason, now: datetime, note: str = "") -> Lease:
    """Return the ended lease; it keeps its devices and nomination as history."""
    ended = _move(lease, LeaseState.ENDED, reason.value, now)
    return replace(
        ended,
        end_reason=reason,
        end_note=note or lease.end_note,
        ended=now,
        warned_until=None,
        drain_until=None,
    )


def left_behind(lease: Lease, blockers: tuple[tuple[str, str], ...], parked: int) -> Lease:
    """Note what the drain did not bring home: part of the change that ends or resumes it."""
    return replace(lease, blockers=blockers, parked=parked)


def asked_again(lease: Lease, now: datetime) -> Lease:
    """The server asked again while its lease drained and nobody else waits: active again."""
    back = _back(lease, "asked_again", now)
    return replace(back, idle_from=now, claimed=now)


_NO_WARNING: dict[str, Any] = {
    "warned_until": None,
    "drain_until": None,
    "end_reason_wanted": None,
    "nominated_for": None,
    "park": False,
}


def _require(lease: Lease, states: frozenset[LeaseState], verb: str) -> None:
    if lease.state not in states:
        raise _not_possible(lease, verb)


def _not_possible(lease: Lease, verb: str) -> GPULeaseError:
    return GPULeaseError(
        "not_possible_now",
        f"A lease that is {lease.state.value} cannot be {verb}.",
        next_step="Look at the lease again: it changed meanwhile.",
        status=409,
    )


def _move(lease: Lease, target: LeaseState, reason: str, now: datetime) -> Lease:
    row = _TABLE.get((lease.state, target))
    if row is None:
        raise _not_possible(lease, target.value)
    if reason not in row.reasons:
        raise ValueError(f"{lease.state.value} -> {target.value} has no reason {reason!r}")
    since = lease.state_since if lease.state is target else now
    return replace(
        lease, state=target, reason=reason, state_since=since or now, version=lease.version + 1
    )


@singledispatch
def _applied(action: model.Action, _lease: Lease, _now: datetime, _time_outs: TimeOuts) -> Lease:
    raise TypeError(f"{type(action).__name__} changes no lease")


@_applied.register
def _start(action: model.Start, lease: Lease, now: datetime, _: TimeOuts) -> Lease:
    started = _move(lease, LeaseState.STARTING, "starting", now)
    instead = action.gpu_class not in ("", lease.gpu_class)
    return replace(
        started,
        gpu_class=action.gpu_class or lease.gpu_class,
        asked_class=lease.gpu_class if instead else "",
        devices=action.devices,
        detail="",
        attempt=lease.attempt + 1,
        not_before=None,
        state_since=now,
        stage_since=now,
    )


@_applied.register
def _activate(action: model.Activate, lease: Lease, now: datetime, time_outs: TimeOuts) -> Lease:
    length = min(time_outs.hard_length, lease.wanted or time_outs.hard_length)
    active = _move(lease, LeaseState.ACTIVE, "connected", now)
    return replace(
        active,
        active_since=now,
        failures=0,
        hard_end=now + timedelta(seconds=length),
        devices=action.devices or lease.devices,
    )


@_applied.register
def _progress(action: model.Progress, lease: Lease, now: datetime, _: TimeOuts) -> Lease:
    moved = _move(lease, LeaseState.STARTING, action.reason, now)
    return replace(moved, devices=action.devices or lease.devices, stage_since=now)


@_applied.register
def _bind(action: model.Bind, lease: Lease, _now: datetime, _: TimeOuts) -> Lease:
    _require(lease, HOLDING, "bound")
    return replace(lease, devices=action.devices, version=lease.version + 1)


@_applied.register
def _requeue(action: model.Requeue, lease: Lease, now: datetime, _: TimeOuts) -> Lease:
    queued = _move(lease, LeaseState.QUEUED, action.reason, now)
    return replace(
        queued,
        gpu_class=lease.asked_class or lease.gpu_class,
        asked_class="",
        devices=(),
        not_before=action.not_before,
        failures=lease.failures + (1 if action.failure else 0),
    )


@_applied.register
def _warn(action: model.Warn, lease: Lease, now: datetime, _: TimeOuts) -> Lease:
    warned = _move(lease, LeaseState.WARNED, action.reason, now)
    return replace(
        warned,
        warned_until=action.until,
        end_reason_wanted=action.end_reason,
        nominated_for=action.nominated_for,
    )


@_applied.register
def _clear(action: model.Clear, lease: Lease, now: datetime, _: TimeOuts) -> Lease:
    return _back(lease, action.reason, now)


@_applied.register
def _resume(action: model.Resume, lease: Lease, now: datetime, _: TimeOuts) -> Lease:
    back = _back(lease, action.reason, now)
    return replace(back, idle_from=now, undrainable=lease.undrainable or action.undrainable)


@_applied.register
def _end(action: model.End, lease: Lease, now: datetime, _: TimeOuts) -> Lease:
    ended = end(lease, action.end_reason, now)
    known = action.end_reason is EndReason.FAILED and action.reason in START_FAILURES
    return replace(ended, end_cause=action.reason if known else "")


@_applied.register
def _wait(action: model.Wait, lease: Lease, now: datetime, _: TimeOuts) -> Lease:
    return _move(lease, LeaseState.QUEUED, action.reason, now)


def _back(lease: Lease, reason: str, now: datetime) -> Lease:
    _require(lease, frozenset({LeaseState.WARNED, LeaseState.DRAINING}), "active again")
    return replace(_move(lease, LeaseState.ACTIVE, reason, now), **_NO_WARNING)


@_applied.register
def _drain(action: model.Drain, lease: Lease, now: datetime, _: TimeOuts) -> Lease:
    draining = _move(lease, LeaseState.DRAINING, action.reason, now)
    return replace(
        draining,
        warned_until=None,
        drain_until=action.until,
        end_reason_wanted=action.end_reason,
        park=action.park,
        blockers=lease.blockers if lease.state is LeaseState.DRAINING else (),
        parked=0,
        nominated_for=action.nominated_for,
    )


def _leave(lease: Lease, reason: EndReason, code: str, now: datetime, time_outs: TimeOuts) -> Lease:
    """Drain for somebody's word; what cannot go home is parked, for it will not come back."""
    if lease.state is LeaseState.DRAINING:
        kept_bound = lease.drain_until or now + timedelta(seconds=time_outs.drain_max)
    else:
        bound = time_outs.drain_max + time_outs.interrupt_grace
        kept_bound = now + timedelta(seconds=bound)
    action = model.Drain(lease.id, code, kept_bound, reason, True, lease.nominated_for)
    return _drain(action, lease, now, time_outs)


@_applied.register
def _nominate(action: model.Nominate, lease: Lease, _now: datetime, _: TimeOuts) -> Lease:
    _require(lease, frozenset({LeaseState.WARNED, LeaseState.DRAINING}), "nominated")
    return replace(lease, nominated_for=action.nominated_for, version=lease.version + 1)
