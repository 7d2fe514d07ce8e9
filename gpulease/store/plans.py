"""The statements that keep plans and read them, inside a transaction of ``store``.

Owns that their bytes are counted, and which rows a plan is read from.  What stands in a body is
``snapshots``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from gpulease.store import snapshots
from gpulease.store.models import PlanRow

#: Rows that are in memory at a time, of all.
_SOME = 100


@dataclass(frozen=True)
class KeptPlan:
    """A plan to be kept: its body, and whether that is a whole snapshot."""

    body: bytes
    whole: bool


@dataclass(frozen=True)
class PlanRecord:
    """A row of the kept plans."""

    id: int
    at: datetime
    whole: bool
    body: bytes


def add(session: Session, plan: KeptPlan, now: datetime) -> int:
    """Keep a plan; return its number."""
    row = PlanRow(at=now, whole=plan.whole, before=total(session), body=plan.body)
    session.add(row)
    session.flush()
    return row.id


def total(session: Session) -> int:
    """Return the bytes of all bodies that were kept so far, those that are gone among them."""
    newest = PlanRow.before + sa.func.length(PlanRow.body)
    return session.scalar(sa.select(newest).order_by(PlanRow.id.desc()).limit(1)) or 0


def read(session: Session, wanted: Collection[int]) -> list[PlanRecord]:
    """Return the rows from which these plans are read, in their order; what is gone is left out."""
    found: dict[int, PlanRecord] = {}
    for first, last in _stretches(session, wanted):
        rows = sa.select(PlanRow).where(PlanRow.id >= first, PlanRow.id <= last)
        for row in session.scalars(rows.order_by(PlanRow.id)):
            found[row.id] = PlanRecord(row.id, row.at, row.whole, row.body)
    return list(found.values())


def newest(session: Session) -> list[PlanRecord]:
    """Return the rows from which the newest plan is read; none where no plan is kept."""
    last = session.scalar(sa.select(sa.func.max(PlanRow.id)))
    return read(session, () if last is None else (last,))


def _stretches(session: Session, wanted: Collection[int]) -> list[tuple[int, int]]:
    """Return for each whole snapshot that is needed its number, and the last that builds on it."""
    found: dict[int, int] = {}
    for number in sorted(wanted):
        first = session.scalar(
            sa.select(PlanRow.id)
            .where(PlanRow.whole.is_(True), PlanRow.id <= number)
            .order_by(PlanRow.id.desc())
            .limit(1)
        )
        if first is not None:
            found[first] = number
    return sorted(found.items())


def bodies(session: Session) -> Iterator[tuple[datetime, dict[str, Any]]]:
    """Yield when each plan was, and what stands in it."""
    for row in _rows(session):
        yield row.at, snapshots.unpack(row.body)
        session.expunge(row)


def rewrite(session: Session, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Put what ``change`` makes of each plan in its place."""
    for row in _rows(session):
        kept = snapshots.unpack(row.body)
        changed = change(kept)
        if changed != kept:
            row.body = snapshots.pack(changed)
            session.flush()
        session.expunge(row)


def _rows(session: Session) -> Iterator[PlanRow]:
    """Yield all rows, few at a time: together they may be more than fits in memory."""
    last = 0
    while True:
        query = sa.select(PlanRow).where(PlanRow.id > last).order_by(PlanRow.id).limit(_SOME)
        rows = session.scalars(query).all()
        yield from rows
        if not rows:
            return
        last = rows[-1].id
