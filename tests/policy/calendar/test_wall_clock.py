"""Wall clock and instants, by a table: each row is a zone, a time on its clocks and the instant.

Sources: the IANA zone database's rules for 2026 (summer time in the EU from the last Sunday of
March to the last of October at 01:00 UTC; in the US from the second Sunday of March to the first of
November at 02:00; Lord Howe moves by half an hour).
"""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.occurrences import instant, span, wall_clock, zone_of

TABLE = """
Europe/Berlin        2026-01-15 14:00  2026-01-15 13:00  winter
Europe/Berlin        2026-07-15 14:00  2026-07-15 12:00  summer
Europe/Berlin        2026-03-29 01:59  2026-03-29 00:59  before the gap
Europe/Berlin        2026-03-29 02:00  2026-03-29 01:00  in the gap: moves to 03:00
Europe/Berlin        2026-03-29 02:30  2026-03-29 01:30  in the gap: moves to 03:30
Europe/Berlin        2026-03-29 02:59  2026-03-29 01:59  in the gap: moves to 03:59
Europe/Berlin        2026-03-29 03:00  2026-03-29 01:00  after the gap
Europe/Berlin        2026-03-29 14:00  2026-03-29 12:00  later that day
Europe/Berlin        2026-03-28 14:00  2026-03-28 13:00  the day before
Europe/Berlin        2026-10-25 01:59  2026-10-24 23:59  before the hour that comes twice
Europe/Berlin        2026-10-25 02:00  2026-10-25 00:00  ambiguous: the first
Europe/Berlin        2026-10-25 02:30  2026-10-25 00:30  ambiguous: the first
Europe/Berlin        2026-10-25 02:59  2026-10-25 00:59  ambiguous: the first
Europe/Berlin        2026-10-25 03:00  2026-10-25 02:00  after it
Europe/Berlin        2026-10-25 14:00  2026-10-25 13:00  later that day
Europe/Berlin        2026-12-31 23:30  2026-12-31 22:30  over the year
Europe/London        2026-03-29 00:59  2026-03-29 00:59  before the gap
Europe/London        2026-03-29 01:00  2026-03-29 01:00  in the gap: moves to 02:00
Europe/London        2026-03-29 01:30  2026-03-29 01:30  in the gap: moves to 02:30
Europe/London        2026-03-29 02:00  2026-03-29 01:00  after the gap
Europe/London        2026-10-25 01:30  2026-10-25 00:30  ambiguous: the first
Europe/London        2026-10-25 02:00  2026-10-25 02:00  after it
Europe/Lisbon        2026-03-29 01:30  2026-03-29 01:30  in the gap
Europe/Lisbon        2026-10-25 01:30  2026-10-25 00:30  ambiguous
Europe/Athens        2026-03-29 03:30  2026-03-29 01:30  in the gap: moves to 04:30
Europe/Athens        2026-10-25 03:30  2026-10-25 00:30  ambiguous
Europe/Istanbul      2026-03-29 02:30  2026-03-28 23:30  no summer time since 2016
Europe/Moscow        2026-07-01 12:00  2026-07-01 09:00  none
America/New_York     2026-01-15 14:00  2026-01-15 19:00  winter
America/New_York     2026-03-08 01:59  2026-03-08 06:59  before the gap
America/New_York     2026-03-08 02:00  2026-03-08 07:00  in the gap: moves to 03:00
America/New_York     2026-03-08 02:30  2026-03-08 07:30  in the gap: moves to 03:30
America/New_York     2026-03-08 03:00  2026-03-08 07:00  after the gap
America/New_York     2026-07-15 14:00  2026-07-15 18:00  summer
America/New_York     2026-11-01 00:59  2026-11-01 04:59  before
America/New_York     2026-11-01 01:00  2026-11-01 05:00  ambiguous: the first
America/New_York     2026-11-01 01:30  2026-11-01 05:30  ambiguous: the first
America/New_York     2026-11-01 02:00  2026-11-01 07:00  after it
America/Chicago      2026-03-08 02:30  2026-03-08 08:30  in the gap
America/Chicago      2026-11-01 01:30  2026-11-01 06:30  ambiguous
America/Denver       2026-03-08 02:30  2026-03-08 09:30  in the gap
America/Denver       2026-11-01 01:30  2026-11-01 07:30  ambiguous
America/Phoenix      2026-03-08 02:30  2026-03-08 09:30  none
America/Los_Angeles  2026-03-08 02:30  2026-03-08 10:30  in the gap
America/Los_Angeles  2026-11-01 01:30  2026-11-01 08:30  ambiguous
America/St_Johns     2026-03-08 02:30  2026-03-08 06:00  in the gap, half hours
America/St_Johns     2026-11-01 01:30  2026-11-01 04:00  ambiguous, half hours
America/Sao_Paulo    2026-10-18 00:30  2026-10-18 03:30  none since 2019
America/Santiago     2026-09-06 00:30  2026-09-06 04:30  in the gap at midnight
America/Santiago     2026-04-04 23:30  2026-04-05 02:30  ambiguous before midnight
Australia/Sydney     2026-10-04 01:59  2026-10-03 15:59  before the gap
Australia/Sydney     2026-10-04 02:30  2026-10-03 16:30  in the gap
Australia/Sydney     2026-10-04 03:00  2026-10-03 16:00  after the gap
Australia/Sydney     2026-04-05 02:30  2026-04-04 15:30  ambiguous
Australia/Sydney     2026-04-05 03:00  2026-04-04 17:00  after it
Australia/Brisbane   2026-10-04 02:30  2026-10-03 16:30  none
Australia/Adelaide   2026-10-04 02:30  2026-10-03 17:00  in the gap, half hours
Australia/Adelaide   2026-04-05 02:30  2026-04-04 16:00  ambiguous, half hours
Australia/Lord_Howe  2026-10-04 02:00  2026-10-03 15:30  in a gap of half an hour
Australia/Lord_Howe  2026-10-04 02:15  2026-10-03 15:45  in a gap of half an hour
Australia/Lord_Howe  2026-10-04 02:30  2026-10-03 15:30  after it
Australia/Lord_Howe  2026-04-05 01:45  2026-04-04 14:45  ambiguous half an hour
Australia/Lord_Howe  2026-04-05 02:00  2026-04-04 15:30  after it
Pacific/Auckland     2026-09-27 02:30  2026-09-26 14:30  in the gap
Pacific/Auckland     2026-04-05 02:30  2026-04-04 13:30  ambiguous
Pacific/Chatham      2026-09-27 02:50  2026-09-26 14:05  in the gap, three quarters
Pacific/Kiritimati   2026-01-01 00:30  2025-12-31 10:30  fourteen hours ahead
Pacific/Niue         2026-01-01 00:30  2026-01-01 11:30  eleven hours behind
Asia/Kolkata         2026-03-29 02:30  2026-03-28 21:00  half an hour
Asia/Kathmandu       2026-03-29 02:30  2026-03-28 20:45  three quarters
Asia/Tokyo           2026-03-29 02:30  2026-03-28 17:30  none
Asia/Shanghai        2026-03-29 02:30  2026-03-28 18:30  none
Asia/Jerusalem       2026-03-27 02:30  2026-03-27 00:30  in the gap, on a Friday
Asia/Jerusalem       2026-10-25 01:30  2026-10-24 22:30  ambiguous
Africa/Cairo         2026-04-24 00:30  2026-04-23 22:30  in the gap at midnight
Africa/Johannesburg  2026-03-29 02:30  2026-03-29 00:30  none
Atlantic/Azores      2026-03-29 00:30  2026-03-29 01:30  in the gap at midnight
UTC                  2026-03-29 02:30  2026-03-29 02:30  none
Etc/GMT+5            2026-03-29 02:30  2026-03-29 07:30  west, whatever its name
"""
ROWS = [line.split(None, 5) for line in TABLE.strip().splitlines()]
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[1]} {row[2]}")


@each_row
def test_a_time_of_the_wall_clock_is_this_instant(row):
    zone, day, clock, utc_day, utc_clock, _ = row
    at = instant(datetime.fromisoformat(f"{day}T{clock}"), zone_of(zone))
    assert at == datetime.fromisoformat(f"{utc_day}T{utc_clock}+00:00")


@each_row
def test_the_wall_clock_shows_what_was_asked_for_unless_that_time_does_not_exist(row):
    zone, day, clock, _, _, about = row
    asked = datetime.fromisoformat(f"{day}T{clock}")
    shown = wall_clock(instant(asked, zone_of(zone)), zone_of(zone))
    assert (shown > asked) == about.startswith("in ")
    assert (shown == asked) != about.startswith("in ")


@pytest.mark.parametrize(
    ("start", "end", "seconds"),
    [
        ("2026-03-29T01:00", "2026-03-29T04:00", 2 * 3600),  # over the gap: an hour is missing
        ("2026-10-25T01:00", "2026-10-25T04:00", 4 * 3600),  # over the hour that comes twice
        ("2026-03-29T02:00", "2026-03-29T02:30", 1800),  # moved whole by the gap
        ("2026-03-29T02:30", "2026-03-29T03:15", 45 * 60),  # would end before it begins
        ("2026-03-29T02:15", "2026-03-29T02:45", 30 * 60),
        ("2026-10-25T02:15", "2026-10-25T02:45", 30 * 60),
        ("2026-03-28T14:00", "2026-03-29T14:00", 23 * 3600),
        ("2026-10-24T14:00", "2026-10-25T14:00", 25 * 3600),
        ("2026-06-01T14:00", "2026-06-01T16:00", 2 * 3600),
    ],
)
def test_both_ends_of_a_window_are_wall_clock(start, end, seconds):
    zone = zone_of("Europe/Berlin")
    begins, ends = span(datetime.fromisoformat(start), datetime.fromisoformat(end), zone)
    assert (ends - begins).total_seconds() == seconds


ZONES = sorted({row[0] for row in ROWS})
moments = st.datetimes(datetime(2000, 1, 1), datetime(2037, 1, 1))


@given(st.sampled_from(ZONES), moments, st.timedeltas(timedelta(minutes=1), timedelta(days=8)))
def test_every_window_has_a_length_and_lies_in_utc(name, start, length):
    begins, ends = span(start, start + length, zone_of(name))
    assert begins < ends
    assert begins.tzinfo is UTC


@given(st.sampled_from(ZONES), moments)
def test_a_time_moves_forward_by_the_gap_or_stays(name, wall):
    zone = zone_of(name)
    shown = wall_clock(instant(wall, zone), zone)
    assert shown >= wall
    # What was moved is a time that exists: it stays where it is.
    assert wall_clock(instant(shown, zone), zone) == shown


@pytest.mark.parametrize(
    "name", ["", "Mars/Olympus", "../../etc/passwd", "Europe", "/etc", "x" * 999]
)
def test_what_is_no_zone_is_refused_with_one_that_is(name):
    with pytest.raises(GPULeaseError) as caught:
        zone_of(name)
    assert caught.value.reason == "bad_calendar"
    assert "Europe/Berlin" in caught.value.next_step
