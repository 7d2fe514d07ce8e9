"""What each action of the planner, a person or the notebook server changes in a lease's record.

It says who may do what in which state; the planner's rules decide which action comes when.  Some
things are only noted: that the person is there, that the server is up, what a drain left behind.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from datetime import datetime, timedelta
from functools import singledispatch
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.policy import model
from gpulease.policy.lifecycle.table import (
    HOLDING,
    LEAVING_CAUSES,
    NO_WARNING,
    START_FAILURES,
    back,
    drain,
    end,
    move,
    not_possible,
    require,
)
from gpulease.policy.model import EndReason, Lease, LeaseState, PolicyDocument, TimeOuts
from gpulease.texts import Text, counted

#: Actions that make sense in one state only: a late one must not restart what runs.
_SOURCES: dict[type[model.Action], LeaseState] = {
    model.Start: LeaseState.QUEUED,
    model.Wait: LeaseState.QUEUED,
    model.Activate: LeaseState.STARTING,
    model.Progress: LeaseState.STARTING,
    model.Requeue: LeaseState.STARTING,
    model.Reshape: LeaseState.DRAINING,
    model.Warn: LeaseState.ACTIVE,
}


def apply(lease: Lease, action: model.Action, now: datetime, time_outs: TimeOuts) -> Lease:
    """Return the lease as it is once ``action`` (of the planner) is recorded at ``now``.

    Raises:
        GPULeaseError: ``not_possible_now``: the lease has moved on since the plan was made.
    """
    source = _SOURCES.get(type(action))
    if source is not None and lease.state is not source:
        raise not_possible(lease, f"changed by {type(action).__name__.lower()}")
    applied = _applied(action, lease, now, time_outs)
    return replace(applied, detail=action.detail) if action.detail else applied


@singledispatch
def _applied(action: model.Action, _lease: Lease, _now: datetime, _time_outs: TimeOuts) -> Lease:
    raise TypeError(f"{type(action).__name__} changes no lease")


@_applied.register
def _start(action: model.Start, lease: Lease, now: datetime, _: TimeOuts) -> Lease:
    started = move(lease, LeaseState.STARTING, action.reason, now)
    instead = action.gpu_class not in ("", lease.gpu_class)
    count = len(action.devices) or action.count or lease.count
    return replace(
        started,
        gpu_class=action.gpu_class or lease.gpu_class,
        asked_class=lease.gpu_class if instead else lease.asked_class,
        count=count,
        asked_count=_wished(lease, count),
        devices=action.devices,
        price=action.price,
        pool=action.pool,
        image=action.image,
        detail="",
        attempt=lease.attempt + 1,
        not_before=None,
        state_since=now,
        stage_since=now,
    )


def _wished(lease: Lease, count: int) -> int:
    """Return how many devices were asked for, 0 where it has as many."""
    asked = max(lease.asked_count, lease.count)
    return asked if asked > count else 0


@_applied.register
def _activate(action: model.Activate, lease: Lease, now: datetime, time_outs: TimeOuts) -> Lease:
    length = min(time_outs.hard_length, lease.wanted or time_outs.hard_length)
    # What runs was made under the policy of its start: a longer one since cannot lengthen it.
    until = now + timedelta(seconds=length)
    active = move(lease, LeaseState.ACTIVE, "connected", now)
    if lease.kept and lease.hard_end is not None:
        # It is the lease that it was: another shape lengthens nothing, and protects no longer.
        return replace(
            active,
            charged_from=now,
            idle_from=now,
            failures=0,
            devices=action.devices or lease.devices,
            kept=(),
        )
    return replace(
        active,
        active_since=now,
        charged_from=now,
        failures=0,
        hard_end=until if action.ends is None else min(until, action.ends),
        devices=action.devices or lease.devices,
    )


@_applied.register
def _progress(action: model.Progress, lease: Lease, now: datetime, _: TimeOuts) -> Lease:
    moved = move(lease, LeaseState.STARTING, action.reason, now)
    return replace(moved, devices=action.devices or lease.devices, stage_since=now)


@_applied.register
def _bind(action: model.Bind, lease: Lease, _now: datetime, _: TimeOuts) -> Lease:
    require(lease, HOLDING, "bound")
    shape, devices = lease.becomes, action.devices
    if shape is not None and set(shape.devices) <= set(lease.devices):
        shape = model.Shape(shape.gpu_class, devices[: shape.count])  # of those that it really has
    return replace(lease, devices=devices, becomes=shape, version=lease.version + 1)


@_applied.register
def _requeue(action: model.Requeue, lease: Lease, now: datetime, _: TimeOuts) -> Lease:
    queued = move(lease, LeaseState.QUEUED, action.reason, now)
    failures = lease.failures + (1 if action.failure else 0)
    again = replace(queued, devices=(), not_before=action.not_before, failures=failures)
    if lease.kept:  # what it became stands: it grows on its holder's word only
        return again
    return replace(
        again,
        gpu_class=lease.asked_class or lease.gpu_class,
        asked_class="",
        count=lease.asked_count or lease.count,
        asked_count=0,
    )


@_applied.register
def _reshape(action: model.Reshape, lease: Lease, now: datetime, _: TimeOuts) -> Lease:
    shape = lease.becomes
    if shape is None:
        raise not_possible(lease, "changed into nothing")
    queued = move(lease, LeaseState.QUEUED, action.reason, now)
    given = [(uuid, lease.nominated_for) for uuid in lease.giving if lease.nominated_for]
    asked = lease.asked_class or lease.gpu_class
    return replace(
        queued,
        gpu_class=shape.gpu_class,
        asked_class="" if shape.gpu_class == asked else asked,
        count=shape.count,
        asked_count=_wished(lease, shape.count),
        devices=(),
        kept=shape.devices,
        gave=(*lease.gave, *((uuid, name) for uuid, name in given if name)),
        not_before=None,
        failures=0,
        **NO_WARNING,
    )


@_applied.register
def _warn(action: model.Warn, lease: Lease, now: datetime, _: TimeOuts) -> Lease:
    warned = move(lease, LeaseState.WARNED, action.reason, now)
    return replace(
        warned,
        warned_until=action.until,
        end_reason_wanted=action.end_reason,
        nominated_for=action.nominated_for,
        becomes=action.becomes,
    )


@_applied.register
def _clear(action: model.Clear, lease: Lease, now: datetime, _: TimeOuts) -> Lease:
    return back(lease, action.reason, now)


@_applied.register
def _resume(action: model.Resume, lease: Lease, now: datetime, _: TimeOuts) -> Lease:
    active = back(lease, action.reason, now)
    if not action.undrainable:
        return active  # idle for as long as it was: wanting to return it is no use of it
    return replace(active, idle_from=now, undrainable=True)


@_applied.register
def _end(action: model.End, lease: Lease, now: datetime, _: TimeOuts) -> Lease:
    ended = end(lease, action.end_reason, now, last_seen=action.last_seen)
    if action.end_reason is EndReason.FAILED and action.reason in START_FAILURES:
        return replace(ended, end_cause=action.reason)
    said = lease.reason if action.end_reason is lease.end_reason_wanted else ""
    return replace(ended, end_cause=said if said in LEAVING_CAUSES else "")


@_applied.register
def _wait(action: model.Wait, lease: Lease, now: datetime, _: TimeOuts) -> Lease:
    # What a quota said is over once something else keeps the request waiting.
    said = "" if lease.reason == "quota_exceeded" else lease.detail
    return replace(move(lease, LeaseState.QUEUED, action.reason, now), detail=said)


@_applied.register
def _drain(action: model.Drain, lease: Lease, now: datetime, _: TimeOuts) -> Lease:
    return drain(lease, action, now)


@_applied.register
def _nominate(action: model.Nominate, lease: Lease, _now: datetime, _: TimeOuts) -> Lease:
    require(lease, frozenset({LeaseState.WARNED, LeaseState.DRAINING}), "nominated")
    return replace(lease, nominated_for=action.nominated_for, version=lease.version + 1)


@_applied.register
def _set_back(action: model.SetBack, lease: Lease, _now: datetime, _: TimeOuts) -> Lease:
    require(lease, HOLDING, "set back")
    by = timedelta(seconds=action.seconds)
    instants = {each.name: getattr(lease, each.name) for each in fields(lease)}
    moved: dict[str, Any] = {
        name: at - by
        for name, at in instants.items()
        if isinstance(at, datetime) and at >= action.first
    }
    return replace(lease, **moved, version=lease.version + 1)


#: Warned for one of these, the holder cannot keep the lease.
NOT_KEEPABLE = frozenset(
    {EndReason.PREEMPTED, EndReason.WINDOW_OVER, EndReason.EXPIRED, EndReason.FORCED}
)


def time_outs_of(policy: PolicyDocument, lease: Lease) -> TimeOuts:
    """Return the time-outs that govern a lease now: its class's, else the document's.

    A lease whose class was taken out of the policy continues under the document's own.
    """
    gpu_class = policy.by_name.get(lease.gpu_class)
    return policy.time_outs if gpu_class is None else gpu_class.time_outs


def claim(lease: Lease, now: datetime) -> Lease:
    """Record that the person is there: a home kernel connected or a cell ran."""
    require(lease, HOLDING, "claimed")
    if lease.claimed is not None:
        return lease
    return replace(lease, claimed=now, version=lease.version + 1)


def server_ready(lease: Lease, *, ready: bool) -> Lease:
    """Record whether the server that asked is up; an ask from a page may precede it."""
    if lease.server_ready == ready:
        return lease
    return replace(lease, server_ready=ready, version=lease.version + 1)


def regroup(request: Lease, groups: tuple[str, ...]) -> Lease:
    """Give a request the groups that its person has now: who holds a lease keeps it as it is."""
    if request.groups == groups or request.state is not LeaseState.QUEUED:
        return request
    return replace(request, groups=groups, version=request.version + 1)


def keep(
    lease: Lease, now: datetime, time_outs: TimeOuts, idle_end: datetime | None = None
) -> Lease:
    """Keep the lease for a while although it is idle: longer than without it, each time.

    Args:
        idle_end: when it would be warned as idle, ``None`` where that is not known.

    Raises:
        GPULeaseError: ``keep_not_possible`` (status 409) with why.
    """
    why = keep_refusal(lease, time_outs)
    if why is not None:
        raise why
    kept = move(lease, LeaseState.ACTIVE, "kept", now)
    return replace(
        kept,
        keeps=lease.keeps + 1,
        kept_until=max(filter(None, (now, lease.kept_until, idle_end)))
        + timedelta(seconds=time_outs.keep),
        claimed=lease.claimed or now,
        **NO_WARNING,
    )


def keep_refusal(lease: Lease, time_outs: TimeOuts) -> GPULeaseError | None:
    """Return why the holder cannot keep this lease now, or ``None``."""
    if lease.state not in (LeaseState.ACTIVE, LeaseState.WARNED):
        return GPULeaseError(
            "keep_not_possible",
            f"A lease that is {lease.state.value} cannot be kept.",
            next_step="Run a GPU cell or request a GPU again.",
        )
    if lease.state is LeaseState.WARNED and lease.end_reason_wanted in NOT_KEEPABLE:
        return GPULeaseError(
            "keep_not_possible",
            Text("This lease has to end. It cannot be kept."),
            next_step=Text(
                "Your variables are saved to the notebook; request a GPU again afterwards."
            ),
        )
    if lease.kept_until is not None and lease.is_over(lease.kept_until):
        return GPULeaseError(
            "keep_not_possible",
            Text("The GPU is kept until its hard limit already."),
            next_step=Text("Nothing has to be done."),
        )
    if not time_outs.keeps:
        unlimited = math.isinf(time_outs.idle)
        return GPULeaseError(
            "keep_not_possible",
            Text("Keep is not needed: this GPU is not released for being idle.")
            if unlimited
            else Text("Keep is not available here."),
            next_step=Text("Run a GPU cell: a lease in use stays."),
        )
    if lease.keeps >= time_outs.keeps:
        return GPULeaseError(
            "keep_used_up",
            counted(
                "Keep was used {used} of {n} time.",
                "Keep was used {used} of {n} times.",
                time_outs.keeps,
                used=lease.keeps,
            ),
            next_step=Text("Run a GPU cell: a lease in use stays."),
            numbers={"keeps": lease.keeps, "max": time_outs.keeps},
        )
    return None


def give_back(
    lease: Lease, now: datetime, time_outs: TimeOuts, *, force: bool = False, cells: int = 0
) -> Lease:
    """The holder gives the lease back or withdraws the request; a repeat changes nothing.

    Without ``force`` nothing is lost by it: if not all variables can be copied back, the lease
    becomes active again, and one with running ``cells`` (how many) is refused.

    Raises:
        GPULeaseError: ``cell_running``.
    """
    goes_on = lease.becomes is not None  # it drains, and would not end
    insists = lease.state is LeaseState.DRAINING and (goes_on or (force and not lease.park))
    if lease.state in (LeaseState.DRAINING, LeaseState.ENDED) and not insists:
        return lease
    if lease.state is LeaseState.QUEUED:
        return end(lease, EndReason.WITHDRAWN, now)
    if lease.state is LeaseState.STARTING:
        return end(lease, EndReason.RETURNED, now)
    if cells and not force:
        raise GPULeaseError(
            "cell_running",
            Text("A cell is running on this GPU. Releasing the GPU now stops it."),
            next_step=Text("Wait until the cell ends, or release the GPU anyway."),
            numbers={"cells": cells},
        )
    park = force or (goes_on and lease.park)
    return _leave(lease, EndReason.RETURNED, "returned", now, time_outs, park=park)


def reshape(
    lease: Lease, shape: model.Shape, now: datetime, time_outs: TimeOuts, *, cells: int = 0
) -> Lease:
    """The holder lets the lease become another shape: it is drained, and continues as that.

    Nothing is lost by it: one whose variables cannot all be copied back stays as it is.

    Raises:
        GPULeaseError: ``not_possible_now``, ``cell_running``.
    """
    require(lease, frozenset({LeaseState.ACTIVE}), "changed")
    if cells:
        raise GPULeaseError(
            "cell_running",
            Text("A cell is running on this GPU. Changing the lease now would stop it."),
            next_step=Text("Wait until the cell ends."),
            numbers={"cells": cells},
        )
    leaving = _leave(lease, EndReason.RETURNED, "reshaped", now, time_outs, park=False)
    return replace(leaving, becomes=shape)


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


def left_behind(lease: Lease, blockers: tuple[tuple[str, str], ...], parked: int) -> Lease:
    """Note what the drain did not copy back: part of the change that ends or resumes it."""
    return replace(lease, blockers=blockers, parked=parked)


def asked_again(lease: Lease, now: datetime) -> Lease:
    """The server asked again while its lease drained and nobody else waits: active again."""
    active = back(lease, "asked_again", now)
    return replace(active, idle_from=now, claimed=now)


def _leave(
    lease: Lease,
    reason: EndReason,
    code: str,
    now: datetime,
    time_outs: TimeOuts,
    *,
    park: bool = True,
) -> Lease:
    """Drain for somebody's word; ``park``: what cannot go home is parked, or lost by name."""
    if lease.state is LeaseState.DRAINING:
        kept_bound = lease.drain_until or now + timedelta(seconds=time_outs.drain_max)
    else:
        bound = time_outs.drain_max + time_outs.interrupt_grace
        kept_bound = now + timedelta(seconds=bound)
    action = model.Drain(lease.id, code, kept_bound, reason, park, lease.nominated_for)
    return drain(lease, action, now)
