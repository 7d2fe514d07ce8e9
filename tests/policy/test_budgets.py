"""Budgets: what is charged, what is left, and what comes at zero."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from gpulease.errors import GPULeaseError
from gpulease.policy import budgets, lifecycle
from gpulease.policy.admission_check import JOINED, Ask, answer
from gpulease.policy.model import Clear, EndReason, Start, Wait, Warn
from gpulease.policy.planner import plan
from gpulease.policy.projects import AtZero, Budget
from gpulease.policy.reservations.departures import of_hours
from tests.policy.build import NOW, OUTS, at, busy, snapshot
from tests.policy.fairness.build import asks, holds, project, shared


def budgeted(budget, **changed):
    return shared(project("phys", budget=budget), project("bio"), **changed)


def steps(leases, policy, devices=4, **changed):
    evidence = {x.id: busy() for x in leases if x.devices}
    view = snapshot(leases, devices, evidence, policy=policy, **changed)
    return {action.lease_id: action for action in plan(view)}


def test_a_week_begins_on_monday_where_the_budget_says():
    begin, end = Budget(zone="Europe/Berlin").period(NOW)  # Monday, 2 March, 15:00 there
    assert begin == datetime(2026, 3, 1, 23, 0, tzinfo=UTC)
    assert end - begin == timedelta(days=7)


def test_a_week_with_a_change_of_clocks_has_its_own_length():
    begin, end = Budget(zone="Europe/Berlin").period(datetime(2026, 3, 27, tzinfo=UTC))
    assert end - begin == timedelta(days=7, hours=-1)


def test_a_term_holds_both_days_and_bounds_nothing_outside():
    term = Budget(10, first=date(2026, 3, 1), last=date(2026, 3, 2))
    assert term.period(datetime(2026, 3, 2, 23, 59, tzinfo=UTC)) is not None
    assert term.period(datetime(2026, 3, 3, tzinfo=UTC)) is None
    leases = [replace(holds(0, "phys"), charged_from=at(-1800)), asks(1, "phys")]
    over = replace(term, last=date(2026, 3, 1))
    assert isinstance(steps(leases, budgeted(over))["r1"], Start)


def test_what_runs_is_charged_by_its_devices_and_the_price_of_its_grant():
    lease = replace(
        holds(0, "phys", user="ann", devices=("GPU-0", "GPU-1")), charged_from=at(-1800), price=3.0
    )
    view = snapshot([lease], 4, policy=budgeted(Budget(10)), spent={("phys", "ann"): 2.0})
    assert budgets.spent(view, "phys", "ann") == pytest.approx(2 + 0.5 * 2 * 3)
    left = budgets.remainder(view, "phys", "ann")
    assert (left.left, left.of, left.whose) == (pytest.approx(5.0), 10, "project")


def test_what_ran_before_the_period_is_not_charged_to_it():
    lease = replace(holds(0, "phys", user="ann"), charged_from=NOW - timedelta(days=3))
    view = snapshot([lease], 4, policy=budgeted(Budget(100)))
    assert budgets.spent(view, "phys") == pytest.approx(14.0)  # since midnight


def test_the_nearer_bound_counts_the_projects_or_the_persons():
    view = snapshot(
        [], 4, policy=budgeted(Budget(10, each=4, people=(("ann", 9.0),))),
        spent={("phys", "ann"): 3.0, ("phys", "bob"): 3.0},
    )  # fmt: skip
    assert budgets.remainder(view, "phys", "ann").whose == "project"
    bob = budgets.remainder(view, "phys", "bob")
    assert (bob.whose, bob.left) == ("person", 1.0)
    assert budgets.remainder(view, "bio", "ann") is None


def test_a_start_needs_a_minimum_runtime_and_no_more():
    hours = OUTS.minimum_runtime / 3600
    enough = {("phys", "user9"): 10 - hours}
    policy = budgeted(Budget(10))
    assert isinstance(steps([asks(1, "phys")], policy, spent=enough)["r1"], Start)
    short = {("phys", "user9"): 10 - 0.9 * hours}
    waits = steps([asks(1, "phys")], policy, spent=short)["r1"]
    assert isinstance(waits, Wait)
    assert waits.reason == "no_budget"
    assert steps([asks(1, "phys", count=2)], policy, spent=enough)["r1"].reason == "no_budget"


def test_at_zero_the_ordinary_warning_comes_however_busy_the_lease_is():
    leases = [replace(holds(0, "phys"), charged_from=at(-1800)), holds(1, "bio")]
    action = steps(leases, budgeted(Budget(0.5)))
    assert set(action) == {"r0"}
    warn = action["r0"]
    assert isinstance(warn, Warn)
    assert (warn.reason, warn.end_reason) == ("budget_over", EndReason.EXPIRED)
    assert warn.until == at(OUTS.warning)


def test_a_larger_budget_takes_the_warning_back():
    leases = [replace(holds(0, "phys"), charged_from=at(-1800))]
    warn = steps(leases, budgeted(Budget(0.5)))["r0"]
    warned = lifecycle.apply(leases[0], warn, NOW, OUTS)
    back = steps([warned], budgeted(Budget(5)))["r0"]
    assert isinstance(back, Clear)
    assert back.reason == "budget_back"


def test_whoever_may_go_on_beyond_it_has_what_nobody_else_wants():
    policy = budgeted(Budget(0.5, at_zero=AtZero.BORROW))
    leases = [replace(holds(n, "phys"), charged_from=at(-1800)) for n in range(4)]
    assert steps(leases, policy) == {}
    action = steps([*leases, asks(8, "bio"), asks(9, "bio")], policy)
    assert sorted(x.nominated_for for x in action.values() if isinstance(x, Warn)) == ["r8", "r9"]
    # One of them that asks comes after everybody who has budget left.
    line = [*leases[:3], asks(5, "phys"), asks(9, "bio")]
    assert isinstance(steps(line, policy)["r9"], Start)
    assert isinstance(steps(line[:-1], policy)["r5"], Start)


@pytest.mark.parametrize(
    ("hours", "at_zero", "said"),
    [(0.5, AtZero.BORROW, True), (50, AtZero.BORROW, False), (0.5, AtZero.END, False)],
)
def test_who_goes_on_beyond_a_budget_reads_that_it_is_borrowed(hours, at_zero, said):
    mine = replace(holds(0, "phys"), charged_from=at(-3600))
    view = snapshot([mine], 1, {mine.id: busy()}, policy=budgeted(Budget(hours, at_zero=at_zero)))
    assert ("while nobody else wants it" in of_hours(view, mine)) is said


def test_a_drain_and_what_comes_after_it_are_charged_as_they_should_be():
    lease = replace(holds(0, "phys"), charged_from=at(-100))
    left = lifecycle.give_back(lease, NOW, OUTS)
    assert left.charged_from is None
    assert lifecycle.asked_again(left, at(5)).charged_from == at(5)


def ask(user, groups, policy, **changed):
    wish = Ask(user, "", groups=groups, **changed.pop("wish", {}))
    return answer(wish, snapshot([], policy=policy, **changed), "new", (NOW, 1)).lease.project


def test_an_ask_is_charged_to_the_first_project_with_budget_left():
    policy = shared(
        project("phys", budget=Budget(1)), project("bio"), project("all", everyone=True)
    )
    assert ask("ann", ("bio", "phys"), policy) == "phys"
    assert ask("ann", ("bio", "phys"), policy, spent={("phys", "bob"): 1.0}) == "bio"
    assert ask("ann", ("phys",), policy, spent={("phys", "bob"): 1.0}) == "phys"
    assert ask("ann", ("others",), policy) == "all"
    assert ask("ann", ("bio", "phys"), policy, wish={"project": "bio"}) == "bio"


def test_a_project_of_others_is_refused_by_name():
    policy = shared(project("phys"), project("bio"))
    with pytest.raises(GPULeaseError, match="in no project 'bio'") as refusal:
        ask("ann", ("phys",), policy, wish={"project": "bio"})
    assert refusal.value.reason == "unknown_project"
    assert refusal.value.next_step == f"Ask for one of: phys. {JOINED}"


def test_a_project_has_the_classes_that_it_is_given():
    policy = shared(project("course", classes=("slice",)), project("bio"))
    assert ask("ann", ("bio", "course"), policy) == "bio"
    unseen = {"wish": {"gpu_class": "slice"}, "capacity_known": False}
    assert ask("ann", ("course",), policy, **unseen) == "course"
    for groups, wish in ((("course",), {}), (("bio", "course"), {"project": "course"})):
        with pytest.raises(GPULeaseError) as refusal:
            ask("ann", groups, policy, wish=wish)
        assert refusal.value.reason == "class_not_allowed"
        assert refusal.value.next_step.startswith("Ask for one of: slice.")
