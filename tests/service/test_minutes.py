"""Minutes of evidence add up to the time that passed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from gpulease.policy.model import Evidence, Verdict
from gpulease.service.control_loop.evidence import Minutes

START = datetime(2026, 1, 1, 12, tzinfo=UTC)


@given(st.lists(st.tuples(st.floats(0.1, 20), st.sampled_from(Verdict)), min_size=1, max_size=60))
def test_every_second_is_counted_once_under_its_verdict(rounds) -> None:
    minutes = Minutes()
    now = START
    minutes.add({}, now)
    expected = dict.fromkeys(("busy", "quiet", "idle", "unknown"), 0.0)
    found = dict(expected)
    for seconds, verdict in rounds:
        now += timedelta(seconds=seconds)
        minutes.add({"L": Evidence(verdict, START)}, now)
        expected[verdict.value] += seconds
        over = minutes.due(now)
        minutes.written(over)
        assert minutes.due(now) == []
        for each in over:
            assert each.minute < now.replace(second=0, microsecond=0) <= now
            for name in found:
                found[name] += getattr(each, name)
    for each in minutes.due(now + timedelta(minutes=1)):
        for name in found:
            found[name] += getattr(each, name)
    assert all(abs(found[name] - expected[name]) < 1e-3 for name in found)


def test_the_peak_is_the_highest_use_of_the_minute() -> None:
    minutes = Minutes()
    minutes.add({}, START)
    for second, use in ((1, 0.2), (2, 0.9), (3, None), (4, 0.0)):
        at = START + timedelta(seconds=second)
        minutes.add({"L": Evidence(Verdict.BUSY, START, utilisation=use)}, at)
    (minute,) = minutes.due(START + timedelta(minutes=1))
    assert (minute.peak, minute.busy) == (0.9, 4.0)


def test_a_minute_that_was_not_written_is_due_again() -> None:
    minutes = Minutes()
    minutes.add({}, START)
    minutes.add({"L": Evidence(Verdict.IDLE, START)}, START + timedelta(seconds=1))
    later = START + timedelta(minutes=2)
    assert minutes.due(later) == minutes.due(later) != []
