"""Wall clock times of a zone, and the instants they are.

Twice a year the clocks are changed: then a time of the wall clock does not exist, or exists twice.
One that does not exist moves forward by the gap, an ambiguous one is the first of the two.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from gpulease.errors import GPULeaseError


def zone_of(name: str) -> ZoneInfo:
    """Return the zone of an IANA name.

    Raises:
        GPULeaseError: ``bad_calendar`` (422): there is no such zone.
    """
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):  # unknown, a path, a folder of zones
        raise GPULeaseError(
            "bad_calendar",
            f"There is no time zone {name!r}.",
            next_step="Name one such as Europe/Berlin or America/New_York.",
            numbers={"zone": name},
            status=422,
        ) from None


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
