"""Repetition: the dates of a rule, compared row by row with our own reading of the standard."""

from datetime import date, datetime, timedelta
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.occurrences import (
    MAX_OCCURRENCES,
    Calendar,
    Changed,
    Closure,
    dates,
    expand,
    repetition,
    zone_of,
)
from tests.helpers import draws

UTC = zone_of("UTC")
BERLIN = "Europe/Berlin"
MONDAY = datetime(2026, 3, 2, 14)
DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")


def by_hand(start, rule):
    """Return the dates within 18 months by going through all days: no library."""
    parts = dict(part.split("=") for part in rule.split(";"))
    interval, last = int(parts.get("INTERVAL", 1)), date(start.year + 1, start.month + 6, start.day)
    names = {day[-2:]: day for day in parts.get("BYDAY", "").split(",") if day}
    months = [int(m) for m in parts.get("BYMONTH", "").split(",") if m]
    month_days = [int(d) for d in parts.get("BYMONTHDAY", "").split(",") if d]
    found, day = [], start.date()
    while day <= last:
        if (
            _in_phase(start.date(), day, parts["FREQ"], interval)
            and (not months or day.month in months)
            and _on_day(start.date(), day, parts["FREQ"], names, month_days)
        ):
            found.append(datetime.combine(day, start.time()))
        day += timedelta(days=1)
    if "UNTIL" in parts:
        until = datetime.strptime(parts["UNTIL"][:8], "%Y%m%d").date()
        found = [at for at in found if at.date() <= until]
    return found[: min(int(parts.get("COUNT", 10**6)), MAX_OCCURRENCES)]


def _in_phase(first, day, freq, interval):
    if freq == "DAILY":
        return (day - first).days % interval == 0
    if freq == "WEEKLY":
        monday, began = day - timedelta(days=day.weekday()), first - timedelta(days=first.weekday())
        return (monday - began).days // 7 % interval == 0
    return (12 * (day.year - first.year) + day.month - first.month) % interval == 0


def _on_day(first, day, freq, names, month_days):
    length = (date(day.year + day.month // 12, day.month % 12 + 1, 1) - timedelta(days=1)).day
    if month_days and not {day.day, day.day - length - 1} & set(month_days):
        return False
    if names:
        name = names.get(DAYS[day.weekday()])
        place = (name or "")[:-2]
        if name is None or not place:
            return name is not None
        return int(place) in ((day.day - 1) // 7 + 1, -((length - day.day) // 7 + 1))
    if freq == "WEEKLY":
        return day.weekday() == first.weekday()
    return freq == "DAILY" or bool(month_days) or day.day == first.day


FREQUENCIES = ["FREQ=DAILY", "FREQ=WEEKLY", "FREQ=MONTHLY"]
INTERVALS = ["", ";INTERVAL=2", ";INTERVAL=3"]
ENDS = ["", ";COUNT=1", ";COUNT=12", ";UNTIL=20260630", ";UNTIL=20260427T140000"]
CHOICES = ["", ";BYDAY=MO", ";BYDAY=MO,WE,FR", ";BYMONTH=3,4,10", ";BYDAY=MO;BYMONTH=3,5"]
TABLE = [
    f"{freq}{interval}{choice}{end}"
    for freq, interval, choice, end in product(FREQUENCIES, INTERVALS, CHOICES, ENDS)
] + [
    "FREQ=MONTHLY;BYDAY=1MO",
    "FREQ=MONTHLY;BYDAY=+1MO;COUNT=5",
    "FREQ=MONTHLY;BYDAY=1MO;INTERVAL=2",
    "FREQ=MONTHLY;BYMONTHDAY=2",
    "FREQ=MONTHLY;BYMONTHDAY=2,16;COUNT=9",
    "FREQ=MONTHLY;BYMONTHDAY=2,-1",
    "FREQ=MONTHLY;BYMONTHDAY=2,31",
]


def test_the_dates_of_a_rule():
    for rule in TABLE:
        expected = by_hand(MONDAY, rule)
        found, _ = dates(MONDAY, repetition(rule), UTC)
        assert found == expected


NONE = [
        "FREQ=SECONDLY", "FREQ=MINUTELY", "FREQ=HOURLY", "FREQ=YEARLY", "WEEKLY", "FREQ=", "=",
        "FREQ=WEEKLY;COUNT=0", "FREQ=WEEKLY;INTERVAL=0", "FREQ=WEEKLY;INTERVAL=-1",
        "FREQ=WEEKLY;COUNT=2;UNTIL=20260401", "FREQ=WEEKLY;FREQ=DAILY", "FREQ=WEEKLY;BYHOUR=3",
        "FREQ=WEEKLY;BYEASTER=0", "FREQ=WEEKLY;BYWEEKNO=20", "FREQ=WEEKLY;BYDAY=XX",
        "FREQ=MONTHLY;BYDAY=6MO", "FREQ=WEEKLY;UNTIL=tomorrow", "FREQ=WEEKLY;UNTIL=20269999",
        "FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30", "FREQ=WEEKLY\nDTSTART:20260101", "INTERVAL=2",
        "FREQ=WEEKLY;COUNT=99999", "FREQ=MONTHLY;BYMONTHDAY=0",
        "FREQ=WEEKLY;BYDAY=1MO", "FREQ=WEEKLY;BYSETPOS=1",
    ]  # fmt: skip


def test_a_rule_that_no_timetable_has_is_refused():
    for rule in NONE:
        with pytest.raises(GPULeaseError) as caught:
            dates(MONDAY, repetition(rule), UTC)
        assert caught.value.reason == "bad_calendar"
        assert "FREQ=WEEKLY" in caught.value.next_step


def test_a_rule_is_cut_to_18_months_before_it_is_expanded():
    found, cut = dates(MONDAY, "FREQ=WEEKLY", UTC)
    assert cut
    assert found[-1] <= datetime(2027, 9, 2, 14)
    assert len(found) == 79
    found, cut = dates(MONDAY, "FREQ=DAILY", UTC)
    assert (len(found), cut) == (MAX_OCCURRENCES, True)
    assert dates(MONDAY, "FREQ=MONTHLY;BYDAY=1MO;UNTIL=21001231", UTC)[1]
    assert dates(MONDAY, "FREQ=MONTHLY;COUNT=30", UTC)[1]
    assert not dates(MONDAY, "FREQ=MONTHLY;COUNT=10", UTC)[1]


def test_a_last_moment_in_utc_is_read_on_the_wall_clock():
    # 12:00 UTC is 14:00 in Berlin in summer: that date still belongs.
    rule = "FREQ=WEEKLY;UNTIL=20260413T120000Z"
    found, _ = dates(MONDAY, rule, zone_of(BERLIN))
    assert found[-1] == datetime(2026, 4, 13, 14)
    found, _ = dates(MONDAY, rule.replace("T12", "T11"), zone_of(BERLIN))
    assert found[-1] == datetime(2026, 4, 6, 14)


def test_the_first_date_must_be_one_of_the_rule():
    with pytest.raises(GPULeaseError, match="Mon 02 Mar 2026") as caught:
        dates(MONDAY, "FREQ=WEEKLY;BYDAY=TU", UTC)
    assert "Tue 03 Mar 2026" in caught.value.next_step


def lab(**changed):
    base = {
        "start": MONDAY,
        "end": MONDAY.replace(hour=16),
        "zone": BERLIN,
        "repeat": "FREQ=WEEKLY;COUNT=5",
    }
    return Calendar(**{**base, **changed})


def starts(calendar, *closures):
    return [f"{each.start:%m-%d %H}" for each in expand(calendar, closures).occurrences]


def test_a_lab_stays_at_two_when_the_clocks_change():
    assert starts(lab()) == ["03-02 13", "03-09 13", "03-16 13", "03-23 13", "03-30 12"]


def test_exceptions_additions_and_changes():
    at = MONDAY + timedelta(days=7)
    assert starts(lab(without=(at,))) == ["03-02 13", "03-16 13", "03-23 13", "03-30 12"]
    extra = datetime(2026, 3, 4, 9)
    assert starts(lab(repeat="", also=(extra,))) == ["03-02 13", "03-04 08"]
    moved = Changed(at, at.replace(hour=10), at.replace(hour=11))
    found = expand(lab(repeat="FREQ=WEEKLY;COUNT=2", changed=(moved,))).occurrences
    assert [(f"{o.start:%H:%M}", f"{o.end:%H:%M}", o.original) for o in found] == [
        ("13:00", "15:00", MONDAY),
        ("09:00", "10:00", at),
    ]
    assert starts(lab(repeat="FREQ=WEEKLY;COUNT=2", changed=(Changed(at),))) == ["03-02 13"]


def test_an_exception_that_meets_nothing_is_said():
    found = expand(lab(without=(datetime(2026, 3, 3, 14),)))
    assert found.missed == (datetime(2026, 3, 3, 14),)


def test_closures_skip_windows_and_say_so():
    closed = Closure(date(2026, 3, 9), date(2026, 3, 16), "Spring break")
    found = expand(lab(), [closed])
    assert [f"{o.start:%m-%d}" for o in found.occurrences] == ["03-02", "03-23", "03-30"]
    assert found.skipped == (
        (datetime(2026, 3, 9, 14), "Spring break"),
        (datetime(2026, 3, 16, 14), "Spring break"),
    )


@pytest.mark.parametrize(
    ("end", "closed"),
    [("2026-03-08T23:59", True), ("2026-03-09T00:00", True), ("2026-03-08T00:00", False)],
)
def test_a_window_until_midnight_is_no_part_of_the_next_day(end, closed):
    start = datetime.fromisoformat(end) - timedelta(hours=2)
    calendar = Calendar(start, datetime.fromisoformat(end), BERLIN)
    found = expand(calendar, [Closure(date(2026, 3, 8), date(2026, 3, 8))])
    assert bool(found.skipped) == closed


@pytest.mark.parametrize(
    "changed",
    [
        {"end": MONDAY},
        {"end": MONDAY - timedelta(hours=1)},
        {"end": MONDAY + timedelta(days=8)},  # overlaps the next one
        {"zone": "Nowhere/City"},
    ],
)
def test_a_calendar_that_makes_no_sense_is_refused(changed):
    with pytest.raises(GPULeaseError) as caught:
        expand(lab(**changed))
    assert caught.value.reason == "bad_calendar"
    assert caught.value.next_step


@settings(max_examples=draws(30))
@given(
    st.sampled_from(TABLE),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]),
    st.integers(0, 23),
    st.integers(15, 600),
)
def test_windows_are_in_order_apart_and_on_their_wall_clock(rule, zone, hour, minutes):
    start = MONDAY.replace(hour=hour)
    calendar = Calendar(start, start + timedelta(minutes=minutes), zone, repetition(rule))
    found = expand(calendar).occurrences
    assert 1 <= len(found) <= MAX_OCCURRENCES
    for one, other in pairwise(found):
        assert one.start < one.end <= other.start
    there = zone_of(zone)
    for each in found:
        shown = each.start.astimezone(there).replace(tzinfo=None)
        assert shown - each.original in (timedelta(0), timedelta(hours=1), timedelta(minutes=30))
