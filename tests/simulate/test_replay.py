"""Replays: small ones worked out by hand, properties of invented ones, and promises that break."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpulease.policy.model import Drain, EndReason, LeaseState, Start, TimeOuts, Wait, Warn
from gpulease.policy.projects import Budget, Project, Projects
from gpulease.simulate import scenarios
from gpulease.simulate.table import drawn, table
from gpulease.simulate.trace import MONDAY
from gpulease.simulate.world import Assumptions, replay
from tests.helpers import draws
from tests.policy import build as snapshots
from tests.policy.fairness.build import asks, holds, project, shared
from tests.simulate import invariants
from tests.simulate.build import cards, policy, session, trace
from tests.simulate.invariants import BrokenPromise

HOUR = 3600.0


def test_one_person_alone():
    """Two cells of 100 s with 50 s between, then 250 s until the notebook is closed."""
    found = replay(trace(session("a", 10, (0, 100), (50, 100), linger=250)), policy(), cards(1))
    # Asked at 10, started in 5 s, used until 265, closed at 515, gone 2 s later.
    assert found.held_hours * HOUR == pytest.approx(507, abs=2)
    assert found.busy_hours * HOUR == pytest.approx(200)
    assert found.session_hours * HOUR == pytest.approx(505, abs=2)
    assert (found.waits.asked, found.waits.served, found.waits.p50) == (1, 1, pytest.approx(5))
    assert (found.reclaims, found.reattaches, found.warnings) == (0, 0, 0)


@pytest.mark.parametrize(
    "now",
    [{"occupied_by": "L"}, {"healthy": False}, {"lost": True}, {"leaving": True}, {"warm": "t4"}],
    ids=str,
)
def test_who_uses_a_device_while_it_is_noted_is_not_in_the_replay(now: dict[str, Any]):
    """The site's own devices, as its last plan had them: somebody worked there."""
    devices = [replace(each, **now) for each in cards(1)]
    found = replay(trace(session("a", 10, (0, 100))), policy(), devices)
    assert (found.waits.served, found.busy_hours * HOUR) == (1, pytest.approx(100))


def test_a_budget_that_is_spent_keeps_the_next_one_waiting_until_its_period_is_over():
    """Half an hour is all there is a week: bob waits for Monday, who would have been served."""
    phys = Project("phys", group="phys", budget=Budget(gpu_hours=0.5))
    shared = replace(policy(), projects=Projects((phys,)))
    day = 24 * HOUR
    people = (
        session("ann", 0, (0, 1700), project="phys"),
        session("bob", 14 * HOUR, (0, 600), project="phys", linger=day),
    )
    sunday = replace(trace(*people, length=day + HOUR), begin=MONDAY + timedelta(days=6))
    found = replay(sunday, shared, cards(1))
    assert (found.waits.asked, found.waits.served) == (2, 2)
    assert found.waits.p95 == pytest.approx(day - 14 * HOUR, rel=0.06)
    assert replay(sunday, policy(), cards(1)).waits.p95 == pytest.approx(5, abs=2)


def test_an_idle_gpu_comes_back_and_is_asked_for_again():
    """Idle for 5 min and warned for a minute; the second cell begins half an hour later."""
    outs = TimeOuts()
    found = replay(trace(session("a", 0, (0, 300), (1800, 60))), policy(outs), cards(1))
    assert (found.reclaims, found.reattaches, found.false_reclaims) == (1, 1, 0)
    # Both starts, the work, the idle time with its ten seconds of doubt, the warning, two releases.
    expected = 5 + 300 + 10 + outs.idle + outs.warning + 2 + 2 + 5 + 60 + 2
    assert found.held_hours * HOUR == pytest.approx(expected, abs=10)
    assert found.saved_hours > 0.3


@pytest.mark.parametrize(("pause", "false"), [(375, 0), (385, 1), (425, 1), (440, 0)])
def test_a_gpu_that_is_wanted_within_a_minute_was_taken_wrongly(pause, false):
    """It is taken 5 min 10 s after the last use and a minute's warning: at 370 s."""
    found = replay(trace(session("a", 0, (0, 200), (pause, 60))), policy(), cards(1))
    # 375: drains from 371 on, so it is asked for again within seconds, and is false as well.
    assert found.false_reclaims == (false or int(pause == 375))


def test_who_waits_takes_what_is_idle_and_shorter():
    waiting = session("b", 600, (0, 60))
    idle = session("a", 0, (0, 400), (4000, 60))
    found = replay(trace(idle, waiting, length=5000), policy(), cards(1))
    # Idle since 415: under pressure 2 min are enough, but b comes at 600 and a is warned then.
    assert found.waits.p95 == pytest.approx(60 + 2 + 2 + 5, abs=5)
    assert found.reclaims == 1


def test_an_open_wait_is_counted_and_not_dropped():
    long = session("a", 0, (0, 7500))
    found = replay(trace(long, session("b", 100, (0, 10))), policy(), cards(1))
    assert (found.waits.open, found.waits.served) == (1, 1)
    assert found.waits.p95 is None


def test_who_loses_patience_leaves():
    long = session("a", 0, (0, 7500))
    found = replay(trace(long, session("b", 100, (0, 10), patience=60)), policy(), cards(1))
    assert (found.waits.given_up, found.waits.open) == (1, 0)


def test_a_hard_end_interrupts_and_the_work_goes_on():
    outs = replace(TimeOuts(), hard_length=1800.0)
    found = replay(trace(session("a", 0, (0, 4000))), policy(outs), cards(1))
    assert found.reattaches == 2
    assert found.busy_hours * HOUR == pytest.approx(4000, abs=5)
    assert found.reclaims == 0


def test_several_gpus_come_together_or_not_at_all():
    found = replay(trace(session("a", 0, (0, 100), count=4)), policy(), cards(4))
    assert found.busy_hours * HOUR == pytest.approx(400)
    refused = replay(trace(session("a", 0, (0, 100), count=4)), policy(), cards(3))
    assert refused.refused.keys() == {"bad_count"}
    asked = refused.refused["bad_count"]
    words = [" ".join(line.split()) for line in table([found, refused]).splitlines()]
    at = words.index(f"refused 0 {asked}")
    assert words[at + 1] == f"bad_count: That many GPUs are not available 0 {asked}"


def test_a_start_that_takes_too_long_gives_its_devices_back():
    late = Assumptions(start=90.0)
    found = replay(trace(session("a", 0, (0, 10)), length=600), policy(), cards(1), late)
    assert found.waits.served == 0
    assert 0 < found.held_hours * HOUR < 600


@st.composite
def crowds(draw):
    seconds = st.integers(0, 1500)
    bursts = st.lists(st.tuples(seconds, st.integers(1, 900)), min_size=1, max_size=4)
    return trace(
        *(
            session(
                f"s{n}",
                draw(seconds),
                *draw(bursts),
                count=draw(st.sampled_from([1, 1, 1, 2])),
                linger=draw(seconds),
                project=draw(st.sampled_from(["", "red", "blue"])),
            )
            for n in range(draw(st.integers(1, 8)))
        ),
        length=9000.0,
    )


@settings(max_examples=draws(5), deadline=None)
@given(crowds(), st.integers(2, 4), st.sampled_from([0.5, 1.0, 2.0]))
def test_what_is_counted_adds_up(people, gpus, think):
    found = replay(people, policy(), cards(gpus), Assumptions(think=think))
    assert found.busy_hours <= found.held_hours + 1e-6
    assert found.busy_hours <= found.wanted_hours + 1e-6
    assert found.held_hours * HOUR <= gpus * 9000 + 1e-6
    waits = found.waits
    assert waits.asked == waits.served + waits.open + waits.given_up
    assert found.false_reclaims <= found.reclaims
    for name in ("held_hours", "busy_hours", "reclaims"):
        parts = sum(getattr(each, name) for each in found.projects)
        assert parts == pytest.approx(getattr(found, name))
    mean_used = sum(used for _, used, _ in found.bins) / len(found.bins)
    assert mean_used * 9000 == pytest.approx(found.busy_hours * HOUR, abs=1)
    one = found.gpu  # spans less than 5 s apart are one
    assert sum(end - begin for begin, end in one.held) <= min(9000, found.held_hours * HOUR) + 300
    assert all(
        any(held[0] - 5 <= begin and end <= held[1] + 5 for held in one.held)
        for begin, end in one.busy
    )
    assert found == replay(people, policy(), cards(gpus), Assumptions(think=think))
    assert (
        found.gpu
        == replay(people, policy(), cards(gpus), Assumptions(think=think), watch=one.uuid).gpu
    )


@pytest.mark.parametrize("name", scenarios.SCENARIOS)
def test_a_scenario_is_the_same_for_the_same_seed(name):
    make, gpus = scenarios.SCENARIOS[name]
    first = make(7, weeks=0.053)
    assert first == make(7, weeks=0.053)
    assert first != make(8, weeks=0.053)
    found = replay(first, policy(), cards(gpus))
    assert found.waits.served > 0
    assert found.saved_hours > 0
    text = table([found, replace(found, name="again <&>")])
    assert "GPU-hours held" in text
    picture = drawn([found, replace(found, name="again <&>")], first.begin)
    assert "again &lt;&amp;&gt;" in picture


def test_a_broken_promise_is_not_passed_over():
    """Each rule, broken by hand."""
    lease = snapshots.active(0, active_since=snapshots.at(-60))
    waits = snapshots.request(1, reason="no_capacity")
    view = snapshots.snapshot([lease, waits], 2, {lease.id: snapshots.busy()})
    start = Start(waits.id, "starting", ("GPU-1",))
    warn = Warn(lease.id, "idle", snapshots.at(60), EndReason.IDLE)
    invariants.check_plan(view, [start])
    taken = replace(warn, end_reason=EndReason.PREEMPTED, reason="preempted")
    for wrong, rule in (
        ([start, start], "one action"),
        ([replace(start, devices=("GPU-0",))], "free devices"),
        ([replace(start, devices=("GPU-7",))], "free devices"),
        ([replace(start, devices=())], "all or nothing"),
        ([], "waits for what is free"),
        ([Wait(waits.id, "held")], "waits for what is free"),
        ([start, warn], "not taken as idle"),
        ([start, replace(warn, until=snapshots.at(5))], "is warned for"),
        ([start, taken], "minimum runtime"),
    ):
        with pytest.raises(BrokenPromise, match=rule):
            invariants.check_plan(view, wrong)
    own = [holds(0, "phys"), asks(1, "bio")]
    quota = snapshots.snapshot(own, 1, policy=shared(project("phys", 1), project("bio")))
    with pytest.raises(BrokenPromise, match="beyond the quota"):
        invariants.check_plan(quota, [replace(taken, lease_id=own[0].id)])
    full = snapshots.snapshot([lease, waits], 1)
    invariants.check_state(full, 1)
    twice = replace(full, leases=(lease, replace(lease, id="other")))
    with pytest.raises(BrokenPromise, match="twice"):
        invariants.check_state(twice, 1)
    for late in (
        replace(lease, state=LeaseState.STARTING, state_since=snapshots.at(-600)),
        replace(lease, state=LeaseState.DRAINING, state_since=snapshots.at(-600)),
        replace(lease, state=LeaseState.WARNED, warned_until=snapshots.at(-600)),
        replace(lease, hard_end=snapshots.at(-6000)),
    ):
        with pytest.raises(BrokenPromise):
            invariants.check_state(replace(full, leases=(late,)), 1)
    warned = snapshots.warned(0, left=30)
    drained = snapshots.snapshot([warned], 1)
    early = Drain(warned.id, "idle", snapshots.at(60), EndReason.IDLE, False)
    with pytest.raises(BrokenPromise, match="whole warning"):
        invariants.check_plan(drained, [early])
    # A device that broke leaves no time.
    invariants.check_plan(drained, [replace(early, end_reason=EndReason.FAILED)])
