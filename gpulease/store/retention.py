"""What goes when it is old enough, in batches so small that nobody waits for them.

Minutes of evidence become one row for each lease and hour, hours go into the lease's own sums, and
ended leases go with everything that belongs to them.  Plans have a bound in bytes, too.  Which
reservations are over their owner knows (``reservations.drop``), who has them in memory.  Each
function is one batch of one write transaction and returns how many rows it took away; 0 means that
there is nothing left to do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.orm import Session

from gpulease.policy.model import LeaseState
from gpulease.store import history, runs
from gpulease.store.models import (
    EvidenceMinuteRow,
    IdempotencyRow,
    LeaseGroupRow,
    LeaseRow,
    MetaRow,
    PlanRow,
    PolicyRow,
    ReservationEventRow,
    TransitionRow,
    UsageRow,
    VerdictRow,
)

#: Rows that one batch takes away, about.
BATCH = 2000
#: Leases of one batch, where each has many rows of other tables.
LEASES = 50
_HOUR = timedelta(hours=1)
_FOLDED = "folded_until"  # all minutes before are hours


@dataclass(frozen=True)
class Ages:
    """How long each kind is kept (days)."""

    minutes: float = 1.0  # then they are hours
    evidence: float = 30.0  # hours of evidence, and changes of verdict
    runs: float = 90.0  # of whole notebooks, from their end; their output stays beside them
    leases: float = 400.0  # from their end; with transitions and groups
    reservations: float = 400.0  # from the end of their last window; their events from each one's
    policies: float = 400.0  # from when the next one came into force
    usage: float = 400.0  # what was charged
    plans: float = 7.0
    plans_bytes: int = 256 * 2**20  # of all plans together; the oldest go


def sweep(session: Session, now: datetime, ages: Ages) -> int:
    """Take one batch of what is oldest away; return how many rows."""
    day = timedelta(days=1)
    return (
        _fold_hour(session, now - ages.minutes * day)
        or _drop_evidence(session, now - ages.evidence * day)
        or _drop(session, VerdictRow, VerdictRow.at < now - ages.evidence * day)
        or _drop_leases(session, now - ages.leases * day)
        or runs.drop(session, now - ages.runs * day, LEASES)
        or _drop(
            session, ReservationEventRow, ReservationEventRow.at < now - ages.reservations * day
        )
        or _drop_policies(session, now - ages.policies * day)
        or _drop(session, UsageRow, UsageRow.ended < now - ages.usage * day)
        or _drop(session, PlanRow, PlanRow.at < now - ages.plans * day)
        or _drop(session, PlanRow, PlanRow.before < history.total(session) - ages.plans_bytes)
    )


def _fold_hour(session: Session, until: datetime) -> int:
    """Make one row of each lease's minutes in the oldest hour that is not done; skip empty ones."""
    row = EvidenceMinuteRow
    limit = until.replace(minute=0, second=0, microsecond=0)
    while (hour := _unfolded(session)) is not None and hour < limit:
        inside = sa.and_(row.minute > hour, row.minute < hour + _HOUR)
        leases = session.scalars(
            sa.select(row.lease_id).where(inside).group_by(row.lease_id).limit(LEASES)
        ).all()
        if leases:
            return _fold(session, hour, leases)
        _note_folded(session, hour + _HOUR)
    return 0


def _fold(session: Session, hour: datetime, leases: Sequence[str]) -> int:
    row = EvidenceMinuteRow
    whole = sa.and_(row.lease_id.in_(leases), row.minute >= hour, row.minute < hour + _HOUR)
    kinds = (row.busy, row.quiet, row.idle, row.unknown)
    sums = session.execute(
        sa.select(row.lease_id, *(sa.func.sum(kind) for kind in kinds), sa.func.max(row.peak))
        .where(whole)
        .group_by(row.lease_id)
    ).all()
    gone = session.execute(sa.delete(row).where(whole))
    names = ("lease_id", "busy", "quiet", "idle", "unknown", "peak")
    session.execute(
        sa.insert(row), [{**dict(zip(names, each, strict=True)), "minute": hour} for each in sums]
    )
    return _count(gone)


def _unfolded(session: Session) -> datetime | None:
    """Return the oldest hour that may hold single minutes; ``None`` when there is no evidence."""
    known = session.get(MetaRow, _FOLDED)
    since = datetime.fromisoformat(known.value) if known is not None else None
    query = sa.select(sa.func.min(EvidenceMinuteRow.minute))
    if since is not None:
        query = query.where(EvidenceMinuteRow.minute >= since)
    oldest = session.scalar(query)
    return oldest.astimezone(UTC).replace(minute=0, second=0) if oldest is not None else None


def _note_folded(session: Session, until: datetime) -> None:
    session.merge(MetaRow(name=_FOLDED, value=until.isoformat()))
    session.flush()


def _drop_evidence(session: Session, until: datetime) -> int:
    """Take the oldest hours away; what they add up to stays with their leases."""
    row = EvidenceMinuteRow
    total = row.busy + row.quiet + row.idle + row.unknown
    query = sa.select(row.lease_id, row.minute, row.busy, total).where(row.minute < until)
    found = session.execute(query.order_by(row.minute).limit(BATCH)).all()
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for lease_id, _, busy, seconds in found:
        sums[lease_id][0] += busy
        sums[lease_id][1] += seconds
    for lease_id, (busy, seconds) in sums.items():
        more = {"busy": LeaseRow.busy + busy, "watched": LeaseRow.watched + seconds}
        session.execute(sa.update(LeaseRow).where(LeaseRow.id == lease_id).values(more))
        gone = [minute for known, minute, *_ in found if known == lease_id]
        session.execute(sa.delete(row).where(row.lease_id == lease_id, row.minute.in_(gone)))
    return len(found)


def _drop(
    session: Session,
    table: type[VerdictRow | ReservationEventRow | UsageRow | PlanRow],
    old: sa.ColumnElement[bool],
) -> int:
    ids = session.scalars(sa.select(table.id).where(old).limit(BATCH)).all()
    if ids:
        session.execute(sa.delete(table).where(table.id.in_(ids)))
    return len(ids)


def _drop_leases(session: Session, until: datetime) -> int:
    """Take the leases away that ended first, with all that belongs to them."""
    ended = LeaseRow.state == LeaseState.ENDED.value
    query = sa.select(LeaseRow.id).where(LeaseRow.ended < until, ended)
    leases = session.scalars(query.order_by(LeaseRow.ended).limit(LEASES)).all()
    gone = 0
    if leases:
        tables = (TransitionRow, VerdictRow, EvidenceMinuteRow, LeaseGroupRow, IdempotencyRow)
        for table in tables:
            gone += _count(session.execute(sa.delete(table).where(table.lease_id.in_(leases))))
        gone += _count(session.execute(sa.delete(LeaseRow).where(LeaseRow.id.in_(leases))))
    return gone


def _drop_policies(session: Session, until: datetime) -> int:
    """Take away what was out of force by then: all before the last that had come into force."""
    last = sa.select(sa.func.max(PolicyRow.version)).where(PolicyRow.at <= until)
    return _count(
        session.execute(sa.delete(PolicyRow).where(PolicyRow.version < last.scalar_subquery()))
    )


def _count(done: sa.Result[tuple[()]]) -> int:
    assert isinstance(done, sa.CursorResult)
    return done.rowcount
