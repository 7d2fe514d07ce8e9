"""Windows in time as people mean them: wall clock, zone, repetition, and every exception made.

A window is kept as local wall time with an IANA zone, never as UTC: a lab at 14:00 stays at 14:00
when the clocks change.  Pure; instants come out as UTC.  Twice a year the clocks are changed: then
a time of the wall clock does not exist, or exists twice.  One that does not exist moves forward by
the gap, an ambiguous one is the first of the two.

A window repeats by an RFC 5545 rule, of the kinds that a timetable has.  dateutil expands the
rules.  It looks for the next date without a bound of its own
(``FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30`` finds none before the year 9999), so a rule that a person
wrote is expanded in a process that can be ended: ``service.reservations.expansion``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from difflib import get_close_matches
from itertools import chain, pairwise, takewhile
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, NamedTuple
from zoneinfo import ZoneInfo

from gpulease.errors import GPULeaseError
from gpulease.policy.forms import Day, Line, Section, zones
from gpulease.texts import Said

if TYPE_CHECKING:
    from dateutil.rrule import rrule

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
    known = (z for z in sorted(zones() - _NO_NAMES) if not z.startswith("Etc/"))
    names = {zone.lower(): zone for zone in known}
    cities = {zone.rpartition("/")[2]: zone for zone in names if "/" in zone}
    typed = name.strip().lower().replace(" ", "_")
    near = get_close_matches(typed, [*names, *cities], n=1, cutoff=0.8)
    return names[cities.get(near[0], near[0])] if near else ""


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
        raise GPULeaseError("bad_calendar", f"The date {wall.date()} cannot be used.") from None


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


#: A repetition is cut to so many months from the present, or from a later start ...
MAX_MONTHS: Final = 18
#: ... and to so many dates that are to come.
MAX_OCCURRENCES: Final = 400
_FREQUENCIES = ("DAILY", "WEEKLY", "MONTHLY")
_DAY = r"[+-]?[1-5]?(?:MO|TU|WE|TH|FR|SA|SU)"
_PARTS: Final = {
    "FREQ": "|".join(_FREQUENCIES),
    "INTERVAL": r"[1-9]\d{0,2}",
    "COUNT": r"[1-9]\d{0,3}",
    "UNTIL": r"\d{8}(?:T\d{6}Z?)?",
    "BYDAY": rf"{_DAY}(?:,{_DAY}){{0,20}}",
    "BYMONTHDAY": r"-?[1-9]\d?(?:,-?[1-9]\d?){0,30}",
    "BYMONTH": r"[1-9]\d?(?:,[1-9]\d?){0,11}",
    "BYSETPOS": r"-?[1-9]\d?(?:,-?[1-9]\d?){0,30}",
    "WKST": "MO|TU|WE|TH|FR|SA|SU",
}


def repetition(text: str) -> str:
    """Return a rule as it is kept: upper case, ``FREQ`` first, ``""`` for none.

    Raises:
        GPULeaseError: ``bad_calendar`` (422) with the part that cannot be used.
    """
    plain = text.strip().upper().removeprefix("RRULE:").strip(";")
    if not plain:
        return ""
    parts: dict[str, str] = {}
    for part in plain.split(";"):
        name, _, value = (word.strip() for word in part.partition("="))
        pattern = _PARTS.get(name)
        if pattern is None or name in parts or not re.fullmatch(pattern, value):
            raise _bad_rule(part.strip())
        parts[name] = value
    if "FREQ" not in parts:
        raise _bad_rule(plain)
    if "COUNT" in parts and "UNTIL" in parts:
        raise _bad_rule("COUNT and UNTIL together")
    if re.search(r"\d", parts.get("BYDAY", "")) and parts["FREQ"] != "MONTHLY":
        raise _bad_rule(f"BYDAY={parts['BYDAY']}")  # the first Monday of what?
    if "BYSETPOS" in parts and not {"BYDAY", "BYMONTHDAY", "BYMONTH"} & parts.keys():
        raise _bad_rule(f"BYSETPOS={parts['BYSETPOS']}")
    return ";".join(f"{name}={parts[name]}" for name in _PARTS if name in parts)


def dates(
    start: datetime,
    rule: str,
    zone: ZoneInfo,
    *,
    since: datetime = datetime.min,
    now: datetime = datetime.min,
) -> tuple[list[datetime], bool]:
    """Return the wall clock times that a kept rule names from ``since`` on, and whether it was cut.

    It reaches ``MAX_MONTHS`` from ``now``, or from ``start`` where that is later.  May look for
    years where a rule names no date: see the module.

    Raises:
        GPULeaseError: ``bad_calendar`` (422): the rule cannot be read or names no date.
    """
    if not rule:
        return [start], False
    from dateutil.relativedelta import relativedelta

    limit = max(start, now) + relativedelta(months=MAX_MONTHS)
    read, until = _read(rule, start), _until(rule, zone)
    last = limit if until is None else min(until, limit)
    within = takewhile(lambda at: at <= last, read)
    _refuse_other_start(start, next(within, None), rule)
    every, ahead = [], 0
    for at in chain([start], within):
        ahead += at >= now
        if ahead > MAX_OCCURRENCES:
            break
        every.append(at)
    cut = ahead > MAX_OCCURRENCES or (until is not None and until > limit)
    cut = cut or (until is None and _counts_beyond(rule, len(every)))
    return [at for at in every if at >= since], cut


def _refuse_other_start(start: datetime, first: datetime | None, rule: str) -> None:
    if first is None:
        raise _bad_rule(rule)
    if first != start:
        raise GPULeaseError(
            "bad_calendar",
            f"The first date, {start:%a %d %b %Y}, is none that the repetition names.",
            next_step=f"Begin on {first:%a %d %b %Y}, or change the repetition.",
            numbers={"first": first.isoformat(timespec="minutes")},
        )


def _counts_beyond(rule: str, found: int) -> bool:
    match = re.search(r"COUNT=(\d+)", rule)
    return match is None or int(match[1]) > found


def _read(rule: str, start: datetime) -> rrule:
    from dateutil.rrule import rrule, rrulestr  # node agents, which expand nothing, have none

    plain = ";".join(part for part in rule.split(";") if not part.startswith("UNTIL="))
    try:
        found = rrulestr(plain, dtstart=start)
    except (ValueError, TypeError):
        raise _bad_rule(rule) from None
    assert isinstance(found, rrule), "one rule is no set of rules"
    return found


def _until(rule: str, zone: ZoneInfo) -> datetime | None:
    """Return the last moment on the wall clock; a date means the whole day."""
    match = re.search(r"UNTIL=(\w+)", rule)
    if match is None:
        return None
    text = match[1]
    try:
        if "T" not in text:
            return datetime.combine(datetime.strptime(text, "%Y%m%d").date(), time.max)
        read = datetime.strptime(text.removesuffix("Z"), "%Y%m%dT%H%M%S")
    except ValueError:
        raise _bad_rule(f"UNTIL={text}") from None
    return wall_clock(read.replace(tzinfo=UTC), zone) if text.endswith("Z") else read


def _bad_rule(part: str) -> GPULeaseError:
    return GPULeaseError(
        "bad_calendar",
        f"The repetition {part!r} cannot be used here.",
        next_step="Write one such as FREQ=WEEKLY;BYDAY=MO,WE;COUNT=12: daily, weekly or monthly, "
        "with INTERVAL, COUNT or UNTIL, BYDAY, BYMONTHDAY, BYMONTH or BYSETPOS.",
        numbers={"part": part[:100]},
    )


#: Before everything that is reserved.
_EVER: Final = datetime(1900, 1, 1, tzinfo=UTC)


class Changed(NamedTuple):
    """One occurrence that is not as the rule has it (RFC 5545's RECURRENCE-ID).

    ``original`` is the wall clock time at which the rule begins it; without ``start`` and ``end``
    it is cancelled.
    """

    original: datetime
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True)
class Calendar:
    """When a window is, and how it repeats; all times are wall clock times of ``zone``.

    ``also`` and ``without`` are RFC 5545's RDATE and EXDATE.  ``repeat`` is a kept rule.
    """

    start: datetime
    end: datetime
    zone: str
    repeat: str = ""
    also: tuple[datetime, ...] = ()
    without: tuple[datetime, ...] = ()
    changed: tuple[Changed, ...] = ()


@dataclass(frozen=True)
class Closure(Section):
    """Days on which the institution is closed, the last one included."""

    ALIASES: ClassVar = {"first": "from", "last": "to"}

    first: Annotated[Day, Said("The first day.")]
    last: Annotated[Day, Said("The last day.")]
    title: Annotated[Line, Said("What people read; its name if empty.")] = ""


class Occurrence(NamedTuple):
    """One window: its wall clock time by the rule, and the instants (UTC) of its two ends."""

    original: datetime
    start: datetime
    end: datetime


@dataclass(frozen=True)
class Expanded:
    """The occurrences in order, those that a closure skips, and dates at which nothing is
    planned that could be left out or changed (``missed``, wall clock).
    """

    occurrences: tuple[Occurrence, ...]
    skipped: tuple[tuple[datetime, str], ...] = ()
    cut: bool = False
    missed: tuple[datetime, ...] = ()


def expand(
    calendar: Calendar,
    closures: Sequence[Closure] = (),
    *,
    made: datetime = _EVER,
    now: datetime = _EVER,
) -> Expanded:
    """Return every occurrence of a calendar.

    Args:
        calendar: what is expanded.
        closures: what they meet is left out.
        made: when it was reserved; what was over by then is left out.
        now: a repetition reaches so many months from then (``repetition``).

    Raises:
        GPULeaseError: ``bad_calendar`` (422).
    """
    zone = zone_of(calendar.zone)
    if calendar.end <= calendar.start:
        raise GPULeaseError(
            "bad_calendar",
            f"The session begins at {calendar.start:%d %b %Y %H:%M} and ends at "
            f"{calendar.end:%d %b %Y %H:%M}: that is not later.",
            next_step="For a session over midnight, write the end with its date.",
        )
    length = calendar.end - calendar.start
    changed = {each.original: each for each in calendar.changed}
    since = wall_clock(made, zone) - length
    since = min([since, *(each.original for each in calendar.changed if _ends(each, zone) > made)])
    found, cut = dates(
        calendar.start, calendar.repeat, zone, since=since, now=wall_clock(now, zone)
    )
    originals = {*found, *calendar.also}
    named = (*calendar.without, *changed)
    missed = [at for at in named if at not in originals and at >= since]
    skipped: list[tuple[datetime, str]] = []
    occurrences: set[Occurrence] = set()
    for original in sorted(originals.difference(calendar.without)):
        other = changed.get(original, Changed(original, original, original + length))
        if other.start is None or other.end is None:
            continue
        one = Occurrence(original, *span(other.start, other.end, zone))
        if one.end <= made:
            continue
        closed = closure_of(other.start, other.end, closures)
        if closed is not None:
            skipped.append((other.start, closed.title or "closed"))
            continue
        occurrences.add(one)
    ordered = sorted(occurrences, key=lambda each: (each.start, each.original))
    _refuse_overlap(ordered)
    return Expanded(tuple(ordered), tuple(skipped), cut, tuple(sorted(missed)))


def _ends(changed: Changed, zone: ZoneInfo) -> datetime:
    if changed.start is None or changed.end is None:
        return _EVER
    return span(changed.start, changed.end, zone)[1]


def closure_of(start: datetime, end: datetime, closures: Sequence[Closure]) -> Closure | None:
    """Return the closure that meets a window (wall clock), ``None`` where all of it is open."""
    first, last = start.date(), end.date()
    if end.time() == datetime.min.time():  # until midnight is no part of the next day
        last = max(first, date.fromordinal(last.toordinal() - 1))
    return next((each for each in closures if each.first <= last and first <= each.last), None)


def _refuse_overlap(ordered: Sequence[Occurrence]) -> None:
    for one, other in pairwise(ordered):
        if other.start < one.end:
            raise GPULeaseError(
                "bad_calendar",
                f"Two sessions of this series overlap: the one of {one.original:%d %b %Y %H:%M} "
                f"lasts until after the one of {other.original:%d %b %Y %H:%M} begins.",
                next_step="Make the session shorter or the repetition less frequent.",
            )
