"""The statements about use, in a transaction of ``store``: what was charged, how GPUs were used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from gpulease.policy.budgets import Use
from gpulease.policy.calendar.reservation import Reservation
from gpulease.policy.model import Lease, Verdict
from gpulease.store import reservations
from gpulease.store.models import EvidenceMinuteRow, LeaseRow, UsageRow, VerdictRow, from_json

#: Rows that are read at a time: whoever writes waits no longer than for these.
_SOME = 1000
#: In the order of the members of ``Use``.
_COLUMNS = (
    "lease_id", "user", "project", "gpu_class", "pool", "units", "price", "began", "ended",
    "estimated",
)  # fmt: skip


def add(session: Session, uses: Iterable[Use]) -> None:
    """Add a row for each stretch that is over."""
    rows = [dict(zip(_COLUMNS, vars(use).values(), strict=True)) for use in uses]
    if rows:
        session.execute(sa.insert(UsageRow), rows)


def part(
    session: Session,
    since: datetime,
    until: datetime,
    *,
    users: Sequence[str] | None = None,
    projects: Sequence[str] | None = None,
    after: int = 0,
) -> tuple[list[Use], int]:
    """Return some stretches that touch a time, in the order of their rows, and the last row's id.

    Either of ``users`` and ``projects`` fits, if given.  ``after``: the id that the part before
    gave; 0 is given with the last part.
    """
    row = UsageRow
    query = sa.select(row.id, *(getattr(row, name) for name in _COLUMNS)).where(
        row.id > after, row.ended > since, row.began < until
    )
    whose = [
        column.in_(names)
        for column, names in ((row.user, users), (row.project, projects))
        if names is not None
    ]
    if whose:
        query = query.where(sa.or_(*whose))
    found = session.execute(query.order_by(row.id).limit(_SOME)).all()
    return [Use(*members) for _, *members in found], found[-1][0] if len(found) == _SOME else 0


def of_user(session: Session, user: str) -> list[dict[str, Any]]:
    """Return a person's stretches as JSON values."""
    row = UsageRow
    query = sa.select(*(getattr(row, name) for name in _COLUMNS)).where(row.user == user)
    found = session.execute(query.order_by(row.began, row.id)).mappings()
    return [
        {**each, "began": each["began"].isoformat(), "ended": each["ended"].isoformat()}
        for each in found
    ]


def rename(session: Session, user: str, name: str) -> None:
    """Put another name in a person's place."""
    session.execute(sa.update(UsageRow).where(UsageRow.user == user).values(user=name))


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


class HeldTime(NamedTuple):
    """Seconds of one lease in a time on its devices: those in use, and all."""

    devices: tuple[str, ...]
    busy: float
    held: float


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


def by_lease(session: Session, since: datetime, until: datetime) -> list[HeldTime]:
    """Return the use of each lease from one instant until before another.

    A lease that was given other devices meanwhile counts on its last ones.
    """
    row = EvidenceMinuteRow
    held = row.busy + row.quiet + row.idle + row.unknown
    sums = (
        sa.select(row.lease_id, sa.func.sum(row.busy).label("b"), sa.func.sum(held).label("h"))
        .where(row.minute >= since, row.minute < until)
        .group_by(row.lease_id)
        .subquery()
    )
    query = sa.select(LeaseRow.record["devices"], sums.c.b, sums.c.h).join(
        sums, sums.c.lease_id == LeaseRow.id
    )
    return [HeldTime(tuple(devices), busy, held) for devices, busy, held in session.execute(query)]


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
