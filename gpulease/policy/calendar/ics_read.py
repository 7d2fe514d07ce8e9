"""Reads reservations from an iCalendar (RFC 5545), as Google, Outlook and Apple write them.

Events of whole days, cancelled ones and those that are over are left out.  What cannot be reserved
is refused with its event's name.  How long it takes is up to who wrote the calendar: the service
reads it in a process that can be ended (``service.reservations.expansion``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from dateutil.relativedelta import relativedelta

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.ics import CLASS, CLOSED, GROUP, NAME, SEATS, Zones
from gpulease.policy.calendar.occurrences import (
    MAX_MONTHS,
    Calendar,
    Changed,
    Occurrence,
    expand,
    instant,
    known_zone,
    repetition,
    wall_clock,
    zone_of,
)
from gpulease.sizes import say_day
from gpulease.texts import Text, counted

#: Characters of a calendar that is read, its events, and the reservations that it makes at most.
MAX_TEXT, MAX_READ, MAX_EVENTS = 1_000_000, 2000, 100
#: The events that are left out are named up to this number.
_NAMED: Final = 10
#: Outlook writes days from midnight to midnight, with one of these marks.
_ALL_DAY: Final = ("X-MICROSOFT-CDO-ALLDAYEVENT", "X-MICROSOFT-MSNCALENDAR-ALLDAYEVENT")


@dataclass
class Read:
    """What a calendar holds, as JSON values.

    Attributes:
        reservations: members of reservations.
        days: name and first day of each event of whole days.
        over: events that are over.
        cancelled: events that are cancelled.
    """

    reservations: list[dict[str, Any]] = field(default_factory=list)
    days: list[tuple[str, str]] = field(default_factory=list)
    over: int = 0
    cancelled: int = 0

    @property
    def left_out(self) -> list[str]:
        """What the calendar has besides its reservations, in words."""
        found: list[str] = [
            Text("{name} ({day}): it is of whole days", name=name,
                 day=say_day(datetime.fromisoformat(day)))
            for name, day in self.days[:_NAMED]
        ]  # fmt: skip
        if len(self.days) > _NAMED:
            more = len(self.days) - _NAMED
            found.append(counted("{n} more of whole days", "{n} more of whole days", more))
        if self.over:
            found.append(counted("{n} event that is over", "{n} events that are over", self.over))
        if self.cancelled:
            found.append(counted("{n} that is cancelled", "{n} that are cancelled", self.cancelled))
        return found


def refuse_large(text: str) -> None:
    """Refuse a calendar that takes long to read.

    Raises:
        GPULeaseError: ``bad_calendar`` (422).
    """
    events = text.upper().count("BEGIN:VEVENT")
    if len(text) > MAX_TEXT or events > MAX_READ:
        raise _bad(
            f"The calendar is too long: {len(text)} characters with {events} events; "
            f"{MAX_TEXT} with {MAX_READ} can be read.",
            "Export a shorter time.",
        )


def from_ics(text: str, now: datetime, zone: str = "") -> Read:
    """Return the members of a reservation for each event or series, each with a name of its own.

    Args:
        text: the calendar.
        now: the present; what is over by then is left out.
        zone: the zone of times without one, where the calendar names none either.

    Raises:
        GPULeaseError: ``bad_calendar`` (422): it is no calendar, or an event cannot be reserved.
    """
    refuse_large(text)
    calendar = _calendar(text)
    if zone:
        zone_of(zone)
    try:
        return _read(calendar, now, zone)
    except GPULeaseError:
        raise
    except Exception as error:  # the library takes lines of any form, and raises when they are used
        raise _bad(
            "The calendar cannot be read: a line of it has not the form that it must have."
        ) from error


def _read(calendar: Any, now: datetime, zone: str) -> Read:
    whole = str(calendar.get("X-WR-TIMEZONE", ""))
    reading = _Reading(Zones(calendar, now), now, whole if known_zone(whole) else zone)
    events = _newest(calendar.walk("VEVENT"))
    if not events:
        raise _bad("The calendar holds no event.")
    known = {_uid(event) for event in events if "RECURRENCE-ID" not in event}
    moved: dict[str, list[Any]] = {}
    series = []
    for event in events:
        if "RECURRENCE-ID" in event and _uid(event) in known:
            moved.setdefault(_uid(event), []).append(event)
        else:  # of a series that is not in the calendar: a window by itself
            series.append(event)
    found = reading.found
    for event in series:
        _add_members(reading, event, moved.get(_uid(event), ()))
    if len(found.reservations) > MAX_EVENTS:
        raise _bad(
            f"The calendar holds {len(found.reservations)} events to come; "
            f"{MAX_EVENTS} can be read."
        )
    if not found.reservations:
        raise _bad(f"The calendar holds nothing to reserve: {'; '.join(found.left_out)}.")
    _name_apart(found.reservations)
    return found


def _newest(events: Iterable[Any]) -> list[Any]:
    """Return the events without those that a later version of the same one took the place of."""
    found: dict[tuple[object, ...], list[Any]] = {}
    for number, event in enumerate(events):
        of = getattr(event.get("RECURRENCE-ID"), "dt", None)
        of = of.astimezone(UTC) if isinstance(of, datetime) and of.tzinfo else of
        key = (_uid(event), of) if _uid(event) else (number,)
        found.setdefault(key, []).append(event)
    return [each for versions in found.values() for each in _last(versions)]


def _last(versions: list[Any]) -> list[Any]:
    if len(versions) == 1:
        return versions
    newest = max(map(_version, versions))
    # Two of one version are events that a program gave one name; the very same one is one.
    return list({each.to_ical(): each for each in versions if _version(each) == newest}.values())


def _version(event: Any) -> tuple[int, str]:
    stamp = event.get("LAST-MODIFIED") or event.get("DTSTAMP")
    return int(event.get("SEQUENCE", 0)), stamp.to_ical().decode() if stamp is not None else ""


def _add_members(reading: _Reading, event: Any, moved: Sequence[Any]) -> None:
    try:
        reading.add(event, moved)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        # The library takes much that has not the form which it should have, as it is.
        raise _bad(f"{_name(event)}: it cannot be read.") from error


@dataclass
class _Reading:
    """One calendar that is read.  ``zone`` is that of times without one, ``""`` for none."""

    zones: Zones
    now: datetime
    zone: str
    found: Read = field(default_factory=Read)

    def add(self, event: Any, moved: Sequence[Any]) -> None:
        """Add the members that an event says, or count it where it is nothing to reserve."""
        name = _name(event)
        if _is_cancelled(event):
            self.found.cancelled += 1
            return
        start, end, zone = self._span(event, name)
        if start is None or end is None:
            day = event["DTSTART"].dt
            self.found.days.append((name, date(day.year, day.month, day.day).isoformat()))
            return
        rule = _rule(event, name)
        calendar = Calendar(
            start,
            end,
            zone,
            repetition(rule) if not _ended(event, self.now) else "",
            also=tuple(self._dates(event, "RDATE", start, zone)),
            without=tuple(self._dates(event, "EXDATE", start, zone)),
            changed=tuple(self._changes(moved, start, zone)),
        )
        # What has long been over need not fit into a request.
        old = self.now - relativedelta(months=MAX_MONTHS)
        windows = expand(calendar, made=old, now=self.now).occurrences
        if not any(each.end > self.now for each in windows):
            self.found.over += 1
            return
        calendar = _lasting(event, calendar, windows)
        self.found.reservations.append(
            _members(event, name, calendar, wall_clock(old, zone_of(zone)))
        )

    def _span(self, event: Any, name: str) -> tuple[datetime | None, datetime | None, str]:
        """Return both ends on the wall clock of a zone; no ends where they are days."""
        given = event.get("DTSTART")
        if given is None or isinstance(given, list):
            raise _bad(f"{name}: it says not when it begins (DTSTART).")
        all_day = any(str(event.get(mark, "")).upper() == "TRUE" for mark in _ALL_DAY)
        if all_day or not isinstance(given.dt, datetime):
            return None, None, ""
        zone = self._zone_of(given, name) or self.zone
        if not zone and given.dt.tzinfo is None:
            raise _bad(
                f"{name}: its times are of no time zone.",
                "Say of which (--zone, or `zone` beside the calendar).",
            )
        if given.dt.tzinfo is not None and "TZID" not in given.params and "RRULE" in event:
            zone = "UTC"  # a series in UTC moves by the clocks of every other zone
        zone = zone or "UTC"
        start = self._wall(given, zone, name)
        if "DTEND" in event:
            return start, self._wall(event["DTEND"], zone, name), zone
        length = _length(event)
        if length is None:
            raise _bad(f"{name}: it says not when it ends (DTEND or DURATION).")
        repeats = "RRULE" in event or "RDATE" in event
        return start, start + length if repeats else _later(start, length, zone), zone

    def _zone_of(self, given: Any, name: str) -> str:
        tzid = str(given.params.get("TZID", "")).strip('"').replace("\\,", ",")
        found = self.zones.iana(tzid) if tzid else ""
        if found is None:
            raise _bad(
                f"{name}: its time zone {tzid!r} is not known.",
                "Give the event a zone such as Europe/Berlin in your calendar program.",
            )
        return found

    def _wall(self, given: Any, zone: str, name: str) -> datetime:
        """Return a time as the clocks of ``zone`` show it."""
        at, there = given.dt, zone_of(zone)
        if not isinstance(at, datetime):
            raise _bad(f"{name}: it begins at a time and ends with a day.")
        other = self._zone_of(given, name)
        if other in ("", zone):
            return wall_clock(at, there) if not other and at.tzinfo else at.replace(tzinfo=None)
        return wall_clock(instant(at.replace(tzinfo=None), zone_of(other)), there)

    def _dates(self, event: Any, key: str, start: datetime, zone: str) -> Iterator[datetime]:
        given = event.get(key, [])
        for each in given if isinstance(given, list) else [given]:
            for entry in each.dts if CLOSED not in each.params else ():
                if not isinstance(entry.dt, date):
                    raise _bad(f"{_name(event)}: periods cannot be read in {key}.")
                if not isinstance(entry.dt, datetime):
                    yield datetime.combine(entry.dt, start.time())
                    continue
                entry.params.setdefault("TZID", each.params.get("TZID", ""))
                yield self._wall(entry, zone, _name(event))

    def _changes(self, moved: Sequence[Any], first: datetime, zone: str) -> list[Changed]:
        """Return the changes of a series, in order, of each window the newest."""
        found = [self._change(each, first, zone) for each in sorted(moved, key=_version)]
        newest = {each.original: each for each in found}
        return [newest[at] for at in sorted(newest)]

    def _change(self, event: Any, first: datetime, zone: str) -> Changed:
        """Return the change of one window of a series."""
        name, given = _name(event), event["RECURRENCE-ID"]
        if "RANGE" in given.params:
            raise _bad(
                f"{name}: it changes all later sessions at once (THISANDFUTURE).",
                "End the series there, and make another one.",
            )
        if isinstance(given.dt, datetime):
            at = self._wall(given, zone, name)
        else:
            at = datetime.combine(given.dt, first.time())
        if _is_cancelled(event):
            return Changed(at)
        start, end, other = self._span(event, name)
        if start is None or end is None:
            raise _bad(f"{name}: a session of the series was made a whole day, {at:%d %b %Y}.")
        here, there = zone_of(zone), zone_of(other)
        return Changed(at, *(wall_clock(instant(each, there), here) for each in (start, end)))


def _members(event: Any, name: str, calendar: Calendar, old: datetime) -> dict[str, Any]:
    """Return the members of a reservation, without the exceptions from before ``old``."""
    found: dict[str, Any] = {
        "name": name,
        "start": _iso(calendar.start),
        "end": _iso(calendar.end),
        "zone": calendar.zone,
        "repeat": calendar.repeat,
        "also": [_iso(at) for at in calendar.also if at >= old],
        "without": [_iso(at) for at in calendar.without if at >= old],
        "changed": [
            {"at": _iso(each.original), "start": _iso(each.start), "end": _iso(each.end)}
            if each.start is not None and each.end is not None
            else {"at": _iso(each.original), "cancelled": True}
            for each in calendar.changed
            if max(each.original, each.end or each.original) >= old
        ],
    }
    if NAME in event:
        found |= {"title": name, "name": str(event[NAME])}
    for given, member in ((GROUP, "group"), (CLASS, "gpu_class")):
        if given in event:
            found[member] = str(event[given])
    if str(event.get(SEATS, "")).isdecimal():
        found["seats"] = int(str(event[SEATS]))
    return found


def _lasting(event: Any, calendar: Calendar, windows: Iterable[Occurrence]) -> Calendar:
    """Return a calendar whose windows last as long as the event says, whatever the clocks do."""
    length = _length(event) if "DTEND" not in event else None
    if length is None or not (calendar.repeat or calendar.also):
        return calendar
    known = {each.original for each in calendar.changed}
    other = [
        Changed(each.original, each.original, end)
        for each in windows
        if each.original not in known
        and (end := _later(each.original, length, calendar.zone)) != each.original + length
    ]
    changed = sorted([*calendar.changed, *other], key=lambda each: each.original)
    return replace(calendar, changed=tuple(changed))


def _length(event: Any) -> timedelta | None:
    length = getattr(event.get("DURATION"), "dt", None)
    return length if isinstance(length, timedelta) else None


def _later(start: datetime, length: timedelta, zone: str) -> datetime:
    """Return when something ends: hours are hours, days are to the same time of the clock."""
    if not length.seconds:
        return start + length
    there = zone_of(zone)
    return wall_clock(instant(start, there) + length, there)


def _calendar(text: str) -> Any:
    import icalendar

    try:
        return icalendar.Calendar.from_ical(text.removeprefix("\ufeff"))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise _bad("This is no iCalendar.") from error


def _uid(event: Any) -> str:
    return str(event.get("UID", ""))


def _is_cancelled(event: Any) -> bool:
    return str(event.get("STATUS", "")).upper() == "CANCELLED"


def _name(event: Any) -> str:
    said = event.get("SUMMARY") or event.get("UID") or "Lab"
    said = said[0] if isinstance(said, list) else said
    return re.sub(r"[\s\x00-\x1f]+", " ", str(said)).strip()[:100].strip() or "Lab"


def _name_apart(found: Iterable[dict[str, Any]]) -> None:
    """Give those of one name numbers: they would be changes of one another."""
    times: dict[tuple[str, str], int] = {}
    for each in sorted(found, key=lambda each: str(each["start"])):
        key = (str(each.get("group", "")), str(each["name"]))
        times[key] = times.get(key, 0) + 1
        if times[key] > 1:
            each.setdefault("title", each["name"])
            each["name"] = f"{each['name'][:90]} {times[key]}"


def _rule(event: Any, name: str) -> str:
    given = event.get("RRULE")
    if isinstance(given, list):
        raise _bad(f"{name}: it has several repetitions.", "Make an event for each.")
    return given.to_ical().decode() if given is not None else ""


def _ended(event: Any, now: datetime) -> bool:
    """Whether a repetition, of any kind, ended before now."""
    until = event.get("RRULE", {}).get("UNTIL", [None])[0]
    return (
        until is not None
        and date(until.year, until.month, until.day) < (now - timedelta(days=2)).date()
    )


def _iso(at: datetime) -> str:
    return at.replace(tzinfo=None).isoformat(timespec="seconds")


def _bad(sentence: str, next_step: str = "") -> GPULeaseError:
    return GPULeaseError(
        "bad_calendar",
        sentence,
        next_step=next_step or "Export the calendar again, or write the reservations as YAML.",
    )
