"""The one table of a lease's life: which state may follow which, and for which reasons."""

from __future__ import annotations

from dataclasses import dataclass

from gpulease.policy.model import EndReason, LeaseState

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

WAIT_REASONS = frozenset(
    {
        "",
        "no_capacity",
        "capacity_taken",
        "user_limit",
        "server_limit",
        "held",
        "quarantined",
        "quota_exceeded",
        "server_starting",
        "backing_off",
        "reserved",
        "window_coming",
        "seats_taken",
        "project_limit",
        "member_limit",
        "quota_only",
        "no_budget",
        "cluster_queue_full",
        "paused",
        "queue_preempted",
        "reshaped",
    }
)
#: What a start does at present, in the order in which it happens.
STAGES = (
    "starting",
    "cluster_queue",
    "adding_node",
    "scheduling",
    "pulling",
    "starting_container",
    "connecting",
)
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
IDLE_REASONS = frozenset({"idle", "quiet", "busy_max", "no_data", "unclaimed"})
DEVICE_REASONS = frozenset({"device_unhealthy", "device_lost"})
OTHER_LEAVING = frozenset(
    {
        "hard_end",
        "preempted",
        "preempted_in_part",
        "reserved",
        "reserved_in_part",
        "window_over",
        "node_leaving",
        "budget_over",
        "over_share",
    }
)
PERSON_LEAVING = frozenset({"returned", "forced", "reshaped"})
#: What an ended lease says of itself more exactly than its end's reason does.
LEAVING_CAUSES = frozenset({"node_leaving", "budget_over", "over_share"})
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
        "not_home",
        "node_back",
        "hold_lifted",
        "budget_back",
        "within_share",
        "clock_set",
    }
)
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
    Transition(_D, _Q, frozenset({"reshaped"})),
    Transition(_D, _E, END_REASONS),
)
TABLE = {(row.source, row.target): row for row in TRANSITIONS}


def allowed(source: LeaseState, target: LeaseState) -> bool:
    """Say whether ``target`` may follow ``source``."""
    return (source, target) in TABLE
