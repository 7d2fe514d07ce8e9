"""The statements that write, inside a transaction that ``store`` opened and will end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from gpulease.errors import GPULeaseError
from gpulease.policy.budgets import use_of
from gpulease.policy.lifecycle import HOLDING
from gpulease.policy.model import Lease, LeaseState
from gpulease.store import plans, usage
from gpulease.store.models import (
    Base,
    EvidenceMinuteRow,
    GrantRow,
    IdempotencyRow,
    LeaseGroupRow,
    LeaseRow,
    TransitionRow,
    VerdictRow,
)
from gpulease.store.plans import KeptPlan
from gpulease.store.records import (
    Change,
    EvidenceMinute,
    IdempotencyKey,
    VerdictChange,
    to_json,
)


def save(
    session: Session, changes: Sequence[Change], now: datetime, plan: KeptPlan | None = None
) -> None:
    """Write the changes, and the plan that they are of; devices given up are free for others.

    One statement a table and kind, however many changes: a class that begins is hundreds of them.
    What is in conflict is looked up beforehand, so that the refusal can name it; nobody writes
    between the look and the write, for this transaction holds the writers' fence.
    """
    _refuse_conflicts(session, changes)
    _insert([change.after for change in changes if change.before is None], session)
    _update([change for change in changes if change.before is not None], session)
    number = plans.add(session, plan, now) if plan is not None else None
    _many(session, TransitionRow, [{**_audit(each, now), "plan": number} for each in changes])
    over = [use_of(change.before, change.after) for change in changes]
    usage.add(session, [each for each in over if each is not None])
    _grant([change for change in changes if _held(change.before) != _held(change.after)], session)
    remember(session, [(c.key, c.after.id) for c in changes if c.key is not None], now)


def _many(session: Session, table: type[Base], rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        session.execute(sa.insert(table), rows)


def _refuse_conflicts(session: Session, changes: Sequence[Change]) -> None:
    """Refuse all changes if one lease is not as it was read, or is changed twice."""
    wanted = [change.after.id for change in changes]
    found = sa.select(LeaseRow.id, LeaseRow.version).where(LeaseRow.id.in_(wanted))
    stored = {row.id: row.version for row in session.execute(found)}
    twice = {lease_id for lease_id, times in Counter(wanted).items() if times > 1}
    wrong = [
        change.after.id
        for change in changes
        if stored.get(change.after.id) != (change.before.version if change.before else None)
        or change.after.id in twice
    ]
    if wrong:
        raise _conflict(wrong)


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
    _many(session, LeaseRow, [{"id": lease.id, **_columns(lease)} for lease in leases])
    groups = [{"lease_id": x.id, "name": name} for x in leases for name in sorted(set(x.groups))]
    _many(session, LeaseGroupRow, groups)


def _update(changes: Sequence[Change], session: Session) -> None:
    if not changes:
        return
    values: dict[str, Any] = {name: sa.bindparam(name) for name in _columns(changes[0].after)}
    statement = sa.update(LeaseRow).where(LeaseRow.__table__.c.id == sa.bindparam("known_id"))
    session.connection().execute(
        statement.values(values),
        [{"known_id": change.after.id, **_columns(change.after)} for change in changes],
    )


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
    if not changes:
        return
    gone = [change.after.id for change in changes]
    session.execute(sa.delete(GrantRow).where(GrantRow.lease_id.in_(gone)))
    wanted = [(device, change.after.id) for change in changes for device in _held(change.after)]
    held = sa.select(GrantRow).where(GrantRow.device.in_([device for device, _ in wanted]))
    holders = {row.device: row.lease_id for row in session.scalars(held)} if wanted else {}
    taken: dict[str, str] = {}
    for device, lease_id in wanted:
        holder = holders.setdefault(device, lease_id)
        if holder != lease_id:
            taken.setdefault(lease_id, device)
    if taken:
        device = next(iter(taken.values()))
        raise GPULeaseError(
            "device_taken",
            f"Device {device} belongs to another lease already.",
            next_step="Nothing was changed; the next plan sees it as it is.",
            numbers={"device": device, "lease": holders[device], "leases": list(taken)},
            status=409,
        )
    _many(session, GrantRow, [{"device": d, "lease_id": lease_id} for d, lease_id in wanted])


def remember(session: Session, keys: Sequence[tuple[IdempotencyKey, str]], now: datetime) -> None:
    """Store keys with their leases; a second use for another change is refused.

    Expired keys are dropped.
    """
    if not keys:
        return
    session.execute(sa.delete(IdempotencyRow).where(IdempotencyRow.expires <= now))
    row = IdempotencyRow
    found = sa.select(row).where(
        row.key.in_([key.key for key, _ in keys]), row.who.in_({key.who for key, _ in keys})
    )
    known = {(x.who, x.key): (x.fingerprint, x.lease_id) for x in session.scalars(found)}
    fresh = []
    for key, lease_id in keys:
        meant = key.fingerprint, lease_id
        if (key.who, key.key) not in known:
            known[key.who, key.key] = meant
            members = {"who": key.who, "key": key.key, "expires": key.expires}
            fresh.append({**members, "fingerprint": key.fingerprint, "lease_id": lease_id})
        elif known[key.who, key.key] != meant:
            raise _key_reused()
    _many(session, row, fresh)


def remembered(session: Session, key: IdempotencyKey, now: datetime) -> str | None:
    """Return the lease that the key was used for; raises as ``Store.remembered`` says."""
    row = session.get(IdempotencyRow, (key.who, key.key))
    if row is None or row.expires <= now:
        return None
    if row.fingerprint != key.fingerprint:
        raise _key_reused()
    return row.lease_id


def _key_reused() -> GPULeaseError:
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
    verdicts = [{"lease_id": c.lease_id, "at": c.at, "verdict": c.verdict.value} for c in changes]
    _many(session, VerdictRow, verdicts)
    if not minutes:
        return
    row = EvidenceMinuteRow
    leases, instants = {part.lease_id for part in minutes}, {part.minute for part in minutes}
    found = sa.select(row).where(row.lease_id.in_(leases), row.minute.in_(instants))
    known = {(each.lease_id, each.minute): each for each in session.scalars(found)}
    for part in minutes:
        each = known.get((part.lease_id, part.minute))
        if each is None:
            each = row(
                lease_id=part.lease_id, minute=part.minute, busy=0, quiet=0, idle=0, unknown=0
            )
            known[part.lease_id, part.minute] = each
            session.add(each)
        each.busy += part.busy
        each.quiet += part.quiet
        each.idle += part.idle
        each.unknown += part.unknown
        each.peak = max((p for p in (each.peak, part.peak) if p is not None), default=None)


def _conflict(leases: Sequence[str]) -> GPULeaseError:
    return GPULeaseError(
        "version_conflict",
        "The lease changed meanwhile; nothing was written.",
        next_step="Look at the lease again.",
        numbers={"lease": leases[0], "leases": list(leases)},
        status=409,
    )
