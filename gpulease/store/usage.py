"""The statements that read and write what was charged, inside a transaction of ``store``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from gpulease.policy.budgets import Use
from gpulease.store.models import UsageRow

#: Rows that are read at a time: whoever writes waits no longer than for these.
_SOME = 1000
#: In the order of the members of ``Use``.
_COLUMNS = (
    "lease_id", "user", "project", "gpu_class", "pool", "units", "price", "began", "ended",
    "estimated",
)  # fmt: skip


def add(session: Session, uses: Iterable[Use]) -> None:
    """Add a row for each stretch that is over."""
    rows = [_members(use) for use in uses]
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
    query = sa.select(UsageRow).where(UsageRow.user == user).order_by(UsageRow.began, UsageRow.id)
    found = [_members(_use(row)) for row in session.scalars(query)]
    return [
        {**each, "began": each["began"].isoformat(), "ended": each["ended"].isoformat()}
        for each in found
    ]


def rename(session: Session, user: str, name: str) -> None:
    """Put another name in a person's place."""
    session.execute(sa.update(UsageRow).where(UsageRow.user == user).values(user=name))


def _members(use: Use) -> dict[str, Any]:
    return {
        "lease_id": use.lease_id,
        "user": use.user,
        "project": use.project,
        "gpu_class": use.gpu_class,
        "pool": use.pool,
        "units": use.units,
        "price": use.price,
        "began": use.since,
        "ended": use.until,
        "estimated": use.estimated,
    }


def _use(row: UsageRow) -> Use:
    return Use(
        row.lease_id,
        row.user,
        row.project,
        row.gpu_class,
        row.pool,
        row.units,
        row.price,
        row.began,
        row.ended,
        row.estimated,
    )
