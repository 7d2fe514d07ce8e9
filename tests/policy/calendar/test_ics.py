"""Calendars as Google, Outlook and Apple write them: what is read, and what is left out."""

import contextlib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.ics_read import MAX_EVENTS, MAX_READ, from_ics

NOW = datetime(2026, 11, 25, tzinfo=UTC)


def calendar(*events: str, head: str = "") -> str:
    body = "".join(f"BEGIN:VEVENT\n{event.strip()}\nEND:VEVENT\n" for event in events)
    return f"BEGIN:VCALENDAR\nVERSION:2.0\n{head.lstrip()}{body}END:VCALENDAR\n"


BERLIN = """
BEGIN:VTIMEZONE
TZID:{name}
BEGIN:STANDARD
DTSTART:16011028T030000
RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=10
TZOFFSETFROM:+0200
TZOFFSETTO:+0100
END:STANDARD
BEGIN:DAYLIGHT
DTSTART:16010325T020000
RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=3
TZOFFSETFROM:+0100
TZOFFSETTO:+0200
END:DAYLIGHT
END:VTIMEZONE
"""
GOOGLE = """
DTSTART;TZID=Europe/Berlin:20261130T140000
DTEND;TZID=Europe/Berlin:20261130T160000
RRULE:FREQ=WEEKLY;WKST=MO;UNTIL=20270228T225959Z;BYDAY=MO
EXDATE;TZID=Europe/Berlin:20261221T140000
EXDATE:20261228T130000Z
UID:abc123@google.com
STATUS:CONFIRMED
SUMMARY:GPU lab
"""
MOVED = """
DTSTART;TZID=Europe/Berlin:20261208T100000
DTEND;TZID=Europe/Berlin:20261208T120000
UID:abc123@google.com
RECURRENCE-ID;TZID=Europe/Berlin:20261207T140000
SUMMARY:GPU lab
"""
CANCELLED = """
DTSTART;TZID=Europe/Berlin:20261214T140000
DTEND;TZID=Europe/Berlin:20261214T160000
UID:abc123@google.com
RECURRENCE-ID:20261214T130000Z
STATUS:CANCELLED
SUMMARY:GPU lab
"""
OUTLOOK = """
SUMMARY;LANGUAGE=de:KI
DTSTART;TZID="{name}":20261202T100000
DTEND;TZID="{name}":20261202T120000
RRULE:FREQ=WEEKLY;COUNT=6;BYDAY=WE
UID:o1
"""
FLOATING = "UID:f1\nSUMMARY:Late\nDTSTART:20261204T100000\nDURATION:PT1H30M"
HOLIDAY = "UID:h1\nSUMMARY:Christmas\nDTSTART;VALUE=DATE:20261224\nDTEND;VALUE=DATE:20261227"
SINGLE = "UID:{n}\nSUMMARY:Lab\nDTSTART:{day}T130000Z\nDTEND:{day}T150000Z"


def test_a_series_of_google_with_a_moved_a_cancelled_and_left_out_windows():
    (found,) = from_ics(calendar(GOOGLE, MOVED, CANCELLED), NOW).reservations
    assert (found["name"], found["zone"]) == ("GPU lab", "Europe/Berlin")
    assert found["without"] == ["2026-12-21T14:00:00", "2026-12-28T14:00:00"]
    moved = {"start": "2026-12-08T10:00:00", "end": "2026-12-08T12:00:00"}
    assert found["changed"] == [
        {"at": "2026-12-07T14:00:00", **moved},
        {"at": "2026-12-14T14:00:00", "cancelled": True},
    ]


@pytest.mark.parametrize(
    "name",
    [
        "W. Europe Standard Time",
        "(UTC+01:00) Amsterdam, Berlin, Bern, Rome, Stockholm, Vienna",
        "/mozilla.org/20050126_1/Europe/Berlin",
        "Customized Time Zone: Berlin",
    ],
)
def test_zones_of_outlook_and_others_are_known(name):
    text = calendar(OUTLOOK.format(name=name), head=BERLIN.format(name=name))
    (found,) = from_ics(text, NOW).reservations
    assert (found["zone"], found["start"]) == ("Europe/Berlin", "2026-12-02T10:00:00")


def test_a_zone_is_known_by_its_clocks_and_by_nothing_else():
    head = BERLIN.format(name="Ours").replace("+0200", "+0245")  # no such clock on earth
    with pytest.raises(GPULeaseError, match="KI: its time zone 'Ours' is not known"):
        from_ics(calendar(OUTLOOK.format(name="Ours"), head=head), NOW)
    with pytest.raises(GPULeaseError, match="KI: its time zone 'Ours' is not known"):
        from_ics(calendar(OUTLOOK.format(name="Ours")), NOW)


def test_times_without_a_zone_are_of_the_calendars_or_of_the_one_given():
    with pytest.raises(GPULeaseError, match="Late: its times are of no time zone"):
        from_ics(calendar(FLOATING), NOW)
    (found,) = from_ics(calendar(FLOATING), NOW, "Europe/Paris").reservations
    assert (found["zone"], found["end"]) == ("Europe/Paris", "2026-12-04T11:30:00")
    head = "X-WR-TIMEZONE:America/New_York\n"
    (found,) = from_ics(calendar(FLOATING, head=head), NOW, "Europe/Paris").reservations
    assert found["zone"] == "America/New_York"
    # A single event in UTC is shown as the clocks of the calendar have it, at the same instant.
    event = SINGLE.format(n=1, day="20261201")
    (found,) = from_ics(calendar(event, head=head), NOW).reservations
    assert (found["zone"], found["start"]) == ("America/New_York", "2026-12-01T08:00:00")


def test_days_cancelled_events_and_what_is_over_are_left_out_and_said():
    events = [SINGLE.format(n=n, day="20250302") for n in range(MAX_EVENTS + 1)]
    weekly = SINGLE.format(n="w", day="20250302") + "\nRRULE:FREQ=WEEKLY;"
    events += [weekly + "COUNT=10", weekly + "UNTIL=20260101T000000Z"]
    gone = SINGLE.format(n="c", day="20261201") + "\nSTATUS:CANCELLED"
    read = from_ics(calendar(GOOGLE, HOLIDAY, gone, *events), NOW)
    assert [each["name"] for each in read.reservations] == ["GPU lab"]
    assert read.left_out == [
        "Christmas (Thu 24 Dec 2026): it is of whole days",
        f"{MAX_EVENTS + 3} events that are over",
        "1 that is cancelled",
    ]
    with pytest.raises(GPULeaseError, match="nothing to reserve: Christmas"):
        from_ics(calendar(HOLIDAY), NOW)


def test_events_of_one_name_are_reservations_of_their_own():
    events = [SINGLE.format(n=n, day=day) for n, day in enumerate(("20261203", "20261201"))]
    found = from_ics(calendar(*events), NOW).reservations
    assert [(each["name"], each["start"][:10]) for each in found] == [
        ("Lab 2", "2026-12-03"),
        ("Lab", "2026-12-01"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("BEGIN:VCALENDAR", "hello", "no iCalendar"),
        ("DTEND", "X-END", "Lab: it says not when it ends"),
        ("DTSTART", "X-START", "Lab: it says not when it begins"),
        ("UID:1", "RDATE;VALUE=PERIOD:20261202T100000Z/PT1H", "Lab: periods cannot be read"),
        ("UID:1", "RRULE:FREQ=WEEKLY\nRRULE:FREQ=DAILY", "Lab: it has several repetitions"),
        ("VEVENT", "VTODO", "holds no event"),
        ("DTEND:20261201T150000Z", "DTEND;VALUE=DATE:20261202", "Lab: .*ends with a day"),
    ],
)
def test_a_calendar_that_cannot_be_reserved_is_refused_with_the_event(old, new, said):
    text = calendar(SINGLE.format(n=1, day="20261201"))
    assert from_ics(text, NOW).reservations[0]["start"] == "2026-12-01T13:00:00"
    with pytest.raises(GPULeaseError, match=said) as caught:
        from_ics(text.replace(old, new), NOW)
    assert caught.value.reason == "bad_calendar"


def read(*events, now=NOW):
    return from_ics(calendar(*events), now).reservations


@pytest.mark.parametrize(
    ("rule", "ahead"),
    [
        ("FREQ=WEEKLY", True),
        ("FREQ=WEEKLY;COUNT=500", True),
        ("FREQ=WEEKLY;COUNT=90", False),
        ("FREQ=WEEKLY;INTERVAL=2;UNTIL=20270331T000000Z", True),
        ("FREQ=DAILY;BYDAY=MO,TU,WE,TH,FR", True),
        ("FREQ=DAILY;COUNT=400", False),
        ("FREQ=MONTHLY;BYDAY=1MO", True),
        ("FREQ=YEARLY;UNTIL=20251231T000000Z", False),
        ("FREQ=WEEKLY;UNTIL=20251231", False),
    ],
)
def test_a_series_that_began_years_ago_counts_by_what_is_to_come(rule, ahead):
    began = SINGLE.format(n="old", day="20240304") + f"\nRRULE:{rule}"
    lab = SINGLE.format(n="new", day="20261201")
    kept = [each["start"][:10] for each in read(began, lab)]
    assert kept == (["2024-03-04", "2026-12-01"] if ahead else ["2026-12-01"])


def test_exceptions_from_long_ago_are_not_sent():
    began = SINGLE.format(n="old", day="20240304") + "\nRRULE:FREQ=WEEKLY;UNTIL=20270331T000000Z"
    gone = "\nEXDATE:20240311T130000Z,20261123T130000Z,20261207T130000Z"
    (found,) = read(began + gone)
    assert found["without"] == ["2026-11-23T13:00:00", "2026-12-07T13:00:00"]


LATER = SINGLE.format(n=1, day="20261202") + "\nSEQUENCE:2"
EARLIER = SINGLE.format(n=1, day="20261201") + "\nSEQUENCE:1"
STAMPED = [SINGLE.format(n=1, day=f"2026120{n}") + f"\nDTSTAMP:2026110{n}T000000Z" for n in (1, 2)]


@pytest.mark.parametrize("versions", [(EARLIER, LATER), (LATER, EARLIER), STAMPED, [LATER, LATER]])
def test_versions_of_one_event_are_one_event(versions):
    (found,) = read(*versions)
    assert found["start"] == "2026-12-02T13:00:00"


def test_of_versions_of_one_window_the_newest_counts_and_a_cancelled_event_is_cancelled():
    later = MOVED.replace("T100000", "T110000").replace("T120000", "T130000")
    for versions in ((MOVED, later + "SEQUENCE:3"), (later + "SEQUENCE:3", MOVED)):
        (found,) = read(GOOGLE, *versions)
        assert [each["start"] for each in found["changed"]] == ["2026-12-08T11:00:00"]
    with pytest.raises(GPULeaseError, match="1 that is cancelled"):
        read(EARLIER, LATER + "\nSTATUS:CANCELLED")
    # Two events of one version are two: a program gave both the same name.
    assert len(read(EARLIER, EARLIER.replace("1201", "1202"))) == 2


@pytest.mark.parametrize("mark", ["CDO", "MSNCALENDAR"])
def test_a_day_of_outlook_is_a_day(mark):
    day = "UID:d\nSUMMARY:Holiday\nDTSTART:20261201T000000\nDTEND:20261202T000000\n"
    lab = SINGLE.format(n="new", day="20261201")
    found = from_ics(calendar(f"{day}X-MICROSOFT-{mark}-ALLDAYEVENT:TRUE", lab), NOW)
    assert (len(found.reservations), found.left_out) == (
        1,
        ["Holiday (Tue 01 Dec 2026): it is of whole days"],
    )
    short = day.replace("T000000", "T100000").replace(":202612", ";TZID=Europe/Berlin:202612")
    (found,) = read(f"{short}X-MICROSOFT-{mark}-ALLDAYEVENT:FALSE")
    assert found["start"] == "2026-12-01T10:00:00"


@pytest.mark.parametrize(
    ("length", "ends"),
    [("PT8H", "28T07:00"), ("PT26H", "29T01:00"), ("P1D", "28T22:00"), ("PT30M", "27T22:30")],
)
def test_hours_are_hours_when_the_clocks_change(length, ends):
    night = f"UID:n\nDTSTART;TZID=Europe/Berlin:20270327T220000\nDURATION:{length}"
    (found,) = read(night)
    assert found["end"] == f"2027-03-{ends}:00"
    if length != "PT26H":  # such windows would overlap
        series = night.replace("0327", "0325") + "\nRRULE:FREQ=DAILY;COUNT=4"
        (found,) = read(series)
        moved = {each["at"][8:10]: each["end"][8:16] for each in found["changed"]}
        assert moved == ({"27": "28T07:00"} if length == "PT8H" else {})


def test_a_calendar_of_thousands_of_events_is_refused_before_it_is_read():
    events = [SINGLE.format(n=n, day="20261201") for n in range(MAX_READ + 1)]
    with pytest.raises(GPULeaseError, match=f"with {MAX_READ + 1} events") as caught:
        from_ics(calendar(*events).replace("END:VCALENDAR", "no calendar"), NOW)
    assert caught.value.next_step == "Export a shorter time."


_NAMES = (
    "UID", "SEQUENCE", "LAST-MODIFIED", "DTSTAMP", "RECURRENCE-ID", "DTSTART", "DTEND", "DURATION",
    "RRULE", "EXDATE", "STATUS", "SUMMARY", "RECURRENCE-ID;TZID=Asia/Tokyo", "DTSTART;VALUE=DATE",
    "X-MICROSOFT-CDO-ALLDAYEVENT",
)  # fmt: skip
_VALUES = (
    "one", "x", "", "1", "-1", "99999999999999999999", "00010101T000000", "99991231T235959Z",
    "20261130T140000", "20261130", "PT2H", "P-1D", "FREQ=WEEKLY", "FREQ=WEEKLY;COUNT=x", "TRUE",
    "20261130T140000,zzz",
)  # fmt: skip
_LINES = st.tuples(st.sampled_from(_NAMES), st.sampled_from(_VALUES)).map(":".join)


@given(st.lists(st.lists(_LINES, max_size=8), min_size=1, max_size=3))
def test_a_calendar_of_any_lines_is_read_or_refused_in_words(events: list[list[str]]) -> None:
    """Two events of one name, for only those are compared by what they say of their versions."""
    text = calendar(*("\n".join(["UID:same", *lines]) for lines in events))
    with contextlib.suppress(GPULeaseError):
        from_ics(text, NOW, "UTC")
