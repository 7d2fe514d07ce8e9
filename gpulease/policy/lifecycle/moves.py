"""Moves along the table that the planner's steps and people's words have in common.

Each returns a new ``Lease`` whose ``version`` is one higher.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.policy import model
from gpulease.policy.lifecycle.table import TABLE
from gpulease.policy.model import EndReason, Lease, LeaseState

#: What a lease that stays forgets of its leaving.
NO_WARNING: dict[str, Any] = {
    "warned_until": None,
    "drain_until": None,
    "end_reason_wanted": None,
    "nominated_for": None,
    "becomes": None,
    "park": False,
}


def move(lease: Lease, target: LeaseState, reason: str, now: datetime) -> Lease:
    """Return the lease in state ``target``.

    Raises:
        GPULeaseError: ``not_possible_now``: the table has no such step.
        ValueError: the step is not recorded with ``reason``: a mistake of the caller.
    """
    row = TABLE.get((lease.state, target))
    if row is None:
        raise not_possible(lease, target.value)
    if reason not in row.reasons:
        raise ValueError(f"{lease.state.value} -> {target.value} has no reason {reason!r}")
    since = lease.state_since if lease.state is target else now
    return replace(
        lease, state=target, reason=reason, state_since=since or now, version=lease.version + 1
    )


def require(lease: Lease, states: frozenset[LeaseState], verb: str) -> None:
    """Raise ``not_possible_now`` unless the lease is in one of ``states``."""
    if lease.state not in states:
        raise not_possible(lease, verb)


def not_possible(lease: Lease, verb: str) -> GPULeaseError:
    """Return the error for a step that the lease's state does not allow (status 409)."""
    return GPULeaseError(
        "not_possible_now",
        f"A lease that is {lease.state.value} cannot be {verb}.",
        next_step="Look at the lease again: it changed meanwhile.",
        status=409,
    )


def back(lease: Lease, reason: str, now: datetime) -> Lease:
    """Return the lease active again, from a warning or a drain."""
    require(lease, frozenset({LeaseState.WARNED, LeaseState.DRAINING}), "active again")
    charged = lease.charged_from or now  # what drained was not charged
    return replace(move(lease, LeaseState.ACTIVE, reason, now), charged_from=charged, **NO_WARNING)


def drain(lease: Lease, action: model.Drain, now: datetime) -> Lease:
    """Return the lease as it drains; what an earlier drain could not bring home is kept in mind."""
    draining = move(lease, LeaseState.DRAINING, action.reason, now)
    return replace(
        draining,
        **_charged(lease, now),
        warned_until=None,
        drain_until=action.until,
        end_reason_wanted=action.end_reason,
        park=action.park,
        blockers=lease.blockers if lease.state is LeaseState.DRAINING else (),
        parked=0,
        nominated_for=action.nominated_for,
        becomes=action.becomes,
    )


def end(
    lease: Lease,
    reason: EndReason,
    now: datetime,
    note: str = "",
    last_seen: datetime | None = None,
) -> Lease:
    """Return the ended lease; it keeps its devices and nomination as history.

    What died unseen is charged until it was heard of last: ``last_seen``.
    """
    ended = move(lease, LeaseState.ENDED, reason.value, now)
    return replace(
        ended,
        end_reason=reason,
        end_note=note or lease.end_note,
        ended=now,
        **_charged(lease, now, last_seen),
        warned_until=None,
        drain_until=None,
    )


def _charged(lease: Lease, now: datetime, last_seen: datetime | None = None) -> dict[str, Any]:
    """Return what becomes of the charge of a lease that is not used any more."""
    if lease.charged_from is None:
        return {}
    until = now if last_seen is None else max(lease.charged_from, min(now, last_seen))
    return {
        "charged_from": None,
        "charged_until": until,
        "charge_estimated": last_seen is not None,
    }
