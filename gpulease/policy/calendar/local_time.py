"""Wall clock times of a zone, and the instants they are.

Twice a year the clocks are changed: then a time of the wall clock does not exist, or exists twice.
One that does not exist moves forward by the gap, an ambiguous one is the first of the two.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from gpulease.errors import GPULeaseError

#: Files beside the zones: this machine's own, and clocks that count leap seconds.
_NO_NAMES: Final = frozenset({"localtime", "posixrules", "Factory"})
_NO_FOLDERS: Final = ("right/", "posix/")


def zone_of(name: str) -> ZoneInfo:
    """Return the zone of an IANA name.

    Raises:
        GPULeaseError: ``bad_calendar`` (422): there is no such zone.
    """
    found = known_zone(name)
    if found is not None:
        return found
    meant = _meant(name)
    raise GPULeaseError(
        "bad_calendar",
        f"There is no time zone {name!r}.",
        next_step=f"Did you mean {meant}?"
        if meant
        else "Name one such as Europe/Berlin or America/New_York.",
        numbers={"zone": name},
        status=422,
    )


def known_zone(name: str) -> ZoneInfo | None:
    """Return the zone of an IANA name, ``None`` where there is none."""
    if name not in _NO_NAMES and not name.startswith(_NO_FOLDERS):
        with suppress(LookupError, ValueError, OSError):  # unknown, a path, a folder of zones
            return ZoneInfo(name)
    return None


def _meant(name: str) -> str:
    """Return the zone that a slip of the pen was, ``""`` where none is near."""
    # Not Etc/GMT+1, which is an hour west of Greenwich.
    known = (z for z in sorted(available_timezones() - _NO_NAMES) if not z.startswith("Etc/"))
    zones = {zone.lower(): zone for zone in known}
    cities = {zone.rpartition("/")[2]: zone for zone in zones if "/" in zone}
    typed = name.strip().lower().replace(" ", "_")
    near = get_close_matches(typed, [*zones, *cities], n=1, cutoff=0.8)
    return zones[cities.get(near[0], near[0])] if near else ""


def instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the instant (UTC) of a time on the wall clock (naive).

    Raises:
        GPULeaseError: ``bad_calendar`` (422): the instant is beyond what can be written.
    """
    # fold=0 reads a time in the gap with the offset from before it, so it comes out moved forward
    # by the gap, and an ambiguous time as the first of the two (PEP 495).
    try:
        return wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    except OverflowError:
        raise GPULeaseError(
            "bad_calendar", f"The date {wall.date()} cannot be used.", status=422
        ) from None


def span(start: datetime, end: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """Return the instants of a window whose both ends are wall clock.

    A window that the gap would turn around (from 02:30, which is 03:30 then, to 03:15) keeps its
    length instead.
    """
    begins, ends = instant(start, zone), instant(end, zone)
    return (begins, ends) if ends > begins else (begins, begins + (end - start))


def wall_clock(at: datetime, zone: ZoneInfo) -> datetime:
    """Return what the wall clock shows at an instant, without its zone."""
    return at.astimezone(zone).replace(tzinfo=None, fold=0)


def wall_text(at: datetime) -> str:
    """Return a time of the wall clock as it was given: to the minute, or to its second."""
    return at.isoformat(timespec="seconds" if at.second else "minutes")


def moved(start: datetime, zone: ZoneInfo) -> timedelta:
    """Return by how much the zone's clocks move a time that does not exist; zero for others."""
    return wall_clock(instant(start, zone), zone) - start
