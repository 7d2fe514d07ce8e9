"""The statements that read and write reservations, inside a transaction of ``store``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final

import sqlalchemy as sa
from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.reservation import Reservation
from gpulease.store.models import ReservationEventRow, ReservationRow, columns_of

#: Members that this version lacks are left out, new ones get defaults.
_RESERVATION: Final = TypeAdapter(Reservation)


@dataclass(frozen=True)
class ReservationEvent:
    """What happened to a reservation: who did it, or who was notified of what."""

    reservation_id: str
    at: datetime
    who: str
    what: str
    note: str


def read(session: Session) -> list[Reservation]:
    """Return every reservation, cancelled ones too, oldest first."""
    query = sa.select(ReservationRow.record).order_by(ReservationRow.created, ReservationRow.id)
    return [_RESERVATION.validate_python(record) for record in session.scalars(query)]


def save(
    session: Session, before: Reservation | None, after: Reservation, event: ReservationEvent
) -> None:
    """Write one reservation and what happened to it.

    Raises:
        GPULeaseError: ``reservation_changed`` (409): it is not as it was read.
    """
    row = session.get(ReservationRow, after.id)
    if (row.version if row is not None else None) != (before.version if before else None):
        raise changed(after.id)
    if row is None:
        row = ReservationRow(id=after.id, created=after.created)
        session.add(row)
    row.version, row.group_name, row.name = after.version, after.group, after.name
    row.cancelled = after.cancelled
    row.record = _RESERVATION.dump_python(after, mode="json")
    session.flush()
    note(session, event)


def note(session: Session, event: ReservationEvent) -> None:
    """Add a row of what happened."""
    session.add(ReservationEventRow(**asdict(event)))


def drop(session: Session, ids: Sequence[str]) -> None:
    """Take reservations away, with what happened to them."""
    session.execute(
        sa.delete(ReservationEventRow).where(ReservationEventRow.reservation_id.in_(ids))
    )
    session.execute(sa.delete(ReservationRow).where(ReservationRow.id.in_(ids)))


def events(session: Session, reservation_id: str | None, what: str) -> list[ReservationEvent]:
    """Return what happened, oldest first: to one or all, of one kind or (``""``) any."""
    row = ReservationEventRow
    query = sa.select(*columns_of(row, ReservationEvent)).order_by(row.id)
    if reservation_id is not None:
        query = query.where(row.reservation_id == reservation_id)
    if what:
        query = query.where(row.what == what)
    return [ReservationEvent(*found) for found in session.execute(query)]


def changed(reservation_id: str) -> GPULeaseError:
    """Return the refusal of a change to what somebody else changed meanwhile."""
    return GPULeaseError(
        "reservation_changed",
        "This reservation was changed meanwhile.",
        next_step="Load it, make your change again and save.",
        numbers={"reservation": reservation_id},
    )
