"""Reads reservations from an iCalendar (RFC 5545), as Google, Outlook and Apple write them.

Owns what an event means as a reservation, and which events are none: whole days, those that are
cancelled or over.  What cannot be reserved is refused with its event's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Final

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.ics import CLASS, CLOSED, GROUP, NAME, SEATS
from gpulease.policy.calendar.ics_zones import iana_zone
from gpulease.policy.calendar.local_time import instant, known_zone, wall_clock, zone_of
from gpulease.policy.units import say_day
from gpulease.texts import Text, counted

#: Characters of a calendar that is read, and the reservations that it makes at most.
MAX_TEXT, MAX_EVENTS = 1_000_000, 100
#: The events that are left out are named up to this number.
_NAMED: Final = 10
_DAYS: Final = {"DAILY": 1, "WEEKLY": 7, "MONTHLY": 31}


@dataclass(frozen=True)
class Read:
    """What a calendar holds: members of reservations, and in words what it has besides."""

    reservations: list[dict[str, Any]]
    left_out: list[str]


def from_ics(text: str, now: datetime, zone: str = "") -> Read:
    """Return the members of a reservation for each event or series, each with a name of its own.

    Args:
        text: the calendar.
        now: the present; what is over by then is left out.
        zone: the zone of times without one, where the calendar names none either.

    Raises:
        GPULeaseError: ``bad_calendar`` (422): it is no calendar, or an event cannot be reserved.
    """
    calendar = _calendar(text)
    if zone:
        zone_of(zone)
    whole = str(calendar.get("X-WR-TIMEZONE", ""))
    reading = _Reading(calendar, now, whole if known_zone(whole) else zone)
    events = calendar.walk("VEVENT")
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
    found = [each for event in series if (each := _members(reading, event, moved)) is not None]
    if len(found) > MAX_EVENTS:
        raise _bad(f"The calendar holds {len(found)} events to come; {MAX_EVENTS} can be read.")
    left_out = list(reading.left_out())
    if not found:
        raise _bad(f"The calendar holds nothing to reserve: {'; '.join(left_out)}.")
    _name_apart(found)
    return Read(found, left_out)


def _members(reading: _Reading, event: Any, moved: dict[str, list[Any]]) -> dict[str, Any] | None:
    try:
        return reading.members(event, moved)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        # The library takes much that has not the form which it should have, as it is.
        raise _bad(f"{_name(event)}: it cannot be read.") from error


@dataclass
class _Reading:
    """One calendar that is read.  ``zone`` is that of times without one, ``""`` for none."""

    calendar: Any
    now: datetime
    zone: str
    days: list[Text] = field(default_factory=list)
    over: int = 0
    cancelled: int = 0

    def members(self, event: Any, moved: dict[str, list[Any]]) -> dict[str, Any] | None:
        """Return the members that an event says, ``None`` where it is nothing to reserve."""
        name = _name(event)
        if _is_cancelled(event):
            self.cancelled += 1
            return None
        start, end, zone = self._span(event, name)
        if start is None or end is None:
            day = say_day(event["DTSTART"].dt)
            self.days.append(Text("{name} ({day}): it is of whole days", name=name, day=day))
            return None
        rule = _rule(event, name)
        also = [_iso(at) for at in self._dates(event, "RDATE", start, zone)]
        if not also and _over(rule, start, end, wall_clock(self.now, zone_of(zone))):
            self.over += 1
            return None
        found: dict[str, Any] = {
            "name": name,
            "start": _iso(start),
            "end": _iso(end),
            "zone": zone,
            "repeat": rule,
            "also": also,
            "without": [_iso(at) for at in self._dates(event, "EXDATE", start, zone)],
            "changed": sorted(
                (self._change(each, start, zone) for each in moved.get(_uid(event), ())),
                key=lambda each: str(each["at"]),
            ),
        }
        if NAME in event:
            found |= {"title": name, "name": str(event[NAME])}
        for given, member in ((GROUP, "group"), (CLASS, "gpu_class")):
            if given in event:
                found[member] = str(event[given])
        if str(event.get(SEATS, "")).isdecimal():
            found["seats"] = int(str(event[SEATS]))
        return found

    def left_out(self) -> Iterator[str]:
        """Yield in words what the calendar has besides."""
        yield from self.days[:_NAMED]
        if len(self.days) > _NAMED:
            more = len(self.days) - _NAMED
            yield counted("{n} more of whole days", "{n} more of whole days", more)
        if self.over:
            yield counted("{n} event that is over", "{n} events that are over", self.over)
        if self.cancelled:
            yield counted("{n} that is cancelled", "{n} that are cancelled", self.cancelled)

    def _span(self, event: Any, name: str) -> tuple[datetime | None, datetime | None, str]:
        """Return both ends on the wall clock of a zone; no ends where they are days."""
        given = event.get("DTSTART")
        if given is None or isinstance(given, list):
            raise _bad(f"{name}: it says not when it begins (DTSTART).")
        if not isinstance(given.dt, datetime):
            return None, None, ""
        zone = self._zone_of(given, name) or self.zone
        if not zone and given.dt.tzinfo is None:
            raise _bad(
                f"{name}: its times are of no time zone.",
                "Say of which (--zone, or `zone` beside the calendar).",
            )
        if given.dt.tzinfo is not None and "TZID" not in given.params and "RRULE" in event:
            zone = "UTC"  # a series in UTC moves by the clocks of every other zone
        start = self._wall(given, zone or "UTC", name)
        if "DTEND" in event:
            return start, self._wall(event["DTEND"], zone or "UTC", name), zone or "UTC"
        length = getattr(event.get("DURATION"), "dt", None)
        if not isinstance(length, timedelta):
            raise _bad(f"{name}: it says not when it ends (DTEND or DURATION).")
        return start, start + length, zone or "UTC"

    def _zone_of(self, given: Any, name: str) -> str:
        tzid = str(given.params.get("TZID", "")).strip('"').replace("\\,", ",")
        found = iana_zone(tzid, self.calendar, given.dt) if tzid else ""
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

    def _change(self, event: Any, first: datetime, zone: str) -> dict[str, Any]:
        """Return the change of one window of a series."""
        name, given = _name(event), event["RECURRENCE-ID"]
        if "RANGE" in given.params:
            raise _bad(
                f"{name}: it changes all later windows at once (THISANDFUTURE).",
                "End the series there, and make another one.",
            )
        if isinstance(given.dt, datetime):
            at = self._wall(given, zone, name)
        else:
            at = datetime.combine(given.dt, first.time())
        if _is_cancelled(event):
            return {"at": _iso(at), "cancelled": True}
        start, end, other = self._span(event, name)
        if start is None or end is None:
            raise _bad(f"{name}: a window of the series was made a whole day, {at:%d %b %Y}.")
        here, there = zone_of(zone), zone_of(other)
        moved = (wall_clock(instant(each, there), here) for each in (start, end))
        return {"at": _iso(at), **dict(zip(("start", "end"), map(_iso, moved), strict=True))}


def _calendar(text: str) -> Any:
    import icalendar

    if len(text) > MAX_TEXT:
        raise _bad("The calendar is too long.", "Export a shorter time.")
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


def _over(rule: str, start: datetime, end: datetime, now: datetime) -> bool:
    """Whether nothing of an event is to come; where that cannot be seen at once, no."""
    parts = dict(part.partition("=")[::2] for part in rule.upper().split(";") if part)
    last = start
    if "UNTIL" in parts:
        last = datetime.strptime(parts["UNTIL"][:8], "%Y%m%d") + timedelta(days=2)
    elif parts.keys() >= {"COUNT", "FREQ"} and parts["FREQ"] in _DAYS:
        steps = int(parts["COUNT"]) * int(parts.get("INTERVAL", 1))
        if "BYMONTH" in parts or steps > 10_000:
            return False
        # Of the longest months, and as if every second one had no such day.
        last = start + timedelta(days=2 * _DAYS[parts["FREQ"]] * steps)
    elif parts:
        return False
    return last + (end - start) < now


def _iso(at: datetime) -> str:
    return at.replace(tzinfo=None).isoformat(timespec="seconds")


def _bad(sentence: str, next_step: str = "") -> GPULeaseError:
    return GPULeaseError(
        "bad_calendar",
        sentence,
        next_step=next_step or "Export the calendar again, or write the reservations as YAML.",
        status=422,
    )
