"""A machine's clock that was years ahead for a while leaves no marks on leases."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gpulease.policy import lifecycle
from gpulease.policy.model import Clear, EndReason, LeaseState, SetBack, Start, TimeOuts, Wait
from gpulease.policy.planner import plan
from tests.policy.build import NOW, active, at, busy, request, snapshot, warned

YEARS = timedelta(days=1500)
THEN = NOW + YEARS
MARKS = {
    "began": active(0, state_since=THEN, active_since=THEN, hard_end=THEN + timedelta(hours=2)),
    "idle from": active(0, idle_from=THEN, kept_until=THEN + timedelta(minutes=15)),
    "starts": request(
        0, state=LeaseState.STARTING, state_since=THEN, stage_since=THEN, devices=("GPU-0",)
    ),
    "warned": warned(
        0, state_since=THEN, reason="hard_end", end_reason_wanted=EndReason.EXPIRED,
        warned_until=THEN + timedelta(minutes=1), hard_end=at(7200),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MARKS)
def test_what_was_noted_while_the_clock_was_ahead_is_moved_back_by_as_much(name):
    lease = MARKS[name]
    view = snapshot([lease], evidence={"r0": busy()})
    (action,) = plan(view)
    assert action == SetBack("r0", "clock_set", THEN, YEARS.total_seconds())
    right = lifecycle.apply(lease, action, NOW, TimeOuts())
    assert right.version == lease.version + 1
    instants = [
        each - YEARS if each is not None and each >= THEN else each
        for each in (lease.hard_end, lease.not_before, lease.warned_until, lease.kept_until)
    ]
    assert [right.hard_end, right.not_before, right.warned_until, right.kept_until] == instants
    again = plan(replace(view, leases=(right,)))
    assert not [each for each in again if isinstance(each, SetBack)]
    if name == "warned":
        assert again == [Clear("r0", "clock_set")]


def test_no_start_is_put_off_for_years():
    (action,) = plan(snapshot([request(0, not_before=THEN)]))
    assert isinstance(action, Start)
    (action,) = plan(snapshot([request(0, not_before=at(60))]))
    assert action == Wait("r0", "backing_off")


@pytest.mark.parametrize("ahead", [60, 3599])
def test_a_clock_that_is_set_by_less_than_an_hour_moves_nothing(ahead):
    lease = active(0, state_since=at(ahead), active_since=at(ahead))
    assert plan(snapshot([lease], evidence={"r0": busy()})) == []


def test_a_warning_of_the_hard_end_stays_where_the_end_is_near():
    lease = warned(0, reason="hard_end", end_reason_wanted=EndReason.EXPIRED, hard_end=at(90))
    assert plan(snapshot([lease], evidence={"r0": busy()})) == []
