"""One person's data: everything of it, and taking the name away from it.

What a university must be able to do for a person.  The use of GPUs stays, under a pseudonym: other
people's shares and a course's figures are made of it.
"""

from __future__ import annotations

import json
import secrets
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

from gpulease.errors import GPULeaseError
from gpulease.policy.model import LeaseState
from gpulease.store import history, runs, usage
from gpulease.store.history import busy_seconds
from gpulease.store.models import (
    IdempotencyRow,
    LeaseRow,
    MetaRow,
    PolicyRow,
    ReservationEventRow,
    ReservationRow,
    TransitionRow,
    VerdictRow,
)

#: Under this name the service notes its messages to groups, as JSON.
MESSAGES: Final = "messages"
#: Members of a lease that may hold words of a person's own: names of variables, a note.
_WORDS: Final[dict[str, Any]] = {
    "server": "",
    "kernel_id": None,
    "end_note": "",
    "detail": "",
    "blockers": [],
}


def export(session: Session, user: str) -> dict[str, Any]:
    """Return all that is stored about a person, as JSON values."""
    leases = session.scalars(
        sa.select(LeaseRow).where(LeaseRow.user == user).order_by(LeaseRow.created)
    ).all()
    ids = [lease.id for lease in leases]
    use = busy_seconds(session, ids)
    return {
        "user": user,
        "leases": [_lease(session, lease, *use.get(lease.id, (0.0, 0.0))) for lease in leases],
        "changes_of_others_leases": [
            {"lease": row.lease_id, **_change(row)}
            for row in session.scalars(
                sa.select(TransitionRow)
                .join(LeaseRow, LeaseRow.id == TransitionRow.lease_id)
                .where(TransitionRow.who == user, LeaseRow.user != user)
                .order_by(TransitionRow.id)
            )
        ],
        "reservations": [
            record
            for record in session.scalars(sa.select(ReservationRow.record))
            if _named(record, user, "") != record
        ],
        "reservation_events": [
            {
                "reservation": row.reservation_id,
                "at": row.at.isoformat(),
                "what": row.what,
                "note": row.note,
            }
            for row in session.scalars(
                sa.select(ReservationEventRow)
                .where(ReservationEventRow.who == user)
                .order_by(ReservationEventRow.id)
            )
        ],
        "messages": [each for each in _messages(session) if each["by"] == user],
        "usage": usage.of_user(session, user),
        "runs": runs.of_user(session, user),
        "plans": _planned(session, user),
        "policy_versions": [
            {"version": row.version, "at": row.at.isoformat(), "note": row.note}
            for row in session.scalars(sa.select(PolicyRow).where(PolicyRow.who == user))
        ],
    }


def _lease(session: Session, lease: LeaseRow, busy: float, watched: float) -> dict[str, Any]:
    """Return one lease with what happened to it; ``busy`` and ``watched`` in seconds."""
    changes = sa.select(TransitionRow).where(TransitionRow.lease_id == lease.id)
    verdicts = sa.select(VerdictRow).where(VerdictRow.lease_id == lease.id)
    return {
        **lease.record,
        "busy_seconds": busy,
        "watched_seconds": watched,
        "changes": [_change(row) for row in session.scalars(changes.order_by(TransitionRow.id))],
        "verdicts": [
            {"at": row.at.isoformat(), "verdict": row.verdict}
            for row in session.scalars(verdicts.order_by(VerdictRow.at))
        ],
    }


def forget(session: Session, user: str) -> tuple[str, int]:
    """Put a new pseudonym in the place of a person; return it, and how many leases were theirs.

    Raises:
        GPULeaseError: ``still_leasing`` (409): leases, requests or runs of theirs have not ended.
    """
    live = sa.select(sa.func.count()).where(
        LeaseRow.user == user, LeaseRow.state != LeaseState.ENDED.value
    )
    number = session.scalar(live) or 0
    if number:
        raise GPULeaseError(
            "still_leasing",
            f"Leases or requests of {user} that have not ended: {number}.",
            next_step="End them first: gpulease admin end LEASE --reason TEXT.",
            numbers={"leases": number},
        )
    if running := runs.unended_of(session, user):
        raise GPULeaseError(
            "still_leasing",
            f"{running} runs of {user} have not ended.",
            next_step="Cancel them first: gpulease runs cancel RUN.",
            numbers={"runs": running},
        )
    if not any(value for name, value in export(session, user).items() if name != "user"):
        raise GPULeaseError(
            "unknown_person",
            f"Nothing is stored under the name {user}.",
            next_step="See that it is written as at the hub; `gpulease admin export` shows more.",
        )
    pseudonym = f"forgotten-{secrets.token_hex(6)}"
    leases = session.scalars(sa.select(LeaseRow).where(LeaseRow.user == user)).all()
    for lease in leases:
        lease.user, lease.server = pseudonym, ""
        lease.record = {**lease.record, **_WORDS, "user": pseudonym}
    session.flush()
    theirs = sa.select(LeaseRow.id).where(LeaseRow.user == pseudonym)
    session.execute(
        sa.update(TransitionRow).where(TransitionRow.lease_id.in_(theirs)).values(note="")
    )
    for reservation in session.scalars(sa.select(ReservationRow)):
        reservation.record = _named(reservation.record, user, pseudonym)
    for row in (TransitionRow, PolicyRow, ReservationEventRow):
        session.execute(sa.update(row).where(row.who == user).values(who=pseudonym))
        # What others wrote about them.
        session.execute(
            sa.update(row).where(row.note.contains(user, autoescape=True)).values(note="")
        )
    kept = [x for x in _messages(session) if x["by"] != user and user not in x["text"]]
    session.merge(MetaRow(name=f"note:{MESSAGES}", value=json.dumps(kept)))
    usage.rename(session, user, pseudonym)
    runs.rename(session, user, pseudonym)
    history.rewrite(session, lambda kept: _without(kept, user, pseudonym))
    session.execute(sa.delete(IdempotencyRow).where(IdempotencyRow.who == user))
    return pseudonym, len(leases)


def _messages(session: Session) -> list[dict[str, Any]]:
    row = session.get(MetaRow, f"note:{MESSAGES}")
    found: list[dict[str, Any]] = json.loads(row.value) if row is not None and row.value else []
    return found


def _change(row: TransitionRow) -> dict[str, Any]:
    return {
        "at": row.at.isoformat(),
        "who": row.who,
        "why": row.why,
        "from": row.source,
        "to": row.target,
        "note": row.note,
    }


def _planned(session: Session, user: str) -> list[dict[str, Any]]:
    """Return what the kept plans decided about a person's leases, without others' names."""
    return [
        {"at": at.isoformat(), "lease": lease_id, "inputs": each["words"], **each["numbers"]}
        for at, plan in history.bodies(session)
        for lease_id, each in plan["leases"].items()
        if each["user"] == user
    ]


def _without(plan: dict[str, Any], user: str, pseudonym: str) -> dict[str, Any]:
    """Return a plan with the pseudonym in the person's place, and without words about them."""
    found: dict[str, Any] = _named(plan, user, pseudonym)
    for each in found["leases"].values():
        # The provider's words: it may have named a pod for them.
        if each["user"] == pseudonym or user in each["numbers"].get("detail", ""):
            each["numbers"].pop("detail", None)
    return found


def _named(value: Any, user: str, other: str) -> Any:
    """Return JSON values with another name wherever the person's own stands."""
    if isinstance(value, dict):
        return {_named(key, user, other): _named(each, user, other) for key, each in value.items()}
    if isinstance(value, list):
        return [_named(each, user, other) for each in value]
    return other if value == user else value
