"""What each action of the planner changes in a lease's record.

The planner's rules decide which action comes when.
"""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import datetime, timedelta
from functools import singledispatch
from typing import Any

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
from gpulease.policy.model import EndReason, Lease, LeaseState, TimeOuts

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
