"""Which IANA zone an event of a calendar program means.

Google and Apple write IANA names, Outlook those of Windows or of its menus, others a path that
ends in an IANA name.  What is no name is known by its offsets, which icalendar works out from the
VTIMEZONE.  One that names every second takes it for ever: read a person's calendar in a process
that can be ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from typing import Any, Final
from zoneinfo import ZoneInfo

from gpulease.policy.calendar.local_time import known_zone

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
