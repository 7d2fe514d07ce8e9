"""The statements that write, inside a transaction that ``store`` opened and will end.

They are made once and speak of tables, not of objects: a class that begins writes hundreds of times
in a few seconds, and SQLAlchemy takes longer to build a statement than SQLite to execute it.
"""

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
from gpulease.store import history, usage
from gpulease.store.models import (
    Change,
    EvidenceMinute,
    EvidenceMinuteRow,
    GrantRow,
    IdempotencyKey,
    IdempotencyRow,
    LeaseGroupRow,
    LeaseRow,
    TransitionRow,
    VerdictChange,
    VerdictRow,
    to_json,
)

_LEASES, _GROUPS, _GRANTS, _TRANSITIONS, _VERDICTS, _KEYS = (
    table.metadata.tables[table.__tablename__]
    for table in (LeaseRow, LeaseGroupRow, GrantRow, TransitionRow, VerdictRow, IdempotencyRow)
)
_INSERTS = {
    each: each.insert() for each in (_LEASES, _GROUPS, _GRANTS, _TRANSITIONS, _VERDICTS, _KEYS)
}
#: What of a lease is written anew with each change.
_CHANGING = (
    "version", "user", "server", "gpu_class", "state", "created", "active_since", "ended",
    "nominated_for",
)  # fmt: skip
_UPDATE = (
    _LEASES.update()
    .where(_LEASES.c.id == sa.bindparam("known_id"))
    .values({name: sa.bindparam(name) for name in (*_CHANGING, "record")})
)
_VERSIONS = sa.select(_LEASES.c.id, _LEASES.c.version).where(
    _LEASES.c.id.in_(sa.bindparam("wanted", expanding=True))
)
_DELETE_GRANTS = _GRANTS.delete().where(
    _GRANTS.c.lease_id.in_(sa.bindparam("gone", expanding=True))
)
_HOLDERS = sa.select(_GRANTS.c.device, _GRANTS.c.lease_id).where(
    _GRANTS.c.device.in_(sa.bindparam("devices", expanding=True))
)
_DELETE_KEYS = _KEYS.delete().where(_KEYS.c.expires <= sa.bindparam("now"))
_KNOWN_KEYS = sa.select(_KEYS).where(
    _KEYS.c.key.in_(sa.bindparam("keys", expanding=True)),
    _KEYS.c.who.in_(sa.bindparam("people", expanding=True)),
)


def save(
    session: Session, changes: Sequence[Change], now: datetime, plan: bytes | None = None
) -> None:
    """Write the changes, and the plan that they are of; devices given up are free for others.

    One statement a table and kind, however many changes: a class that begins is hundreds of them.
    What is in conflict is looked up beforehand, so that the refusal can name it; nobody writes
    between the look and the write, for this transaction holds the writers' fence.
    """
    _refuse_conflicts(session, changes)
    _insert([change.after for change in changes if change.before is None], session)
    _update([change for change in changes if change.before is not None], session)
    number = history.add(session, plan, now) if plan is not None else None
    _many(session, _TRANSITIONS, [{**_audit(each, now), "plan": number} for each in changes])
    over = [use_of(change.before, change.after) for change in changes]
    usage.add(session, [each for each in over if each is not None])
    _grant([change for change in changes if _held(change.before) != _held(change.after)], session)
    remember(session, [(c.key, c.after.id) for c in changes if c.key is not None], now)


def _many(session: Session, table: sa.Table, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        session.connection().execute(_INSERTS[table], rows)


def _refuse_conflicts(session: Session, changes: Sequence[Change]) -> None:
    """Refuse all changes if one lease is not as it was read, or is changed twice."""
    wanted = [change.after.id for change in changes]
    found = session.connection().execute(_VERSIONS, {"wanted": wanted})
    stored = {row.id: row.version for row in found}
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
    found = {name: getattr(lease, name) for name in _CHANGING}
    return found | {"state": lease.state.value, "record": to_json(lease)}


def _insert(leases: Sequence[Lease], session: Session) -> None:
    _many(session, _LEASES, [{"id": lease.id, **_columns(lease)} for lease in leases])
    groups = [{"lease_id": x.id, "name": name} for x in leases for name in sorted(set(x.groups))]
    _many(session, _GROUPS, groups)


def _update(changes: Sequence[Change], session: Session) -> None:
    if not changes:
        return
    session.connection().execute(
        _UPDATE, [{"known_id": change.after.id, **_columns(change.after)} for change in changes]
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
    connection = session.connection()
    connection.execute(_DELETE_GRANTS, {"gone": gone})
    wanted = [(device, change.after.id) for change in changes for device in _held(change.after)]
    held = connection.execute(_HOLDERS, {"devices": [device for device, _ in wanted]})
    holders = {row.device: row.lease_id for row in held}
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
        )
    _many(session, _GRANTS, [{"device": d, "lease_id": lease_id} for d, lease_id in wanted])


def remember(session: Session, keys: Sequence[tuple[IdempotencyKey, str]], now: datetime) -> None:
    """Store keys with their leases; a second use for another change is refused.

    Expired keys are dropped.
    """
    if not keys:
        return
    connection = session.connection()
    connection.execute(_DELETE_KEYS, {"now": now})
    whose = {"keys": [key.key for key, _ in keys], "people": list({key.who for key, _ in keys})}
    found = connection.execute(_KNOWN_KEYS, whose)
    known = {(x.who, x.key): (x.fingerprint, x.lease_id) for x in found}
    fresh = []
    for key, lease_id in keys:
        meant = key.fingerprint, lease_id
        if (key.who, key.key) not in known:
            known[key.who, key.key] = meant
            members = {"who": key.who, "key": key.key, "expires": key.expires}
            fresh.append({**members, "fingerprint": key.fingerprint, "lease_id": lease_id})
        elif known[key.who, key.key] != meant:
            raise key_reused()
    _many(session, _KEYS, fresh)


def remembered(session: Session, key: IdempotencyKey, now: datetime) -> str | None:
    """Return the lease that a key was used for, ``None`` for a key that is new.

    Raises:
        GPULeaseError: ``key_reused`` (422): it was used for another change.
    """
    whose = {"keys": [key.key], "people": [key.who]}
    row = session.connection().execute(_KNOWN_KEYS, whose).one_or_none()
    if row is None or row.expires <= now:
        return None
    if row.fingerprint != key.fingerprint:
        raise key_reused()
    return str(row.lease_id)


def key_reused() -> GPULeaseError:
    """Return the error for an idempotency key that was used for another change."""
    return GPULeaseError(
        "key_reused",
        "This idempotency key was used for another change already.",
        next_step="Use a new key for a new change.",
    )


def add_evidence(
    session: Session, changes: Sequence[VerdictChange], minutes: Sequence[EvidenceMinute]
) -> None:
    """Store verdict changes; add parts of minutes to what is there."""
    verdicts = [{"lease_id": c.lease_id, "at": c.at, "verdict": c.verdict.value} for c in changes]
    _many(session, _VERDICTS, verdicts)
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
    )
