"""Between which times a request starts: learnt from waits of late, told once there are enough."""

from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from gpulease.policy.explanation.forecast import LEAST, MOST, STEP, ExpectedWaits, forecasts
from gpulease.policy.model import EndReason, LeaseState
from tests.policy.build import active, at, request, snapshot

#: One GPU, given back in ten minutes: what is expected of who waits for it.
EXPECTED = 600.0


def view(leases, now, spread=None):
    holder = active(0, hard_end=at(now + EXPECTED), wanted=EXPECTED, active_since=at(now - 60))
    seen = snapshot([holder, *leases], 1, now=at(now))
    return replace(seen, wait_spread=spread)


def waited(known, number, seconds, **ended):
    """Let a request wait for so long, and start unless it ends."""
    asked = request(number)
    now = number * 10_000.0
    assert known.look(view([asked], now, known.spread)) == []
    after = ended or {"state": LeaseState.STARTING, "devices": ("GPU-0",)}
    return known.look(view([replace(asked, **after)], now + seconds, known.spread))


def test_nothing_is_told_before_enough_waits_are_over():
    known = ExpectedWaits()
    for number in range(1, LEAST):
        (over,) = waited(known, number, 600)
        assert over.said is not None
        assert over.said.between is None
    assert known.spread is None
    waited(known, LEAST, 600)
    assert known.spread == pytest.approx((0, 0), abs=0.02)
    (over,) = waited(known, LEAST + 1, 600)
    early, late = over.said.between
    assert timedelta(0) < late - early <= 4 * STEP
    assert early <= over.said.expected_start <= late


def test_eight_of_ten_start_in_the_time_that_is_told():
    known, random = ExpectedWaits(), Random(5)
    told = []
    for number in range(1, 700):
        (over,) = waited(known, number, EXPECTED * random.lognormvariate(0.3, 0.5))
        if over.said.between is not None:
            early, late = over.said.between
            told.append(early <= over.until <= late)
    assert len(told) == 699 - LEAST
    assert 0.75 <= sum(told) / len(told) <= 0.85


def test_a_wait_in_which_the_clock_was_set_back_says_nothing():
    known, other = ExpectedWaits(), ExpectedWaits()
    (over,) = waited(known, 1, -3600)
    assert over.until < over.since
    for number in range(2, LEAST + 2):
        waited(known, number, 600)
        waited(other, number, 600)
    assert known.spread == other.spread is not None


def test_only_the_waits_of_late_count():
    known = ExpectedWaits()
    for number in range(1, MOST + 1):
        waited(known, number, 1200)
    doubled = known.spread
    for number in range(MOST + 1, 2 * MOST + 1):
        waited(known, number, 600)
    assert doubled[0] > 0.6
    assert known.spread == pytest.approx((0, 0), abs=0.02)


def test_who_gives_up_says_nothing_of_how_long_it_takes():
    known = ExpectedWaits()
    gone = {"state": LeaseState.ENDED, "end_reason": EndReason.WITHDRAWN, "ended": at(0)}
    for number in range(1, 2 * LEAST):
        assert waited(known, number, 30, **gone) == []
    assert known.spread is None


def test_what_is_told_changes_in_steps_and_lies_ahead():
    spread = (-1.0, 0.7)
    for second in range(0, 60, 7):
        seen = view([request(1)], second, spread)
        early, late = forecasts(seen)["r1"].between
        assert early.second % 10 == late.second % 10 == 0
        assert seen.now - STEP < early < late
    sure = view([request(1)], 0, None)
    assert forecasts(sure)["r1"].between is None
