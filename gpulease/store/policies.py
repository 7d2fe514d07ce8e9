"""The versions of the policy: read, and added to."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from gpulease.errors import GPULeaseError
from gpulease.store.models import PolicyRow
from gpulease.store.records import PolicyVersion

_NEWEST_FIRST = sa.select(PolicyRow).order_by(PolicyRow.version.desc())


def one(session: Session, version: int | None) -> PolicyVersion | None:
    """Return one version, the newest by default."""
    query = _NEWEST_FIRST.limit(1)
    if version is not None:
        query = query.where(PolicyRow.version == version)
    row = session.scalar(query)
    return _record(row) if row is not None else None


def versions(session: Session, before: int | None, limit: int) -> list[PolicyVersion]:
    """Return versions, newest first, those below ``before``."""
    query = _NEWEST_FIRST.limit(limit)
    if before is not None:
        query = query.where(PolicyRow.version < before)
    return [_record(row) for row in session.scalars(query)]


def kept(session: Session) -> int:
    """Return how many versions there are."""
    return session.scalar(sa.select(sa.func.count(PolicyRow.version))) or 0


def save(
    session: Session, text: str, who: str, now: datetime, *, note: str, expected: int | None
) -> int:
    """Add a version and return its number; raises as ``Store.save_policy`` says."""
    newest = session.scalar(sa.select(sa.func.max(PolicyRow.version))) or 0
    if expected is not None and expected != newest:
        raise GPULeaseError(
            "policy_changed",
            f"The policy is at version {newest} now; you edited version {expected}.",
            next_step="Load the newest version and make your change again.",
            numbers={"newest": newest, "edited": expected},
            status=409,
        )
    session.add(PolicyRow(version=newest + 1, text=text, who=who, at=now, note=note))
    return newest + 1


def _record(row: PolicyRow) -> PolicyVersion:
    return PolicyVersion(row.version, row.text, row.who, row.at, row.note)
