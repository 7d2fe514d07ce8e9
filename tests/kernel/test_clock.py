"""Times of day in a notebook: one clock for gpulease's own words and for the service's."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from gpulease.kernel import clock as clocks
from gpulease.kernel.clock import clock, own_times, read_in
from gpulease.texts import instant

NOON = datetime(2030, 7, 1, 12, 0, 0, tzinfo=UTC)
BERLIN = "CET-1CEST,M3.5.0,M10.5.0/3"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    monkeypatch.setattr(clocks, "_READER", type(clocks._READER)())
    yield monkeypatch
    monkeypatch.undo()
    time.tzset()


def live_in(machine: pytest.MonkeyPatch, name: str) -> None:
    machine.setenv("TZ", name)
    time.tzset()


@pytest.mark.parametrize(
    ("zone", "browser", "shown"),
    [
        (BERLIN, None, "14:00:00"),
        ("UTC0", None, "12:00:00 UTC"),
        ("UTC0", ("Europe/Berlin", False), "14:00:00"),
        ("UTC0", ("America/New_York", True), "8:00:00 AM"),
        ("UTC0", ("Asia/Kathmandu", True), "5:45:00 PM"),
        (BERLIN, ("UTC", False), "12:00:00"),
        (BERLIN, ("No/Such_Zone", True), "2:00:00 PM"),
        (BERLIN, ("../etc/passwd", False), "14:00:00"),
        (BERLIN, ("", False), "14:00:00"),
    ],
)
def test_gpuleases_own_words_and_the_services_show_the_readers_clock(
    machine: pytest.MonkeyPatch, zone: str, browser: tuple[str, bool] | None, shown: str
) -> None:
    live_in(machine, zone)
    if browser is not None:
        read_in(browser[0], twelve_hours=browser[1])
    assert clock(NOON) == clock(NOON.isoformat()) == shown
    assert own_times(f"It leaves at {instant(NOON)}.") == f"It leaves at {shown}."
    assert clock(NOON, seconds=False) == shown.replace(":00:00", ":00").replace(":45:00", ":45")


@pytest.mark.parametrize("text", ["", "2030-02-30T00:00:00Z", "at 12:00:00 UTC", "12:00"])
def test_what_is_no_instant_stays(text: str) -> None:
    assert own_times(text) == text
