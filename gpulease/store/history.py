"""The statements that read: live leases, pages of history, the audit.

Refuses to decide who may see what: the service passes users and groups in.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from gpulease.errors import GPULeaseError
from gpulease.policy.model import Lease, LeaseState
from gpulease.store.models import (
    EvidenceMinuteRow,
    LeaseGroupRow,
    LeaseRow,
    TransitionRow,
)
from gpulease.store.records import AuditRecord, Page, TransitionRecord, from_json

MAX_PAGE = 500


@cache  # putting such a statement together costs more than asking it
def live_records() -> sa.Select[tuple[dict[str, Any]]]:
    """Select what has not ended, and the ended whose nominee still waits.

    Two lists of ids, for each of which there is an index: with one condition for both the whole
    history would be read.
    """
    live = [state.value for state in LeaseState if state is not LeaseState.ENDED]
    nominee = aliased(LeaseRow)
    nominating = (
        sa.select(LeaseRow.id)
        .join(nominee, LeaseRow.nominated_for == nominee.id)
        .where(nominee.state == LeaseState.QUEUED.value)
    )
    ids = sa.union(sa.select(LeaseRow.id).where(LeaseRow.state.in_(live)), nominating)
    row = aliased(LeaseRow)
    return sa.select(row.record).where(row.id.in_(ids)).order_by(row.created, row.id)


@cache
def newest_records(count: int = 100) -> sa.Select[tuple[dict[str, Any]]]:
    """Select the newest leases, ended or not."""
    return sa.select(LeaseRow.record).order_by(LeaseRow.created.desc()).limit(count)


def busy_seconds(session: Session, leases: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Return seconds busy and seconds watched of leases: their minutes, and what was before."""
    row = EvidenceMinuteRow
    total = row.busy + row.quiet + row.idle + row.unknown
    minutes = sa.select(row.lease_id, sa.func.sum(row.busy), sa.func.sum(total)).group_by(
        row.lease_id
    )
    before = sa.select(LeaseRow.id, LeaseRow.busy, LeaseRow.watched).where(LeaseRow.watched > 0)
    found: dict[str, tuple[float, float]] = {}
    for at in range(0, len(leases), MAX_PAGE):
        some = leases[at : at + MAX_PAGE]
        for part in (minutes.where(row.lease_id.in_(some)), before.where(LeaseRow.id.in_(some))):
            for lease_id, busy, seconds in session.execute(part):
                known = found.get(lease_id, (0.0, 0.0))
                found[lease_id] = (known[0] + busy, known[1] + seconds)
    return found


def page(
    session: Session,
    *,
    users: Sequence[str] | None,
    groups: Sequence[str] | None,
    states: Sequence[LeaseState] | None,
    before: str | None,
    limit: int,
) -> Page:
    """Return one page, newest first."""
    limit = max(1, min(limit, MAX_PAGE))
    query = _chosen(sa.select(LeaseRow), users, groups, states).order_by(*_NEWEST_FIRST)
    if before is not None:
        created, last_id = _cursor(before)
        older = sa.and_(LeaseRow.created == created, LeaseRow.id < last_id)
        query = query.where(sa.or_(LeaseRow.created < created, older))
    rows = list(session.scalars(query.limit(limit + 1)))
    shown = rows[:limit]
    more = len(rows) > limit
    following = f"{shown[-1].created.isoformat()}~{shown[-1].id}" if more else None
    return Page(tuple(from_json(row.record) for row in shown), following)


def counted_page(
    session: Session,
    *,
    users: Sequence[str] | None,
    groups: Sequence[str] | None,
    states: Sequence[LeaseState] | None,
    offset: int,
    limit: int,
) -> tuple[list[Lease], int]:
    """Return the leases from ``offset`` on, newest first, and how many there are altogether.

    Of ended ones alone the newest is the one that ended last.
    """
    total = session.scalar(_chosen(sa.select(sa.func.count(LeaseRow.id)), users, groups, states))
    order = _LAST_ENDED_FIRST if set(states or ()) == {LeaseState.ENDED} else _NEWEST_FIRST
    query = _chosen(sa.select(LeaseRow.record), users, groups, states).order_by(*order)
    rows = session.scalars(query.offset(offset).limit(max(0, min(limit, MAX_PAGE))))
    return [from_json(record) for record in rows], total or 0


_NEWEST_FIRST = (LeaseRow.created.desc(), LeaseRow.id.desc())
_LAST_ENDED_FIRST = (LeaseRow.ended.desc(), LeaseRow.id.desc())
_Query = TypeVar("_Query", bound=sa.Select[Any])


def _chosen(
    query: _Query,
    users: Sequence[str] | None,
    groups: Sequence[str] | None,
    states: Sequence[LeaseState] | None,
) -> _Query:
    if users is not None or groups is not None:
        in_group = sa.select(LeaseGroupRow.lease_id).where(LeaseGroupRow.name.in_(groups or ()))
        query = query.where(sa.or_(LeaseRow.user.in_(users or ()), LeaseRow.id.in_(in_group)))
    if states is not None:
        query = query.where(LeaseRow.state.in_([state.value for state in states]))
    return query


def _cursor(text: str) -> tuple[datetime, str]:
    created, _, lease_id = text.partition("~")
    try:
        at = datetime.fromisoformat(created)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None or not lease_id:
        raise GPULeaseError(
            "bad_page",
            "This page does not exist.",
            next_step="Begin with the first page; each names the next.",
        )
    return at, lease_id


def transitions(session: Session, lease_id: str) -> list[TransitionRecord]:
    """Return a lease's audit, oldest first."""
    query = sa.select(TransitionRow).where(TransitionRow.lease_id == lease_id)
    return [
        TransitionRecord(
            lease_id=row.lease_id,
            version=row.version,
            at=row.at,
            who=row.who,
            why=row.why,
            source=row.source,
            target=row.target,
            attempt=row.attempt,
            note=row.note,
            plan=row.plan,
        )
        for row in session.scalars(query.order_by(TransitionRow.id))
    ]


def incidents(
    session: Session,
    whys: Sequence[str],
    *,
    since: datetime | None,
    offset: int,
    limit: int | None,
) -> tuple[list[AuditRecord], int]:
    """Return the changes for these reasons, newest first, and how many there are."""
    chosen: list[sa.ColumnElement[bool]] = [TransitionRow.why.in_(whys)]
    if since is not None:
        chosen.append(TransitionRow.at >= since)
    return _found(session, chosen, offset=offset, limit=limit)


def changes(
    session: Session, words: Sequence[str], *, offset: int, limit: int
) -> tuple[list[AuditRecord], int]:
    """Return the changes that have every word, newest first, and how many there are."""
    places = (
        TransitionRow.who,
        TransitionRow.why,
        TransitionRow.note,
        TransitionRow.lease_id,
        LeaseRow.user,
        LeaseRow.gpu_class,
    )
    chosen = [
        sa.or_(*(place.icontains(word, autoescape=True) for place in places)) for word in words
    ]
    return _found(session, chosen, offset=offset, limit=max(0, min(limit, MAX_PAGE)))


def _found(
    session: Session,
    chosen: Sequence[sa.ColumnElement[bool]],
    *,
    offset: int,
    limit: int | None,
) -> tuple[list[AuditRecord], int]:
    of_lease = LeaseRow.id == TransitionRow.lease_id
    count = sa.select(sa.func.count(TransitionRow.id)).join(LeaseRow, of_lease)
    query = (
        sa.select(TransitionRow, LeaseRow.user, LeaseRow.gpu_class)
        .join(LeaseRow, of_lease)
        .where(*chosen)
        .order_by(TransitionRow.id.desc())
        .offset(offset)
        .limit(limit)
    )
    found = [
        AuditRecord(
            lease_id=row.lease_id,
            user=user,
            gpu_class=gpu_class,
            at=row.at,
            who=row.who,
            why=row.why,
            source=row.source,
            target=row.target,
            note=row.note,
        )
        for row, user, gpu_class in session.execute(query)
    ]
    return found, session.scalar(count.where(*chosen)) or 0
