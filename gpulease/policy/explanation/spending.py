"""What a person is told of a budget that keeps their request waiting."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from gpulease.policy import budgets
from gpulease.policy.calendar import wall_clock
from gpulease.policy.model import Lease, LeaseState, Snapshot
from gpulease.policy.units import say_moment
from gpulease.texts import Text


def new_hours(snapshot: Snapshot, lease: Lease) -> str:
    """Say when a request that waits for GPU-hours gets new ones, ``""`` for other requests."""
    if lease.state is not LeaseState.QUEUED or lease.reason != "no_budget":
        return ""
    left = budgets.of_lease(snapshot, lease)
    budget = snapshot.policy.projects.home(lease.project).budget
    if left is None or budget is None:
        return ""
    at = say_moment(wall_clock(left.until, ZoneInfo(budget.zone)))
    return Text("Its next period begins on {at} ({zone}).", at=at, zone=budget.zone)
