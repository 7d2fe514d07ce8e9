"""The statements that write, inside a transaction that ``store`` opened and will end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from gpulease.errors import GPULeaseError
from gpulease.policy.lifecycle import HOLDING
from gpulease.policy.model import Lease, LeaseState
from gpulease.store.models import (
    EvidenceMinuteRow,
    GrantRow,
    IdempotencyRow,
    LeaseGroupRow,
    LeaseRow,
    TransitionRow,
    VerdictRow,
)
from gpulease.store.records import (
    Change,
    EvidenceMinute,
    IdempotencyKey,
    VerdictChange,
    to_json,
)


def save(session: Session, changes: Sequence[Change], now: datetime) -> None:
    """Write the changes; devices given up are free before others take them.

    Statements go for all changes at once: a class that begins is hundreds of them.
    """
    _insert([change.after for change in changes if change.before is None], session)
    _update([change for change in changes if change.before is not None], session)
    session.execute(sa.insert(TransitionRow), [_audit(change, now) for change in changes])
    _grant([change for change in changes if _held(change.before) != _held(change.after)], session)
    for change in changes:
        if change.key is not None:
            remember(session, change.key, change.after.id, now)


def _columns(lease: Lease) -> dict[str, Any]:
    return {
        "version": lease.version,
        "user": lease.user,
        "server": lease.server,
        "gpu_class": lease.gpu_class,
        "state": lease.state.value,
        "created": lease.created,
        "active_since": lease.active_since,
        "ended": lease.ended,
        "nominated_for": lease.nominated_for,
        "record": to_json(lease),
    }


def _insert(leases: Sequence[Lease], session: Session) -> None:
    for lease in leases:
        if session.get(LeaseRow, lease.id) is not None:
            raise _conflict(lease.id)
        session.add(LeaseRow(id=lease.id, **_columns(lease)))
        session.flush()
        session.add_all(LeaseGroupRow(lease_id=lease.id, name=name) for name in set(lease.groups))
    session.flush()


def _update(changes: Sequence[Change], session: Session) -> None:
    table = LeaseRow.__table__
    statement = (
        sa.update(LeaseRow)
        .where(table.c.id == sa.bindparam("known_id"))
        .where(table.c.version == sa.bindparam("known_version"))
    )
    for change in changes:
        assert change.before is not None
        known = {"known_id": change.after.id, "known_version": change.before.version}
        values: dict[str, Any] = {n: sa.bindparam(n) for n in _columns(change.after)}
        written = session.connection().execute(
            statement.values(values), {**known, **_columns(change.after)}
        )
        if written.rowcount != 1:
            raise _conflict(change.after.id)


def _audit(change: Change, now: datetime) -> dict[str, Any]:
    before, after = change.before, change.after
    return {
        "lease_id": after.id,
        "version": after.version,
        "at": now,
        "who": change.who,
        "why": change.why,
        "source": before.state.value if before is not None else "",
        "target": after.state.value,
        "attempt": after.attempt,
        "note": after.end_note or _failure(change),
    }


def _failure(change: Change) -> str:
    """Return the provider's words on a start that failed: the lease forgets them with the next."""
    before, after = change.before, change.after
    failed = before is not None and before.state is LeaseState.STARTING
    return after.detail if failed and after.state is LeaseState.QUEUED else ""


def _held(lease: Lease | None) -> tuple[str, ...]:
    return lease.devices if lease is not None and lease.state in HOLDING else ()


def _grant(changes: Sequence[Change], session: Session) -> None:
    """Write who has which device, for those of whom it changes."""
    for change in changes:
        session.execute(sa.delete(GrantRow).where(GrantRow.lease_id == change.after.id))
    wanted = [(device, change.after.id) for change in changes for device in _held(change.after)]
    for device, lease_id in wanted:
        holder = session.get(GrantRow, device)
        if holder is not None:
            raise GPULeaseError(
                "device_taken",
                f"Device {device} belongs to another lease already.",
                next_step="Nothing was changed; the next plan sees it as it is.",
                numbers={"device": device, "lease": holder.lease_id},
                status=409,
            )
        session.add(GrantRow(device=device, lease_id=lease_id))
        session.flush()


def remember(session: Session, key: IdempotencyKey, lease_id: str, now: datetime) -> None:
    """Store a key; a second use for another change is refused, expired ones are dropped."""
    session.execute(sa.delete(IdempotencyRow).where(IdempotencyRow.expires <= now))
    known = session.get(IdempotencyRow, (key.who, key.key))
    if known is None:
        session.add(
            IdempotencyRow(
                who=key.who,
                key=key.key,
                fingerprint=key.fingerprint,
                lease_id=lease_id,
                expires=key.expires,
            )
        )
    elif (known.fingerprint, known.lease_id) != (key.fingerprint, lease_id):
        raise key_reused()


def key_reused() -> GPULeaseError:
    """Return the error for an idempotency key that was used for another change."""
    return GPULeaseError(
        "key_reused",
        "This idempotency key was used for another change already.",
        next_step="Use a new key for a new change.",
        status=422,
    )


def add_evidence(
    session: Session, changes: Sequence[VerdictChange], minutes: Sequence[EvidenceMinute]
) -> None:
    """Store verdict changes; add parts of minutes to what is there."""
    session.add_all(
        VerdictRow(lease_id=c.lease_id, at=c.at, verdict=c.verdict.value) for c in changes
    )
    for part in minutes:
        row = session.get(EvidenceMinuteRow, (part.lease_id, part.minute))
        if row is None:
            row = EvidenceMinuteRow(
                lease_id=part.lease_id, minute=part.minute, busy=0, quiet=0, idle=0, unknown=0
            )
            session.add(row)
        row.busy += part.busy
        row.quiet += part.quiet
        row.idle += part.idle
        row.unknown += part.unknown
        row.peak = max((p for p in (row.peak, part.peak) if p is not None), default=None)
        session.flush()


def _conflict(lease_id: str) -> GPULeaseError:
    return GPULeaseError(
        "version_conflict",
        "The lease changed meanwhile; nothing was written.",
        next_step="Look at the lease again.",
        numbers={"lease": lease_id},
        status=409,
    )
