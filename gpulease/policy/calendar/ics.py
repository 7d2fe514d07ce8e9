"""Reservations as an iCalendar (RFC 5545), for people's calendars; ``ics_read`` reads one.

What iCalendar has no word for stands in properties of our own: ``X-GPULEASE-NAME``,
``X-GPULEASE-GROUP``, ``X-GPULEASE-CLASS`` and ``X-GPULEASE-SEATS``.  A date that a closure left out
is an EXDATE with the parameter ``X-GPULEASE-CLOSED``, which is not read back: closures are the
site's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from gpulease.policy.calendar.occurrences import known_zone, zone_of
from gpulease.policy.calendar.reservation import Reservation

# Imported where a calendar is written or read: it takes 40 ms, and every service would wait.
if TYPE_CHECKING:
    import icalendar

NAME, GROUP = "X-GPULEASE-NAME", "X-GPULEASE-GROUP"
CLASS, SEATS = "X-GPULEASE-CLASS", "X-GPULEASE-SEATS"
CLOSED = "X-GPULEASE-CLOSED"


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
        series.add("exdate", [at.replace(tzinfo=zone) for at in closed], {CLOSED: "TRUE"})
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
    event.add(NAME, reservation.name)
    event.add(GROUP, group)
    event.add(CLASS, reservation.gpu_class)
    event.add(SEATS, str(seats))
    return event


#: At so many days of a year the clocks are compared.
_DAYS: Final = range(0, 365, 11)


class Zones:
    """The zones of one calendar, each looked for once.

    Args:
        calendar: with its VTIMEZONEs.
        now: the clocks of this year are compared.
    """

    def __init__(self, calendar: Any, now: datetime) -> None:
        self._described = {str(each.get("TZID", "")): each for each in calendar.walk("VTIMEZONE")}
        self._whole = str(calendar.get("X-WR-TIMEZONE", ""))
        self._year = now.year
        self.iana = cache(self._iana)

    def _iana(self, name: str) -> str | None:
        """Return the IANA name of a TZID (without quotes), ``None`` where none is known for it."""
        described = self._described.get(name)
        location = str(described.get("X-LIC-LOCATION", "")) if described is not None else ""
        for each in _names(name, location):
            if known_zone(each) is not None:
                return each
        if described is None:
            return None
        clocks = described.to_tz(lookup_tzid=False)
        wanted = self._offsets(clocks)
        likely = (zone for zone in self._likely(name) if self._offsets(ZoneInfo(zone)) == wanted)
        return next(likely, None)

    def _offsets(self, zone: tzinfo) -> list[timedelta | None]:
        noon = datetime(self._year, 1, 1, 12, tzinfo=UTC).replace(tzinfo=zone)
        return [(noon + timedelta(days=days)).utcoffset() for days in _DAYS]

    def _likely(self, name: str) -> Iterator[str]:
        """Yield the zones that a name may stand for: what it says itself before all others."""
        known = sorted({*_of_windows().values(), "UTC"})
        if known_zone(self._whole):
            yield self._whole
        yield from (zone for zone in known if zone.rpartition("/")[2].replace("_", " ") in name)
        yield from known


def _names(name: str, location: str) -> Iterator[str]:
    parts = name.strip("/").split("/")
    yield from (name, location)
    # "/mozilla.org/20050126_1/Europe/Berlin", and three parts as in America/Argentina/Salta.
    yield from ("/".join(parts[-length:]) for length in (3, 2) if len(parts) > length)
    yield _of_windows().get(name, "")


def _of_windows() -> dict[str, str]:
    from icalendar.timezone import windows_to_olson

    return dict(windows_to_olson.WINDOWS_TO_OLSON)
