"""What leases that are over have used, as a plan reads it."""

from datetime import UTC, datetime, timedelta

import pytest

from gpulease.policy.budgets import Accounts, Use
from gpulease.policy.projects import Budget, Project, Projects

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
WEEK = timedelta(days=7)
PROJECTS = Projects((Project("phys", budget=Budget(10)), Project("bio")), half_life=86400.0)


def use(since: datetime, hours: float = 2.0, name: str = "phys") -> Use:
    until = since + timedelta(hours=hours)
    return Use("r1", "ann", name, "t4", "cards", 1, 1.0, since, until)


def test_use_counts_half_after_a_half_life_whenever_it_was_added():
    for asked in (MONDAY, MONDAY + timedelta(days=5)):
        accounts = Accounts(PROJECTS, asked)
        accounts.add(use(MONDAY))
        later = MONDAY + timedelta(hours=2, days=1)
        assert accounts.use(later) == {("phys", "ann", "cards"): pytest.approx(3600.0)}


def test_a_budget_counts_its_own_period_and_begins_anew():
    accounts = Accounts(PROJECTS, MONDAY)
    accounts.add(use(MONDAY - timedelta(hours=1)))  # an hour of it is the week before's
    accounts.add(use(MONDAY, name="bio"))
    assert accounts.spent(MONDAY) == {("phys", "ann"): pytest.approx(1.0)}
    assert not accounts.is_over(MONDAY)
    assert accounts.is_over(MONDAY + WEEK)
    assert accounts.spent(MONDAY + WEEK) == {}
    accounts.renew(MONDAY + WEEK)
    accounts.add(use(MONDAY + WEEK - timedelta(hours=1.5)))
    assert accounts.spent(MONDAY + WEEK) == {("phys", "ann"): pytest.approx(0.5)}


def test_as_far_back_as_half_lives_or_the_period_reach():
    midweek = MONDAY + timedelta(days=3)
    assert Accounts(PROJECTS, midweek).since(1) == MONDAY
    assert Accounts(PROJECTS, midweek).since(10) == midweek - timedelta(days=10)
