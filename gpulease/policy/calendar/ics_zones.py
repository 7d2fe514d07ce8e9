"""Which IANA zone an event of a calendar program means.

Google and Apple write IANA names, Outlook those of Windows or of its menus, others a path that
ends in an IANA name.  What is no name is known by its offsets.  The rules of a VTIMEZONE are read,
never run: one that names every second would not come to an end.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, Final
from zoneinfo import ZoneInfo

from gpulease.policy.calendar.local_time import known_zone

_MONTHS: Final = range(1, 13)


def iana_zone(name: str, calendar: Any, at: datetime) -> str | None:
    """Return the IANA name of a TZID, ``None`` where none is known for it.

    Args:
        name: the TZID, without quotes.
        calendar: the calendar with its VTIMEZONEs.
        at: about when it is used.
    """
    described = next(
        (each for each in calendar.walk("VTIMEZONE") if each.get("TZID") == name), None
    )
    location = str(described.get("X-LIC-LOCATION", "")) if described is not None else ""
    for each in _names(name, location):
        if known_zone(each) is not None:
            return each
    if described is None:
        return None
    return next((zone for zone in _likely(name, calendar) if _like(described, zone, at)), None)


def _names(name: str, location: str) -> Iterator[str]:
    parts = name.strip("/").split("/")
    yield from (name, location)
    # "/mozilla.org/20050126_1/Europe/Berlin", and three parts as in America/Argentina/Salta.
    yield from ("/".join(parts[-length:]) for length in (3, 2) if len(parts) > length)
    yield _of_windows().get(name, "")


def _of_windows() -> dict[str, str]:
    from icalendar.timezone import windows_to_olson

    return dict(windows_to_olson.WINDOWS_TO_OLSON)


def _likely(name: str, calendar: Any) -> Iterator[str]:
    """Return the zones that a name may stand for: what it says itself before all others."""
    known = sorted({*_of_windows().values(), "UTC"})
    said = [zone for zone in known if zone.rpartition("/")[2].replace("_", " ") in name]
    whole = str(calendar.get("X-WR-TIMEZONE", ""))
    return chain([whole] if known_zone(whole) else [], said, known)


def _like(described: Any, zone: str, at: datetime) -> bool:
    """Whether a zone's clocks stand as those of a VTIMEZONE, in the middle of each month."""
    standard, summer = _latest(described, "STANDARD"), _latest(described, "DAYLIGHT")
    base = standard or summer
    if base is None:
        return False
    for month in _MONTHS:
        there = ZoneInfo(zone).utcoffset(datetime(at.year, month, 15, 12, tzinfo=UTC))
        wanted = base
        if standard is not None and summer is not None:
            begins, ends = _month(summer), _month(standard)
            if month in (begins, ends):
                continue
            in_summer = begins < month < ends if begins < ends else not ends < month < begins
            wanted = summer if in_summer else standard
        if there != _offset(wanted):
            return False
    return True


def _latest(described: Any, kind: str) -> Any:
    """Return the rule of a kind that holds now, ``None`` where it has ended or there is none."""
    found = [each for each in described.walk(kind) if "DTSTART" in each]
    going = [each for each in found if "UNTIL" not in each.get("RRULE", {})]
    return max(going, key=lambda each: each["DTSTART"].dt, default=None)


def _month(rule: Any) -> int:
    months = rule.get("RRULE", {}).get("BYMONTH", [])
    return int(months[0]) if months else int(rule["DTSTART"].dt.month)


def _offset(rule: Any) -> timedelta | None:
    to = rule.get("TZOFFSETTO")
    return getattr(to, "td", None)
