"""Transitions that a person or the notebook server asks for, as the planner asks for its own.

It says who may do what in which state.  Some things are only noted: that the person is there, that
the server is up, what a drain left behind.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from gpulease.errors import GPULeaseError
from gpulease.policy import model
from gpulease.policy.lifecycle.table import HOLDING, NO_WARNING, back, drain, end, move, require
from gpulease.policy.model import EndReason, Lease, LeaseState, PolicyDocument, TimeOuts
from gpulease.texts import Text, counted

#: Warned for one of these, the holder cannot keep the lease.
NOT_KEEPABLE = frozenset(
    {EndReason.PREEMPTED, EndReason.WINDOW_OVER, EndReason.EXPIRED, EndReason.FORCED}
)


def time_outs_of(policy: PolicyDocument, lease: Lease) -> TimeOuts:
    """Return the time-outs that govern a lease now: its class's, else the document's.

    A lease whose class was taken out of the policy goes on under the document's own.
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
            status=409,
        )
    if lease.state is LeaseState.WARNED and lease.end_reason_wanted in NOT_KEEPABLE:
        return GPULeaseError(
            "keep_not_possible",
            Text("This lease has to end. It cannot be kept."),
            next_step=Text(
                "Your variables are saved to the notebook; request a GPU again afterwards."
            ),
            status=409,
        )
    if lease.kept_until is not None and lease.is_over(lease.kept_until):
        return GPULeaseError(
            "keep_not_possible",
            Text("The GPU is kept until its hard limit already."),
            next_step=Text("Nothing has to be done."),
            status=409,
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
            status=409,
        )
    return None


def give_back(
    lease: Lease, now: datetime, time_outs: TimeOuts, *, force: bool = False, cells: int = 0
) -> Lease:
    """The holder gives the lease back or withdraws the request; a repeat changes nothing.

    Without ``force`` nothing is lost by it: a lease whose variables cannot all come home becomes
    active again, and one with running ``cells`` (how many) is refused.

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
            Text("A cell is running on this GPU. Returning the GPU now stops it."),
            next_step=Text("Wait until the cell ends, or return the GPU all the same."),
            numbers={"cells": cells},
            status=409,
        )
    park = force or (goes_on and lease.park)
    return _leave(lease, EndReason.RETURNED, "returned", now, time_outs, park=park)


def reshape(
    lease: Lease, shape: model.Shape, now: datetime, time_outs: TimeOuts, *, cells: int = 0
) -> Lease:
    """The holder lets the lease become another shape: it is drained, and goes on as that.

    Nothing is lost by it: one whose variables cannot all come home stays as it is.

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
            status=409,
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
    """Note what the drain did not bring home: part of the change that ends or resumes it."""
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
