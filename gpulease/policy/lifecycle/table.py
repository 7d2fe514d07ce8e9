"""The one table of a lease's life: which state may follow which, and for which reasons.

The reasons are the codes for which ``policy.reasons`` has words.

A lease that runs although the store does not know it is adopted: the store was restored from a
backup.  Such a lease lasts for an hour at least, so that a restored backup does not end a class's
work, and an admin is notified.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.policy import model, reasons
from gpulease.policy.model import Alert, EndReason, Lease, LeaseState, Observed

#: States in which a lease holds devices.
HOLDING = frozenset(
    {LeaseState.STARTING, LeaseState.ACTIVE, LeaseState.WARNED, LeaseState.DRAINING}
)


@dataclass(frozen=True)
class Transition:
    """One allowed step and the reason codes it may be recorded with."""

    source: LeaseState
    target: LeaseState
    reasons: frozenset[str]


_Q, _S, _A = LeaseState.QUEUED, LeaseState.STARTING, LeaseState.ACTIVE
_W, _D, _E = LeaseState.WARNED, LeaseState.DRAINING, LeaseState.ENDED

#: What a start does at present, in the order in which it happens.
STAGES = tuple(reasons.STARTING)
#: Starts that failed by what was asked for: after a few in a row the request ends.
OWN_FAILURES = frozenset(
    {
        "supervisor_failed",
        "start_timeout",
        "image_error",
        "no_gpulease",
        "other_version",
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
        "queue_preempted",
        "node_not_added",
        "came_free",
    }
)
START_FAILURES = OWN_FAILURES | OTHERS_FAILURES
#: Why a request waits: some starts that fail for what others have wait for it.
WAIT_REASONS = (frozenset(reasons.WAITING) - START_FAILURES) | {
    "capacity_taken", "quota_exceeded", "queue_preempted",
}  # fmt: skip
LEAVING = frozenset(reasons.LEAVING)
#: What an ended lease says of itself more exactly than its end's reason does.
LEAVING_CAUSES = frozenset({"node_leaving", "budget_over", "over_share"})
#: How a lease that was to leave comes to stay.
BACK = frozenset(reasons.ACTIVE) - {"connected"}
END_REASONS = frozenset(reason.value for reason in EndReason)

TRANSITIONS: tuple[Transition, ...] = (
    Transition(_Q, _Q, WAIT_REASONS),
    Transition(_Q, _S, frozenset({"starting", "adding_node"})),
    Transition(_Q, _E, END_REASONS),
    Transition(_S, _S, frozenset(STAGES)),
    Transition(_S, _Q, START_FAILURES),
    Transition(_S, _A, frozenset({"connected"})),
    Transition(_S, _D, LEAVING),
    Transition(_S, _E, END_REASONS),
    Transition(_A, _A, frozenset(reasons.ACTIVE)),
    Transition(_A, _W, LEAVING),
    Transition(_A, _D, LEAVING),
    Transition(_A, _E, END_REASONS),
    Transition(_W, _W, LEAVING),
    Transition(_W, _A, BACK),
    Transition(_W, _D, LEAVING),
    Transition(_W, _E, END_REASONS),
    Transition(_D, _D, LEAVING),
    Transition(_D, _A, BACK),
    Transition(_D, _Q, frozenset({"reshaped"})),
    Transition(_D, _E, END_REASONS),
)
TABLE = {(row.source, row.target): row for row in TRANSITIONS}


def allowed(source: LeaseState, target: LeaseState) -> bool:
    """Say whether ``target`` may follow ``source``."""
    return (source, target) in TABLE


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
    )


def back(lease: Lease, reason: str, now: datetime) -> Lease:
    """Return the lease active again, from a warning or a drain."""
    require(lease, frozenset({LeaseState.WARNED, LeaseState.DRAINING}), "active again")
    charged = lease.charged_from or now  # what drained was not charged
    return replace(move(lease, LeaseState.ACTIVE, reason, now), charged_from=charged, **NO_WARNING)


def drain(lease: Lease, action: model.Drain, now: datetime) -> Lease:
    """Return the lease as it drains; what an earlier drain could not copy back is remembered."""
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


def end(lease: Lease, reason: EndReason, now: datetime, last_seen: datetime | None = None) -> Lease:
    """Return the ended lease; it keeps its devices and nomination as history.

    What died unseen is charged until it was heard of last: ``last_seen``.
    """
    ended = move(lease, LeaseState.ENDED, reason.value, now)
    return replace(
        ended,
        end_reason=reason,
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


_NOTHING_PLANNED: dict[str, Any] = {
    "not_before": None,
    "stage_since": None,
    "warned_until": None,
    "drain_until": None,
    "end_reason_wanted": None,
    "nominated_for": None,
    "park": False,
}
#: Seconds that an adopted lease is left in peace, and after which it ends.
PEACE = 3600.0


def adopted(seen: Observed, known: Lease | None, now: datetime) -> Lease | None:
    """Return the lease as it stands once adopted; ``None`` when there is nothing to adopt.

    Args:
        seen: what runs, with what it says of itself.
        known: the lease as the store has it, ``None`` when it has none.
        now: the present.

    A lease that the store knows is adopted only where a later attempt runs than it knows of.
    """
    record = seen.record
    if record is None or not seen.devices or (known and known.attempt >= seen.attempt):
        return None
    if known is not None and known.state is LeaseState.ENDED:
        return None  # an end is never taken back
    until = now + timedelta(seconds=PEACE)
    wanted = record.hard_end
    return replace(
        known or record,
        attempt=seen.attempt,
        devices=seen.devices,
        count=len(seen.devices),
        state=LeaseState.ACTIVE,
        reason="connected",
        state_since=now,
        active_since=record.active_since,
        claimed=now,
        charged_from=now,
        idle_from=until,  # nothing is known of its use: idleness counts from then on only
        hard_end=until if wanted is None or wanted > until else max(wanted, now),
        version=known.version + 1 if known is not None else record.version,
        **_NOTHING_PLANNED,
    )


def adoption_alert(lease: Lease) -> Alert:
    """Return the message to the admin about an adopted lease."""
    return Alert(
        lease.id,
        "adopted",
        f"Lease {lease.id} of {lease.user} runs, but the database does not know it: was it "
        "restored from a backup?  It continues for an hour at most.",
    )
