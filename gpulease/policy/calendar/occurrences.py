"""From a calendar to its occurrences, with every exception that its owner made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import Annotated, ClassVar, Final
from zoneinfo import ZoneInfo

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.local_time import span, wall_clock, zone_of
from gpulease.policy.calendar.repetition import dates
from gpulease.policy.forms import Day, Line, Section
from gpulease.texts import Said

#: Before everything that is reserved.
_EVER: Final = datetime(1900, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Changed:
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


@dataclass(frozen=True)
class Occurrence:
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
            f"The window begins at {calendar.start:%d %b %Y %H:%M} and ends at "
            f"{calendar.end:%d %b %Y %H:%M}: that is not later.",
            next_step="For a window over midnight write the end with its date.",
            status=422,
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
                f"Two windows of this series overlap: the one of {one.original:%d %b %Y %H:%M} "
                f"lasts until after the one of {other.original:%d %b %Y %H:%M} begins.",
                next_step="Make the window shorter or the repetition less frequent.",
                status=422,
            )
