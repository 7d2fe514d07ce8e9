"""The statements that read and write runs of whole notebooks, inside a transaction of ``store``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from gpulease.errors import GPULeaseError
from gpulease.policy.model import Lease
from gpulease.runs.model import Run, RunState
from gpulease.store import models
from gpulease.store.models import LeaseRow, RunEventRow, RunRow

_RUN = TypeAdapter(Run)
#: Members of a run that may hold words of a person's own.
_WORDS: dict[str, Any] = {"notebook": "", "note": "", "opens": "", "parameters": {}, "options": {}}


@dataclass(frozen=True)
class RunChange:
    """One run to be written; ``before`` is it as it was read, ``None`` for a new one."""

    before: Run | None
    after: Run
    who: str
    what: str = ""  # "" is not worth a row of what happened
    note: str = ""


@dataclass(frozen=True)
class RunEvent:
    """What happened to a run."""

    run_id: str
    at: datetime
    who: str
    what: str
    note: str


def to_json(run: Run) -> dict[str, Any]:
    """Return the run as JSON values."""
    found: dict[str, Any] = _RUN.dump_python(run, mode="json")
    return found


def from_json(record: Mapping[str, Any]) -> Run:
    """Return the run; members that this version lacks are left out, new ones get defaults."""
    return _RUN.validate_python(record)


def live(session: Session) -> list[Run]:
    """Return the runs that have not ended, or whose server may still be at the hub."""
    query = sa.select(RunRow.record).where(
        sa.or_(RunRow.state != RunState.ENDED.value, RunRow.cleared.is_(False))
    )
    return [from_json(record) for record in session.scalars(query.order_by(RunRow.created))]


def one(session: Session, run_id: str) -> Run | None:
    """Return one run."""
    row = session.get(RunRow, run_id)
    return from_json(row.record) if row is not None else None


def of_array(session: Session, array: str) -> list[Run]:
    """Return the runs of one array in their order, however old."""
    query = sa.select(RunRow.record).where(RunRow.record["array"].as_string() == array)
    found = [from_json(record) for record in session.scalars(query)]
    return sorted(found, key=lambda run: run.index or 0)


def save(session: Session, changes: Iterable[RunChange], now: datetime) -> None:
    """Write runs and what happened to them.

    Raises:
        GPULeaseError: ``run_changed`` (409): one is not as it was read.
    """
    for change in changes:
        after = change.after
        row = session.get(RunRow, after.id)
        if (row.version if row is not None else None) != (
            change.before.version if change.before else None
        ):
            raise GPULeaseError(
                "run_changed",
                "This run was changed meanwhile.",
                next_step="Look at it again.",
                numbers={"run": after.id},
            )
        if row is None:
            row = RunRow(id=after.id, user=after.user, created=after.created)
            session.add(row)
        row.version, row.state, row.cleared = after.version, after.state.value, after.cleared
        row.ended, row.record = after.ended, to_json(after)
        session.flush()
        if change.what:
            session.add(
                RunEventRow(
                    run_id=after.id, at=now, who=change.who, what=change.what, note=change.note
                )
            )


def page(
    session: Session, users: Sequence[str] | None, *, offset: int, limit: int
) -> tuple[list[Run], int]:
    """Return runs from ``offset`` on, newest first, and how many there are; ``None`` is all."""
    whose = sa.true() if users is None else RunRow.user.in_(users)
    query = sa.select(RunRow.record).where(whose).order_by(RunRow.created.desc(), RunRow.id.desc())
    found = session.scalars(query.offset(offset).limit(limit))
    total = session.scalar(sa.select(sa.func.count()).select_from(RunRow).where(whose)) or 0
    return [from_json(record) for record in found], total


def events(session: Session, run_id: str) -> list[RunEvent]:
    """Return what happened to a run, oldest first."""
    query = sa.select(*models.columns_of(RunEventRow, RunEvent)).where(RunEventRow.run_id == run_id)
    return [RunEvent(*row) for row in session.execute(query.order_by(RunEventRow.id))]


def leases(session: Session, user: str, server: str) -> list[Lease]:
    """Return the leases that a run's server has had, oldest first."""
    query = sa.select(LeaseRow.record).where(LeaseRow.user == user, LeaseRow.server == server)
    rows = session.scalars(query.order_by(LeaseRow.created, LeaseRow.id))
    return [models.from_json(record) for record in rows]


def of_user(session: Session, user: str) -> list[dict[str, Any]]:
    """Return a person's runs as JSON values, with what happened to each."""
    rows = session.scalars(
        sa.select(RunRow).where(RunRow.user == user).order_by(RunRow.created, RunRow.id)
    )
    return [
        {
            **row.record,
            "changes": [
                {"at": each.at.isoformat(), "who": each.who, "what": each.what, "note": each.note}
                for each in events(session, row.id)
            ],
        }
        for row in rows
    ]


def unended_of(session: Session, user: str) -> int:
    """Return how many runs of a person have not ended."""
    query = sa.select(sa.func.count()).select_from(RunRow)
    return (
        session.scalar(query.where(RunRow.user == user, RunRow.state != RunState.ENDED.value)) or 0
    )


def rename(session: Session, user: str, name: str) -> None:
    """Put another name in a person's place, and take their own words away."""
    for row in session.scalars(sa.select(RunRow).where(RunRow.user == user)):
        row.user, row.record = name, {**row.record, **_WORDS, "user": name}
        session.execute(sa.update(RunEventRow).where(RunEventRow.run_id == row.id).values(note=""))
    session.execute(sa.update(RunEventRow).where(RunEventRow.who == user).values(who=name))


def drop(session: Session, until: datetime, most: int) -> int:
    """Take runs away that ended before ``until``, oldest first; return how many rows."""
    old = sa.select(RunRow.id).where(RunRow.ended < until, RunRow.cleared.is_(True))
    ids = session.scalars(old.order_by(RunRow.ended).limit(most)).all()
    if not ids:
        return 0
    session.execute(sa.delete(RunEventRow).where(RunEventRow.run_id.in_(ids)))
    session.execute(sa.delete(RunRow).where(RunRow.id.in_(ids)))
    return len(ids)
