"""Reservations as JSON values and back: what the store keeps and what is handed to a process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import date, datetime
from typing import Any

from gpulease.policy.calendar.occurrences import Calendar, Changed, Closure, Expanded, Occurrence
from gpulease.policy.calendar.reservation import Reservation

_TUPLES = ("named", "managers", "contact")


def calendar_to_json(calendar: Calendar) -> dict[str, Any]:
    """Return a calendar as JSON values."""
    return {
        "start": calendar.start.isoformat(),
        "end": calendar.end.isoformat(),
        "zone": calendar.zone,
        "repeat": calendar.repeat,
        "also": [at.isoformat() for at in calendar.also],
        "without": [at.isoformat() for at in calendar.without],
        "changed": [
            [each.original.isoformat(), _iso(each.start), _iso(each.end)]
            for each in calendar.changed
        ],
    }


def calendar_from_json(record: Mapping[str, Any]) -> Calendar:
    """Return the calendar of what ``calendar_to_json`` gave."""
    return Calendar(
        start=datetime.fromisoformat(record["start"]),
        end=datetime.fromisoformat(record["end"]),
        zone=record["zone"],
        repeat=record["repeat"],
        also=tuple(datetime.fromisoformat(at) for at in record["also"]),
        without=tuple(datetime.fromisoformat(at) for at in record["without"]),
        changed=tuple(
            Changed(datetime.fromisoformat(original), _at(start), _at(end))
            for original, start, end in record["changed"]
        ),
    )


def closures_to_json(closures: tuple[Closure, ...]) -> list[list[str]]:
    """Return closures as JSON values."""
    return [[each.first.isoformat(), each.last.isoformat(), each.title] for each in closures]


def closures_from_json(record: list[list[str]]) -> tuple[Closure, ...]:
    """Return the closures of what ``closures_to_json`` gave."""
    return tuple(
        Closure(date.fromisoformat(first), date.fromisoformat(last), title)
        for first, last, title in record
    )


def expanded_to_json(found: Expanded) -> dict[str, Any]:
    """Return occurrences as JSON values."""
    return {
        "occurrences": _occurrences(found.occurrences),
        "skipped": _closed(found.skipped),
        "cut": found.cut,
        "missed": [at.isoformat() for at in found.missed],
    }


def expanded_from_json(record: Mapping[str, Any]) -> Expanded:
    """Return the occurrences of what ``expanded_to_json`` gave."""
    return Expanded(
        _read_occurrences(record["occurrences"]),
        _read_closed(record["skipped"]),
        record["cut"],
        tuple(map(datetime.fromisoformat, record["missed"])),
    )


def to_json(reservation: Reservation) -> dict[str, Any]:
    """Return a reservation as JSON values."""
    plain = {field.name: getattr(reservation, field.name) for field in fields(reservation)}
    return plain | {
        "calendar": calendar_to_json(reservation.calendar),
        "created": reservation.created.isoformat(),
        "occurrences": _occurrences(reservation.occurrences),
        "closed": _closed(reservation.closed),
        "extra_time": [list(pair) for pair in reservation.extra_time],
        **{name: list(getattr(reservation, name)) for name in _TUPLES},
    }


def from_json(record: Mapping[str, Any]) -> Reservation:
    """Return a reservation; members that this version lacks are left out, new ones get defaults."""
    known = {field.name for field in fields(Reservation)}
    plain = {name: value for name, value in record.items() if name in known}
    return Reservation(
        **plain
        | {
            "calendar": calendar_from_json(record["calendar"]),
            "created": datetime.fromisoformat(record["created"]),
            "occurrences": _read_occurrences(record["occurrences"]),
            "closed": _read_closed(record.get("closed", [])),
            "extra_time": tuple((user, more) for user, more in record["extra_time"]),
            **{name: tuple(record.get(name, ())) for name in _TUPLES},
        }
    )


def _occurrences(found: tuple[Occurrence, ...]) -> list[list[str]]:
    return [[e.original.isoformat(), e.start.isoformat(), e.end.isoformat()] for e in found]


def _read_occurrences(record: list[list[str]]) -> tuple[Occurrence, ...]:
    read = datetime.fromisoformat
    return tuple(Occurrence(read(original), read(a), read(b)) for original, a, b in record)


def _closed(found: tuple[tuple[datetime, str], ...]) -> list[list[str]]:
    return [[at.isoformat(), why] for at, why in found]


def _read_closed(record: list[list[str]]) -> tuple[tuple[datetime, str], ...]:
    return tuple((datetime.fromisoformat(at), why) for at, why in record)


def _iso(at: datetime | None) -> str | None:
    return at.isoformat() if at is not None else None


def _at(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text is not None else None
