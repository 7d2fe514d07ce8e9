"""Times of day in a notebook: one clock for gpulease's own words and for the service's."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from gpulease.kernel.clock import clock, own_times

NOON = datetime(2030, 7, 1, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    yield monkeypatch
    monkeypatch.undo()
    time.tzset()


def live_in(zone: pytest.MonkeyPatch, name: str) -> None:
    zone.setenv("TZ", name)
    time.tzset()


def test_a_machine_with_a_zone_shows_its_own_time(zone: pytest.MonkeyPatch) -> None:
    live_in(zone, "CET-1CEST,M3.5.0,M10.5.0/3")
    assert clock(NOON) == "14:00:00"
    assert clock("2030-01-01T12:00:00+00:00", seconds=False) == "13:00"
    said = "Expected at 11:58:01 UTC. It leaves at 12:00:00 UTC."
    assert own_times(said, NOON) == "Expected at 13:58:01. It leaves at 14:00:00."


def test_a_machine_on_utc_says_utc_for_both(zone: pytest.MonkeyPatch) -> None:
    live_in(zone, "UTC0")
    assert clock(NOON) == "12:00:00 UTC"
    assert own_times("It leaves at 12:30:00 UTC.", NOON) == "It leaves at 12:30:00 UTC."


def test_midnight_between_now_and_then_changes_the_day_not_the_zone(
    zone: pytest.MonkeyPatch,
) -> None:
    live_in(zone, "CET-1CEST,M3.5.0,M10.5.0/3")
    # Summer time begins at 01:00 UTC on 31 March 2030.
    before = datetime(2030, 3, 30, 23, 50, tzinfo=UTC)
    assert own_times("at 00:30:00 UTC", before) == "at 01:30:00"
    assert own_times("at 01:30:00 UTC", before) == "at 03:30:00"


@pytest.mark.parametrize("text", ["", "99:99:99 UTC", "2030-01-01T12:00:00+00:00", "12:00 UTC"])
def test_what_is_no_instant_stays(text: str) -> None:
    assert own_times(text, NOON) == text
