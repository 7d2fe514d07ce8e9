"""Works a person's repetitions and calendars out in a process of its own.

dateutil looks for the next date without a bound, icalendar for the clocks of a zone, and a thread
that they keep busy cannot be stopped.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from datetime import date, datetime
from typing import Any, Final

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.ics_read import Read, from_ics, refuse_large
from gpulease.policy.calendar.occurrences import (
    Calendar,
    Changed,
    Closure,
    Expanded,
    Occurrence,
    expand,
)
from gpulease.service.workers import Workers

_MODULE: Final = "gpulease.service.reservations.expansion"
#: Seconds of processor time for repetitions; ordinary ones take a tenth, most of it Python's start.
LIMIT: Final = 5.0
#: Seconds of processor time for a calendar; one of the most events takes a quarter of that.
CALENDAR_LIMIT: Final = 10.0


@dataclass(frozen=True)
class Wanted:
    """A calendar to be expanded: the arguments of ``expand``."""

    calendar: Calendar
    closures: tuple[Closure, ...]
    made: datetime
    now: datetime


async def expanded(
    workers: Workers, whose: str, every: Sequence[Wanted], *, limit: float = LIMIT
) -> list[Expanded | GPULeaseError]:
    """Return the occurrences of calendars, or why one has none.

    Raises:
        GPULeaseError: ``too_many_requests``.
    """
    if not any(each.calendar.repeat for each in every):
        return list(map(_expanded, every))
    asked = {"expand": _plain(tuple(every))}
    found = [
        GPULeaseError.from_problem(each["problem"])
        if "problem" in each
        else _expanded_of(*each["found"])
        for each in await workers.process(whose, _MODULE, asked, limit=limit)
    ]
    return found + [_too_long() for _ in every[len(found) :]]


async def calendar_read(workers: Workers, whose: str, text: str, now: datetime, zone: str) -> Read:
    """Return what an iCalendar holds.

    Raises:
        GPULeaseError: ``bad_calendar``, ``too_many_requests``.
    """
    refuse_large(text)
    asked = {"read": {"text": text, "now": now.isoformat(), "zone": zone}}
    found = await workers.process(whose, _MODULE, asked, limit=CALENDAR_LIMIT)
    if not found:
        raise GPULeaseError(
            "bad_calendar",
            "The calendar could not be read in time.",
            next_step="Export a shorter time, or write the reservations as YAML.",
        )
    if "problem" in found[0]:
        raise GPULeaseError.from_problem(found[0]["problem"])
    return Read(**found[0])


def _expanded(wanted: Wanted) -> Expanded | GPULeaseError:
    try:
        return expand(wanted.calendar, wanted.closures, made=wanted.made, now=wanted.now)
    except GPULeaseError as error:
        return error


def _too_long() -> GPULeaseError:
    return GPULeaseError(
        "bad_calendar",
        "The repetition names no date that could be found in time.",
        next_step="Write a simpler one, such as FREQ=WEEKLY;COUNT=12.",
    )


# By hand: pydantic takes longer to load than all that this process does else.


def _plain(value: Any) -> Any:
    """Return times as ISO texts, tuples as lists, and dataclasses as lists of their members."""
    if isinstance(value, date):
        return value.isoformat()
    if is_dataclass(value):
        value = tuple(getattr(value, each.name) for each in fields(value))
    return list(map(_plain, value)) if isinstance(value, tuple) else value


def _wanted_of(record: Sequence[Any]) -> Wanted:
    (start, end, zone, repeat, also, without, changed), closures, made, now = record
    exceptions = (Changed(*(each and _at(each) for each in one)) for one in changed)
    closed = (Closure(_day(first), _day(last), title) for first, last, title in closures)
    return Wanted(
        Calendar(_at(start), _at(end), zone, repeat, _all(also), _all(without), tuple(exceptions)),
        tuple(closed),
        _at(made),
        _at(now),
    )


def _expanded_of(occurrences: Any, skipped: Any, cut: bool, missed: Any) -> Expanded:
    found = tuple(Occurrence(*_all(each)) for each in occurrences)
    return Expanded(found, tuple((_at(at), why) for at, why in skipped), cut, _all(missed))


_at = datetime.fromisoformat
_day = date.fromisoformat


def _all(texts: Iterable[str]) -> tuple[datetime, ...]:
    return tuple(map(_at, texts))


def _answers(asked: dict[str, Any]) -> Iterable[dict[str, Any]]:
    for each in map(_wanted_of, asked.get("expand", ())):
        found = _expanded(each)
        yield (_problem(found) if isinstance(found, GPULeaseError) else {"found": _plain(found)})
    if read := asked.get("read"):
        try:
            now = datetime.fromisoformat(read["now"])
            yield asdict(from_ics(read["text"], now, read["zone"]))
        except GPULeaseError as error:
            yield _problem(error)


def _problem(error: GPULeaseError) -> dict[str, Any]:
    return {"problem": error.to_problem()}


def main() -> None:
    """Answer the one question that stands on the standard input, a line for each part of it."""
    asked = json.load(sys.stdin)
    with contextlib.suppress(MemoryError):  # no answer: it is too much
        for each in _answers(asked):
            sys.stdout.write(f"{json.dumps(each)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
