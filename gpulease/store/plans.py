"""The statements that keep plans and read them, inside a transaction of ``store``.

A plan is one row: JSON values, compressed.  ``leases`` has what was decided about each lease,
``site`` the policy and the devices where they changed.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from gpulease.store.models import PlanRow

#: Rows that are in memory at a time, of all.
_SOME = 100


@dataclass(frozen=True)
class PlanRecord:
    """A kept plan: when it was, and what it decided about which lease."""

    at: datetime
    leases: Mapping[str, Mapping[str, Any]]


def pack(plan: Mapping[str, Any]) -> bytes:
    """Return a plan's JSON values as bytes."""
    return zlib.compress(json.dumps(plan, separators=(",", ":")).encode())


def unpack(body: bytes) -> dict[str, Any]:
    """Return what ``pack`` was given."""
    found: dict[str, Any] = json.loads(zlib.decompress(body))
    return found


def add(session: Session, body: bytes, now: datetime) -> int:
    """Keep a plan; return its number."""
    row = PlanRow(at=now, before=total(session), body=body)
    session.add(row)
    session.flush()
    return row.id


def total(session: Session) -> int:
    """Return the bytes of all bodies that were kept so far, those that are gone among them."""
    newest = PlanRow.before + sa.func.length(PlanRow.body)
    return session.scalar(sa.select(newest).order_by(PlanRow.id.desc()).limit(1)) or 0


def read(session: Session, wanted: Collection[int]) -> dict[int, PlanRecord]:
    """Return these plans by their numbers; what is gone is left out."""
    rows = session.scalars(sa.select(PlanRow).where(PlanRow.id.in_(wanted)))
    return {row.id: PlanRecord(row.at, unpack(row.body)["leases"]) for row in rows}


def newest(session: Session) -> dict[str, Any] | None:
    """Return the values of the newest plan, ``None`` where no plan is kept."""
    body = session.scalar(sa.select(PlanRow.body).order_by(PlanRow.id.desc()).limit(1))
    return unpack(body) if body is not None else None


def newest_site(session: Session) -> dict[str, Any] | None:
    """Return the policy and the devices that the newest plan names which names them."""
    newest_first = sa.select(PlanRow.body).order_by(PlanRow.id.desc())
    bodies_ = session.scalars(newest_first.execution_options(yield_per=_SOME))
    return next((plan["site"] for plan in map(unpack, bodies_) if "site" in plan), None)


def bodies(session: Session) -> Iterator[tuple[datetime, dict[str, Any]]]:
    """Yield when each plan was, and its values."""
    for row in _rows(session):
        yield row.at, unpack(row.body)
        session.expunge(row)


def rewrite(session: Session, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Put what ``change`` makes of each plan in its place."""
    for row in _rows(session):
        kept = unpack(row.body)
        changed = change(kept)
        if changed != kept:
            row.body = pack(changed)
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
