"""Reservations as an iCalendar (RFC 5545), for people's calendars, and read from one.

What iCalendar has no word for stands in properties of our own: ``X-GPULEASE-GROUP``,
``X-GPULEASE-CLASS`` and ``X-GPULEASE-SEATS``.  A date that a closure left out is an EXDATE with the
parameter ``X-GPULEASE-CLOSED``, which is not read back: closures are the site's.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.local_time import zone_of
from gpulease.policy.calendar.reservation import Reservation

# Imported where a calendar is written or read: it takes 40 ms, and every service would wait.
if TYPE_CHECKING:
    import icalendar

#: Characters of a calendar that is read, and its events.
MAX_TEXT, MAX_EVENTS = 500_000, 100
_GROUP, _CLASS, _SEATS = "X-GPULEASE-GROUP", "X-GPULEASE-CLASS", "X-GPULEASE-SEATS"
_CLOSED = "X-GPULEASE-CLOSED"


def to_ics(reservations: Iterable[Reservation]) -> str:
    """Return a calendar with every window of the reservations that are not cancelled."""
    import icalendar

    calendar = icalendar.Calendar()
    calendar.add("prodid", "-//gpulease//reservations//EN")
    calendar.add("version", "2.0")
    for each in reservations:
        if not each.cancelled:
            for event in _events(each):
                calendar.add_component(event)
    calendar.add_missing_timezones()
    return str(calendar.to_ical().decode("utf-8"))


def _events(reservation: Reservation) -> Iterable[icalendar.Event]:
    """Return the event of the series, and one for each window that is not as the rule has it."""
    import icalendar

    when = reservation.calendar
    zone = zone_of(when.zone)
    if reservation.closed and not reservation.occurrences:
        return
    series = _event(reservation, when.start, when.end)
    if when.repeat:
        series.add("rrule", icalendar.vRecur.from_ical(when.repeat))
    cancelled = [each.original for each in when.changed if each.start is None]
    if when.without or cancelled:
        series.add("exdate", [at.replace(tzinfo=zone) for at in (*when.without, *cancelled)])
    if closed := _closed_dates(reservation):
        series.add("exdate", [at.replace(tzinfo=zone) for at in closed], {_CLOSED: "TRUE"})
    if when.also:
        series.add("rdate", [at.replace(tzinfo=zone) for at in when.also])
    yield series
    gone = {at for at, _ in reservation.closed}
    for each in when.changed:
        if each.start is not None and each.end is not None and each.start not in gone:
            event = _event(reservation, each.start, each.end)
            event.add("recurrence-id", each.original.replace(tzinfo=zone))
            yield event


def _closed_dates(reservation: Reservation) -> list[datetime]:
    """Return the dates of the rule that a closure left out."""
    moved = {each.start: each.original for each in reservation.calendar.changed}
    return (
        [moved.get(at, at) for at, _ in reservation.closed] if reservation.calendar.repeat else []
    )


def _event(reservation: Reservation, start: datetime, end: datetime) -> icalendar.Event:
    import icalendar

    zone = zone_of(reservation.calendar.zone)
    event = icalendar.Event()
    event.add("uid", f"{reservation.id}@gpulease")
    event.add("dtstamp", reservation.created)
    event.add("sequence", reservation.version)
    event.add("dtstart", start.replace(tzinfo=zone))
    event.add("dtend", end.replace(tzinfo=zone))
    event.add("summary", reservation.title or reservation.name)
    seats, group = reservation.seats, reservation.group
    event.add("description", f"{seats} x {reservation.gpu_class} for {group}")
    event.add(_GROUP, group)
    event.add(_CLASS, reservation.gpu_class)
    event.add(_SEATS, str(seats))
    return event


def from_ics(text: str) -> list[dict[str, Any]]:
    """Return the members of a reservation for each event: ``name``, times and what it says of GPUs.

    Raises:
        GPULeaseError: ``bad_calendar`` (422): it is no calendar, or an event cannot be reserved.
    """
    import icalendar

    if len(text) > MAX_TEXT:
        raise _bad("The calendar is too long.")
    try:
        calendar = icalendar.Calendar.from_ical(text)
        events = list(calendar.walk("VEVENT"))
    except (ValueError, KeyError, IndexError) as error:
        raise _bad("This is no iCalendar.") from error
    if not events or len(events) > MAX_EVENTS:
        raise _bad(f"The calendar holds {len(events)} events; 1 to {MAX_EVENTS} can be read.")
    if any("RECURRENCE-ID" in event for event in events):
        raise _bad("Windows that are moved (RECURRENCE-ID) are not read from a calendar.")
    return [_members(event) for event in events]


def _members(event: Any) -> dict[str, Any]:
    start, end, zone = _span(event)
    found: dict[str, Any] = {
        "name": str(event.get("SUMMARY") or event.get("UID") or "")[:100],
        "start": start.isoformat(timespec="seconds"),
        "end": end.isoformat(timespec="seconds"),
        "zone": zone,
        "repeat": event["RRULE"].to_ical().decode() if "RRULE" in event else "",
        "also": _dates(event, "RDATE", start),
        "without": _dates(event, "EXDATE", start),
    }
    for name, member in ((_GROUP, "group"), (_CLASS, "gpu_class")):
        if name in event:
            found[member] = str(event[name])
    if str(event.get(_SEATS, "")).isdecimal():
        found["seats"] = int(str(event[_SEATS]))
    return found


def _span(event: Any) -> tuple[datetime, datetime, str]:
    try:
        start, end = event.decoded("DTSTART"), event.decoded("DTEND")
    except (KeyError, ValueError) as error:
        raise _bad("Every event needs DTSTART and DTEND.") from error
    if not isinstance(start, datetime) or not isinstance(end, datetime):
        raise _bad("An event of whole days cannot be reserved: write times.")
    zone = "UTC" if start.tzinfo is UTC else getattr(start.tzinfo, "key", None)
    if zone is None or end.tzinfo is None:
        raise _bad("Every event needs an IANA time zone (TZID).")
    there = zone_of(zone)
    return start.replace(tzinfo=None), end.astimezone(there).replace(tzinfo=None), zone


def _dates(event: Any, name: str, start: datetime) -> list[str]:
    given = event.get(name, [])
    found = []
    for each in given if isinstance(given, list) else [given]:
        for entry in each.dts if _CLOSED not in each.params else ():
            at = entry.dt
            if not isinstance(at, date):
                raise _bad(f"Periods cannot be read in {name}.")
            clock = at if isinstance(at, datetime) else datetime.combine(at, start.time())
            found.append(clock.replace(tzinfo=None).isoformat(timespec="seconds"))
    return found


def _bad(sentence: str) -> GPULeaseError:
    return GPULeaseError(
        "bad_calendar",
        sentence,
        next_step="Export the calendar again, or write the reservations as YAML.",
        status=422,
    )
