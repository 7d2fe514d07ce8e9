"""The file that ``gpulease reservations apply`` reads: reviewed, and applied as a whole.

What stands at the top holds for every reservation that does not say otherwise::

    group: cs101
    gpu_class: t4
    zone: Europe/Berlin
    reservations:
      lab: {seats: 20, start: 2026-10-05 14:00, end: 16:00, repeat: FREQ=WEEKLY;COUNT=12}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, Final

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.ics_read import Read
from gpulease.policy.document.source import Finding, Model, Problem, compose
from gpulease.policy.forms import Flag, Hidden, Line, Lines, One, Section, Span, named, pairs

_COMMON: Final = ("group", "gpu_class", "zone")
_NEEDED: Final = (*_COMMON, "seats", "start", "end")


@dataclass(frozen=True)
class Entry(Section):
    """One reservation of the file; its name is the key."""

    name: Hidden
    group: Line | None = None
    gpu_class: Line | None = None
    zone: Line | None = None
    seats: One | None = None
    start: Line | None = None
    end: Line | None = None
    title: Line = ""
    repeat: Line = ""
    also: Lines = ()
    without: Lines = ()
    seats_per_person: One = 1
    named: Lines = ()
    managers: Lines = ()
    idle: Span | None = None
    exam: Flag = False
    extra_time: Annotated[tuple[tuple[str, str], ...], pairs(Line)] = ()
    lead: Span | None = None
    grace: Span | None = None
    contact: Lines = ()


@dataclass(frozen=True)
class File(Section):
    """The file: its reservations, and what holds for each that does not say otherwise."""

    reservations: Annotated[tuple[Entry, ...], named(Entry, True)]
    group: Line | None = None
    gpu_class: Line | None = None
    zone: Line | None = None


#: The members of one reservation; its name is the key.
KEYS: Final = tuple(each.name for each in fields(Entry) if each.name != "name")


@cache
def _model() -> Model[File]:
    return Model(File, "the file")


def read(text: str) -> tuple[list[dict[str, Any]], list[Finding]]:
    """Return the bodies of every reservation, with every member, and the findings."""
    source = compose(text, "Begin with the key reservations.")
    if isinstance(source, Finding):
        return [], [source]
    file = _model().read(source, source.tree)
    bodies = []
    for entry in file.reservations if file is not None else ():
        shared = {key: getattr(entry, key) or getattr(file, key) for key in _COMMON}
        bodies.append(_body(entry) | shared)
        source.problems += [
            Problem(
                ("reservations", entry.name),
                f"{entry.name} lacks the key {key!r}.",
                f"Write `{key}: ...`.",
            )
            for key in _NEEDED
            if bodies[-1][key] is None
        ]
    found = [source.finding(each) for each in source.problems]
    return bodies, sorted(found, key=lambda each: (each.line, each.column))


def _body(entry: Entry) -> dict[str, Any]:
    """Return a body with every member, so that what the file leaves out is as if never said."""
    found = {each.name: getattr(entry, each.name) for each in fields(Entry)}
    found = {key: list(each) if isinstance(each, tuple) else each for key, each in found.items()}
    return found | {"extra_time": dict(entry.extra_time)}


def completed(read: Read, common: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the bodies of what was read of an iCalendar.

    A body has what the calendar says and no more: that a lab is an exam, say, it cannot say.
    ``common``: members that hold where the calendar names none.

    Raises:
        GPULeaseError: ``bad_calendar`` where something is missing.
    """
    return [_complete({**common, **each}) for each in read.reservations]


def _complete(body: dict[str, Any]) -> dict[str, Any]:
    missing = [key for key in _NEEDED if key not in body]
    if missing:
        raise GPULeaseError(
            "bad_calendar",
            f"{body['name']}: {', '.join(missing)} is missing.",
            next_step="Give --group, --class and --seats for a calendar that does not say them.",
        )
    return body
