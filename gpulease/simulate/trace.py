"""What is replayed: notebook sessions, each a row of bursts of GPU work with time to think between.

What counts in a burst is how long the GPU was used and how long its person had thought before: a
wait that another policy makes longer moves all that follows.
Columns of the CSV, one row for each burst, in any order:

==================  ===============================================================================
``session``         what bursts of one notebook session share
``start``           when the work was asked for: an ISO time with its offset, or seconds
``busy``            seconds for which the GPU was used
``user``            optional, else the session's name
``project``         optional: what it counts for in the figures
``groups``          optional: the person's hub groups, with ``;`` between, else the project's name
``gpu_class``       optional, else the policy's default class
``count``           optional, else 1
``waited``          optional: seconds between ``start`` and the GPU; else 0
``until``           optional, like ``start``: when the person left; else with the last burst's end
``patience``        optional: seconds after which a wait is given up; else it is never
==================  ===============================================================================
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import inf, isfinite
from typing import Any, Final, TextIO

from pydantic import TypeAdapter

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.reservation import Reservation
from gpulease.policy.model import Device

#: Where a trace of plain seconds begins: a Monday.
MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
NEEDED = ("session", "start", "busy")
COLUMNS = (
    *NEEDED, "user", "project", "groups", "gpu_class", "count", "waited", "until", "patience",
)  # fmt: skip
#: A count above this is a mistake.
_MOST = 4096
#: Seconds that a replay goes on after the last person would have left if nobody ever waited.
_SLACK = 3600.0
#: Lines that cannot be read, of which each is told.
_TOLD = 10


@dataclass(frozen=True)
class Burst:
    """Seconds that its person thought before, and seconds for which the GPU was used then."""

    think: float
    busy: float


@dataclass(frozen=True)
class Session:
    """One notebook session.

    ``start``: seconds from the trace's beginning to the moment before the first burst's thinking.
    ``groups``: the person's hub groups; none is the one of the project's name.
    ``linger``: seconds from the last burst's end until the person leaves and the server ends.
    ``patience``: seconds after which a wait is given up and the session with it.
    """

    id: str
    user: str
    start: float
    bursts: tuple[Burst, ...]
    project: str = ""
    groups: tuple[str, ...] = ()
    gpu_class: str = ""
    count: int = 1
    linger: float = 0.0
    patience: float = inf


@dataclass(frozen=True)
class Trace:
    """Sessions, and the seconds from ``begin`` for which they are looked at."""

    begin: datetime
    length: float
    sessions: tuple[Session, ...]
    reservations: tuple[Reservation, ...] = field(default=())


#: As JSON values, which are handed to a process of its own.
TRACE: Final = TypeAdapter(Trace)
_DEVICES: Final = TypeAdapter(tuple[Device, ...])
#: What a replay needs of a device: all else, as who uses it, changes with each plan.
OF_DEVICE: Final = ("uuid", "pool", "node", "serves", "card", "card_parts")


def devices_to_json(devices: tuple[Device, ...]) -> list[dict[str, Any]]:
    """Return devices as JSON values: what a replay needs of them."""
    found: list[dict[str, Any]]
    found = _DEVICES.dump_python(devices, mode="json", include={"__all__": set(OF_DEVICE)})
    return found


def devices_from_json(record: list[dict[str, Any]]) -> tuple[Device, ...]:
    """Return the devices of what ``devices_to_json`` gave."""
    return _DEVICES.validate_python(record)


@dataclass(frozen=True)
class Seen:
    """One burst as it was recorded; ``start`` and ``until`` in seconds from the beginning."""

    session: str
    start: float
    busy: float
    user: str = ""
    project: str = ""
    groups: tuple[str, ...] = ()
    gpu_class: str = ""
    count: int = 1
    waited: float = 0.0
    until: float | None = None
    patience: float = inf


def sessions_of(bursts: Iterable[Seen]) -> tuple[Session, ...]:
    """Return the sessions that these bursts make, by their beginning."""
    rows: dict[str, list[Seen]] = {}
    for each in bursts:
        rows.setdefault(each.session, []).append(each)
    found = [_session(sorted(each, key=lambda seen: seen.start)) for each in rows.values()]
    return tuple(sorted(found, key=lambda session: (session.start, session.id)))


def _session(rows: list[Seen]) -> Session:
    first = rows[0]
    made, end = [], first.start
    for row in rows:
        made.append(Burst(max(0.0, row.start - end), row.busy))
        end = max(end, row.start + row.waited + row.busy)
    until = max((row.until for row in rows if row.until is not None), default=end)
    return Session(
        id=first.session,
        user=first.user or first.session,
        start=first.start,
        bursts=tuple(made),
        project=first.project,
        groups=first.groups,
        gpu_class=first.gpu_class,
        count=first.count,
        linger=max(0.0, until - end),
        patience=first.patience,
    )


def read_csv(file: TextIO) -> Trace:
    """Return the trace of a CSV file with the columns above.

    Raises:
        GPULeaseError: ``bad_trace`` with the line.
    """
    rows = csv.DictReader(file)
    names = rows.fieldnames or ()
    missing = [name for name in NEEDED if name not in names]
    strange = [name for name in names if name not in COLUMNS]
    if missing or strange:
        wrong = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(map(str, strange))}"
        if any(";" in name or "\t" in name for name in names):
            wrong += "; its columns must be separated by commas"
        raise _bad(1, f"it {wrong}")
    parsed: list[tuple[Seen, datetime | None]] = []
    wrong_ones: list[GPULeaseError] = []
    try:
        for row in rows:
            try:
                parsed.append(_row(row, rows.line_num))
            except GPULeaseError as error:
                wrong_ones.append(error)
    except csv.Error as error:
        raise _bad(rows.line_num, str(error)) from error
    if wrong_ones:
        raise _all(wrong_ones)
    if not parsed:
        raise _bad(1, "it has no rows")
    return _placed(parsed)


def _placed(parsed: list[tuple[Seen, datetime | None]]) -> Trace:
    """Return the trace with its beginning at midnight before the first burst."""
    absolute = [at for _, at in parsed if at is not None]
    if absolute and len(absolute) < len(parsed):
        raise _bad(1, "some rows have times and others seconds")
    earliest = min(seen.start for seen, _ in parsed)
    if not absolute:
        sessions = sessions_of(seen for seen, _ in parsed)
        return Trace(MONDAY, _length(sessions), sessions)
    first = min(absolute)
    begin = first.replace(hour=0, minute=0, second=0, microsecond=0)
    offset = earliest - (first - begin).total_seconds()
    moved = []
    for seen, _ in parsed:
        until = seen.until - offset if seen.until is not None else None
        moved.append(replace(seen, start=seen.start - offset, until=until))
    sessions = sessions_of(moved)
    return Trace(begin, _length(sessions), sessions)


def _length(sessions: Iterable[Session]) -> float:
    """Return the seconds after which nobody works any more, unless somebody waits for long."""
    return _SLACK + max(
        s.start + sum(b.think + b.busy for b in s.bursts) + s.linger for s in sessions
    )  # fmt: skip


def _row(row: Mapping[str, str | None], line: int) -> tuple[Seen, datetime | None]:
    if None in row or None in row.values():
        raise _bad(line, "it has more or fewer fields than the first line has names")
    texts = {name: (value or "").strip() for name, value in row.items()}
    if not texts["session"]:
        raise _bad(line, "session is empty")
    start, at = _instant(texts["start"], "start", line)
    until = texts.get("until", "")
    leaves, left_at = _instant(until, "until", line) if until else (None, at)
    if (left_at is None) != (at is None):
        raise _bad(line, "start and until are not of one kind")
    count = _number(texts.get("count") or "1", "count", line)
    if count != int(count) or not 1 <= count <= _MOST:
        raise _bad(line, f"count must be a whole number of 1 to {_MOST}")
    patience = texts.get("patience", "")
    seen = Seen(
        session=texts["session"],
        start=start,
        busy=_number(texts["busy"], "busy", line),
        user=texts.get("user", ""),
        project=texts.get("project", ""),
        groups=tuple(each for each in texts.get("groups", "").split(";") if each),
        gpu_class=texts.get("gpu_class", ""),
        count=int(count),
        waited=_number(texts.get("waited") or "0", "waited", line),
        until=leaves,
        patience=_number(patience, "patience", line) if patience else inf,
    )
    return seen, at


def _number(text: str, name: str, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not isfinite(value) or value < 0:
        raise _bad(line, f"{name} is {text!r}, no number of seconds")
    return value


def _instant(text: str, name: str, line: int) -> tuple[float, datetime | None]:
    """Return seconds, and the instant where it is written as one."""
    try:
        return _number(text, name, line), None
    except GPULeaseError:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            at = None
        if at is None or at.tzinfo is None:
            raise _bad(line, f"{name} is {text!r}, neither seconds nor an ISO time") from None
        return at.timestamp(), at


def write_csv(trace: Trace, file: TextIO) -> None:
    """Write the trace as ``read_csv`` reads it, as if nobody had waited."""
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for session in trace.sessions:
        at = session.start
        for burst in session.bursts:
            at += burst.think
            row = {
                "session": session.id,
                "start": _text(trace.begin, at),
                "busy": f"{burst.busy:g}",
                "user": session.user,
                "project": session.project,
                "groups": ";".join(session.groups),
                "gpu_class": session.gpu_class,
                "count": session.count,
                "patience": f"{session.patience:g}" if isfinite(session.patience) else "",
            }
            at += burst.busy
            row["until"] = _text(trace.begin, at + session.linger)
            writer.writerow(row)


def _text(begin: datetime, seconds: float) -> str:
    return (begin + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def _all(wrong: list[GPULeaseError]) -> GPULeaseError:
    """Return the first of several refusals, with what the others say."""
    first, *rest = wrong
    said = [first.sentence, *(each.sentence for each in rest[: _TOLD - 1])]
    if len(wrong) > _TOLD:
        said.append(f"{len(wrong) - _TOLD} more lines cannot be read.")
    return GPULeaseError(
        first.reason,
        "\n".join(said),
        next_step=first.next_step,
        numbers=first.numbers,
        status=first.status,
    )


def _bad(line: int, what: str) -> GPULeaseError:
    return GPULeaseError(
        "bad_trace",
        f"Line {line} of the trace cannot be read: {what}.",
        next_step=f"Its first line names the columns: {', '.join(COLUMNS)}.",
        numbers={"line": line},
    )
