"""The statements that read how GPUs were used in the past: for replays of it, and for charts."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from gpulease.policy.calendar.reservation import Reservation
from gpulease.policy.model import Lease, Verdict
from gpulease.store import reservations
from gpulease.store.models import EvidenceMinuteRow, LeaseRow, VerdictRow
from gpulease.store.records import from_json

#: More leases than these are not read at once.
MOST = 30_000


@dataclass(frozen=True)
class Past:
    """The leases that were asked for within a time, with their changes of verdict, oldest first.

    ``cut``: there were more than ``MOST``; the newest are missing.
    """

    leases: tuple[Lease, ...]
    verdicts: dict[str, list[tuple[datetime, Verdict]]] = field(default_factory=dict)
    reservations: tuple[Reservation, ...] = ()
    cut: bool = False


def past(session: Session, since: datetime, until: datetime, most: int = MOST) -> Past:
    """Return what was asked for from ``since`` on and before ``until``."""
    within = sa.and_(LeaseRow.created >= since, LeaseRow.created < until)
    query = sa.select(LeaseRow.record).where(within).order_by(LeaseRow.created, LeaseRow.id)
    records = session.scalars(query.limit(most + 1)).all()
    leases = tuple(from_json(record) for record in records[:most])
    verdicts: dict[str, list[tuple[datetime, Verdict]]] = {}
    of = VerdictRow
    changes = (
        sa.select(of.lease_id, of.at, of.verdict)
        .join(LeaseRow, LeaseRow.id == of.lease_id)
        .where(within)
        .order_by(of.at, of.id)
    )
    for lease_id, at, verdict in session.execute(changes):
        verdicts.setdefault(lease_id, []).append((at, Verdict(verdict)))
    return Past(leases, verdicts, tuple(reservations.read(session)), len(records) > most)


class Used(NamedTuple):
    """Device-seconds of all leases in one minute, by verdict; of older days, in one hour."""

    at: datetime
    busy: float
    quiet: float
    idle: float
    unknown: float


class Waited(NamedTuple):
    """A request: from when to when it waited, and whether it got a GPU then.

    ``until``: ``None`` while it waits.
    """

    since: datetime
    until: datetime | None
    granted: bool


def minutes(session: Session, since: datetime, until: datetime) -> list[Used]:
    """Return what is known of the use from one instant until before another, oldest first."""
    row, count = EvidenceMinuteRow, LeaseRow.record["count"].as_integer()
    kinds = (row.busy, row.quiet, row.idle, row.unknown)
    query = (
        sa.select(row.minute, *(sa.func.sum(kind * count) for kind in kinds))
        .join(LeaseRow, LeaseRow.id == row.lease_id)
        .where(row.minute >= since, row.minute < until)
        .group_by(row.minute)
        .order_by(row.minute)
    )
    return [Used(*found) for found in session.execute(query)]


def waits(session: Session, since: datetime, until: datetime, most: int = MOST) -> list[Waited]:
    """Return the newest requests that waited within a time, newest first."""
    row = LeaseRow
    over = sa.func.coalesce(row.active_since, row.ended)
    query = (
        sa.select(row.created, row.active_since, row.ended)
        .where(row.created < until, sa.or_(over.is_(None), over >= since))
        .order_by(row.created.desc(), row.id)
        .limit(most)
    )
    return [
        Waited(created, active or ended, active is not None)
        for created, active, ended in session.execute(query)
    ]
