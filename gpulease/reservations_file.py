"""The file that ``gpulease reservations apply`` reads: reviewed, and applied as a whole.

What stands at the top holds for every reservation that does not say otherwise::

    group: cs101
    gpu_class: t4
    zone: Europe/Berlin
    reservations:
      lab: {seats: 20, start: 2026-10-05 14:00, end: 16:00, repeat: FREQ=WEEKLY;COUNT=12}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.ics_read import Read
from gpulease.policy.document.nodes import Finding, Reader, compose

_COMMON: Final = ("group", "gpu_class", "zone")
#: The members of one reservation; its name is the key.
KEYS: Final = (
    *_COMMON, "seats", "start", "end", "title", "repeat", "also", "without", "seats_per_person",
    "named", "managers", "idle", "exam", "extra_time", "lead", "grace", "contact",
)  # fmt: skip
_LISTS: Final = ("also", "without", "named", "managers", "contact")
_DURATIONS: Final = ("idle", "lead", "grace")
_NEEDED: Final = (*_COMMON, "seats", "start", "end")


def read(text: str) -> tuple[list[dict[str, Any]], list[Finding]]:
    """Return the bodies of every reservation, with every member, and the findings."""
    findings: list[Finding] = []
    root = compose(text, findings, "Begin with the key reservations.")
    if root is None:
        return [], findings
    top = Reader(root, findings, "the file", (*_COMMON, "reservations"))
    shared: dict[str, Any] = {key: top.text(key, "") for key in _COMMON if key in top.names}
    bodies = [_body(name, each, shared) for name, each in top.entries("reservations", KEYS)]
    return bodies, sorted(findings, key=lambda found: (found.line, found.column))


def completed(read: Read, common: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the bodies of what was read of an iCalendar.

    A body has what the calendar says and no more: that a lab is an exam, say, it cannot say.
    ``common``: members that hold where the calendar names none.

    Raises:
        GPULeaseError: ``bad_calendar`` where something is missing.
    """
    return [_complete({**common, **each}) for each in read.reservations]


def _body(name: str, reader: Reader, shared: dict[str, Any]) -> dict[str, Any]:
    readers: dict[str, Callable[[str], Any]] = {
        **dict.fromkeys((*_COMMON, "start", "end", "title", "repeat"), _texts_of(reader)),
        **dict.fromkeys(("seats", "seats_per_person"), lambda key: reader.whole(key, 1, least=1)),
        **dict.fromkeys(_LISTS, lambda key: list(reader.texts(key))),
        **dict.fromkeys(_DURATIONS, lambda key: reader.duration(key, 0.0, least=0)),
        "exam": lambda key: reader.flag(key, False),
        "extra_time": lambda key: dict(reader.pairs(key)),
    }
    found: dict[str, Any] = {"name": name, **shared}
    found |= {key: readers[key](key) for key in KEYS if key in reader.names}
    for key in _NEEDED:
        if key not in found:
            reader.wrong(key, f"{name} lacks the key {key!r}.", f"Write `{key}: ...`.")
    return _whole(found)


def _texts_of(reader: Reader) -> Callable[[str], str]:
    return lambda key: reader.text(key, "")


def _complete(body: dict[str, Any]) -> dict[str, Any]:
    missing = [key for key in _NEEDED if key not in body]
    if missing:
        raise GPULeaseError(
            "bad_calendar",
            f"{body['name']}: {', '.join(missing)} is missing.",
            next_step="Give --group, --class and --seats for a calendar that does not say them.",
            status=422,
        )
    return body


def _whole(body: dict[str, Any]) -> dict[str, Any]:
    """Return a body with every member, so that what a file does not say is as if never said."""
    return {
        "title": "", "repeat": "", "also": [], "without": [], "seats_per_person": 1, "named": [],
        "managers": [], "idle": None, "exam": False, "extra_time": {}, "lead": None,
        "grace": None, "contact": [], **body,
    }  # fmt: skip
