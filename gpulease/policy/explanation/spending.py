"""What a person is told of a budget that is used up."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from gpulease.policy import budgets
from gpulease.policy.calendar import wall_clock
from gpulease.policy.model import Lease, LeaseState, Snapshot
from gpulease.policy.units import say_moment
from gpulease.texts import Text


def of_hours(snapshot: Snapshot, lease: Lease) -> str:
    """Say when a request that waits for GPU-hours gets new ones, and of a lease that goes on
    without any that it borrows; ``""`` for others.
    """
    if lease.state is LeaseState.ACTIVE and lease.id in budgets.exhausted(snapshot):
        return Text(
            "The GPU-hours of project {project} are used up, or yours in it: this GPU is yours "
            "while nobody else wants it.",
            project=lease.project,
        )
    if lease.state is not LeaseState.QUEUED or lease.reason != "no_budget":
        return ""
    left = budgets.of_lease(snapshot, lease)
    budget = snapshot.policy.projects.home(lease.project).budget
    if left is None or budget is None:
        return ""
    at = say_moment(wall_clock(left.until, ZoneInfo(budget.zone)))
    return Text("Its next period begins on {at} ({zone}).", at=at, zone=budget.zone)
