"""Pods that stand ready in a replay: who starts in one, and what they hold."""

from dataclasses import replace

import pytest

from gpulease.policy.catalog import Warm, WarmHours
from gpulease.simulate.world import replay
from tests.simulate.build import cards, policy, session, trace

HOUR = 3600.0


def with_pods(warm: Warm | None):
    known = policy()
    classes = tuple(replace(each, warm=warm) for each in known.classes)
    return replace(known, classes=classes)


def played(warm: Warm | None, *sessions, gpus: int = 4):
    return replay(trace(*sessions), with_pods(warm), cards(gpus))


def test_who_comes_first_starts_in_one_and_the_next_is_made():
    people = [session("a", 100, (0.0, 60.0)), session("b", 200, (0.0, 60.0))]
    assert played(None, *people).waits.p95 == pytest.approx(5, abs=1)
    found = played(Warm(1), *people)
    assert found.waits.p95 == pytest.approx(1, abs=1)
    # One stands ready for two hours, but for the moments in which it had become a lease's.
    assert found.ready_hours == pytest.approx(2.0, abs=0.02)
    assert found.held_hours == pytest.approx(
        played(None, *people).held_hours + found.ready_hours, abs=0.01
    )
    assert found.saved_hours == pytest.approx(found.session_hours - found.held_hours)


def test_two_at_once_and_one_pod():
    people = [session(name, 100, (0.0, 60.0)) for name in "ab"]
    found = played(Warm(1), *people)
    assert found.waits.p50 == pytest.approx(1, abs=1)
    assert found.waits.p95 == pytest.approx(5, abs=1)


def test_several_gpus_are_not_in_one_pod():
    found = played(Warm(2), session("a", 100, (0.0, 60.0), count=2))
    assert found.waits.p50 == pytest.approx(5, abs=1)


def test_they_take_no_gpu_from_anybody():
    people = [session(name, 100, (0.0, 7200.0)) for name in "ab"]
    found = played(Warm(2), *people, gpus=2)
    assert found.waits.p95 == pytest.approx(1, abs=1)
    assert found.ready_hours * HOUR == pytest.approx(2 * 100, abs=5)
    assert found.held_hours <= 2 * 2.0


@pytest.mark.parametrize(("zone", "ready"), [("UTC", 0.5), ("America/New_York", 0.0)])
def test_the_hours_of_the_week(zone, ready):
    # A trace begins on a Monday at midnight, UTC.
    hours = (WarmHours((0,), 60, 90, 1),)
    found = played(Warm(0, hours, zone), session("a", 7000, (0.0, 60.0)))
    assert found.ready_hours == pytest.approx(ready, abs=0.01)


def test_until_midnight():
    hours = (WarmHours((6,), 23 * 60, 24 * 60, 2),)
    known = trace(session("a", 7000, (0.0, 60.0)), length=7 * 24 * HOUR)
    assert replay(known, with_pods(Warm(0, hours)), cards(4)).ready_hours == pytest.approx(2.0)
