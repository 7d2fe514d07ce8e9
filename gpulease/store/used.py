"""The statements that read how GPUs were used in the past: for replays of it.

Owns which leases and changes of verdict belong to a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from gpulease.policy.calendar.reservation import Reservation
from gpulease.policy.model import Lease, Verdict
from gpulease.store import reservations
from gpulease.store.models import LeaseRow, VerdictRow
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
