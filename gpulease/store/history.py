"""The statements that read: live leases, pages of history, the audit, and the plans that were kept.

Who may see what is decided elsewhere: the service passes users and groups in.  A plan is one row:
JSON values, compressed.  ``leases`` has what was decided about each lease, ``site`` the policy and
the devices where they changed.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from gpulease.policy.model import Lease, LeaseState
from gpulease.store.models import (
    AuditRecord,
    EvidenceMinuteRow,
    LeaseGroupRow,
    LeaseRow,
    PlanRow,
    TransitionRecord,
    TransitionRow,
    columns_of,
    from_json,
)

MAX_PAGE = 500


@dataclass(frozen=True)
class Of:
    """Whose leases: a person's, a project's, a class's; "" is every one."""

    user: str = ""
    project: str = ""
    gpu_class: str = ""

    def has(self, lease: Lease) -> bool:
        """Return whether a lease is one of them."""
        return (
            self.user in {"", lease.user}
            and self.project in {"", lease.project}
            and self.gpu_class in {"", lease.gpu_class}
        )


EVERY = Of()


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


def older(
    session: Session, users: Sequence[str], groups: Sequence[str], than: Lease | None
) -> list[Lease]:
    """Return leases of these people or groups, newest first: the newest of all, or older ones."""
    query = _chosen(sa.select(LeaseRow.record), users, groups, None)
    if than is not None:
        same = sa.and_(LeaseRow.created == than.created, LeaseRow.id < than.id)
        query = query.where(sa.or_(LeaseRow.created < than.created, same))
    records = session.scalars(query.order_by(*_NEWEST_FIRST).limit(MAX_PAGE))
    return [from_json(record) for record in records]


def page(
    session: Session,
    *,
    users: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    states: Sequence[LeaseState] | None = None,
    of: Of = EVERY,
    offset: int = 0,
    limit: int = 50,
) -> tuple[list[Lease], int]:
    """Return the leases from ``offset`` on, newest first, and how many there are altogether.

    Of ended ones alone the newest is the one that ended last.
    """
    count = _narrowed(sa.select(sa.func.count(LeaseRow.id)), of)
    total = session.scalar(_chosen(count, users, groups, states))
    order = _LAST_ENDED_FIRST if set(states or ()) == {LeaseState.ENDED} else _NEWEST_FIRST
    chosen = _chosen(_narrowed(sa.select(LeaseRow.record), of), users, groups, states)
    query = chosen.order_by(*order)
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


def _narrowed(query: _Query, of: Of) -> _Query:
    if of.user:
        query = query.where(LeaseRow.user == of.user)
    if of.project:
        query = query.where(LeaseRow.record["project"].as_string() == of.project)
    if of.gpu_class:
        query = query.where(LeaseRow.gpu_class == of.gpu_class)
    return query


def transitions(session: Session, lease_id: str) -> list[TransitionRecord]:
    """Return a lease's audit, oldest first."""
    query = sa.select(*columns_of(TransitionRow, TransitionRecord))
    chosen = query.where(TransitionRow.lease_id == lease_id).order_by(TransitionRow.id)
    return [TransitionRecord(*row) for row in session.execute(chosen)]


def incidents(
    session: Session,
    whys: Sequence[str],
    *,
    since: datetime | None = None,
    offset: int = 0,
    limit: int | None = 50,
) -> tuple[list[AuditRecord], int]:
    """Return the changes for these reasons, newest first, and how many there are.

    ``since`` leaves older ones out; ``limit`` ``None`` gives all.
    """
    chosen: list[sa.ColumnElement[bool]] = [TransitionRow.why.in_(whys)]
    if since is not None:
        chosen.append(TransitionRow.at >= since)
    return _found(session, chosen, offset=offset, limit=limit)


def changes(
    session: Session, words: Sequence[str], *, offset: int = 0, limit: int = 50
) -> tuple[list[AuditRecord], int]:
    """Return the changes that have every word, newest first, and how many there are.

    A word is looked for, whatever its case, in who made the change and why, its note, and the
    lease's id, user and class.
    """
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
    row, of_lease = TransitionRow, LeaseRow.id == TransitionRow.lease_id
    count = sa.select(sa.func.count(row.id)).join(LeaseRow, of_lease)
    whose = row.lease_id, LeaseRow.user, LeaseRow.gpu_class
    query = (
        sa.select(*whose, row.at, row.who, row.why, row.source, row.target, row.note)
        .join(LeaseRow, of_lease)
        .where(*chosen)
        .order_by(row.id.desc())
        .offset(offset)
        .limit(limit)
    )
    found = [AuditRecord(*each) for each in session.execute(query)]
    return found, session.scalar(count.where(*chosen)) or 0


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


def plans(session: Session, wanted: Collection[int]) -> dict[int, PlanRecord]:
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
