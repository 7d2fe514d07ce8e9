"""The tables, and what goes into them and comes out, as frozen dataclasses.

``migrations`` makes the tables from these models.  A lease is stored whole as JSON in ``record``;
beside it stand only the columns that are searched, so a new member of ``Lease`` needs no migration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from sqlalchemy import (
    JSON,
    BigInteger,
    ColumnElement,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    LargeBinary,
    String,
    Text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

from gpulease.policy.model import Lease, Verdict

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class UTCDateTime(TypeDecorator[datetime]):
    """Timezone-aware UTC in and out; SQLite itself forgets the zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """Refuse naive times, store UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a zone cannot be stored")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """Give the zone back."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """Metadata of all tables."""


class LeaseRow(Base):
    """A request or lease."""

    __tablename__ = "leases"
    __table_args__ = (
        Index("ix_leases_created", "created", "id"),
        Index("ix_leases_user", "user", "created"),
        Index("ix_leases_ended", "ended", "id"),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    version: Mapped[int]
    user: Mapped[str] = mapped_column(String(255))
    server: Mapped[str] = mapped_column(String(255))
    gpu_class: Mapped[str] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(String(16), index=True)
    created: Mapped[datetime] = mapped_column(UTCDateTime)
    active_since: Mapped[datetime | None] = mapped_column(UTCDateTime)
    ended: Mapped[datetime | None] = mapped_column(UTCDateTime)
    nominated_for: Mapped[str | None] = mapped_column(String(64), index=True)
    record: Mapped[dict[str, Any]] = mapped_column(JSON)
    # Seconds, of the evidence that was taken away for its age.
    busy: Mapped[float] = mapped_column(Float, server_default="0")
    watched: Mapped[float] = mapped_column(Float, server_default="0")


class LeaseGroupRow(Base):
    """Which hub groups a lease's holder was in when asking: what an instructor may see."""

    __tablename__ = "lease_groups"

    lease_id: Mapped[str] = mapped_column(ForeignKey("leases.id"), primary_key=True)
    name: Mapped[str] = mapped_column(String(255), primary_key=True, index=True)


class GrantRow(Base):
    """A granted device.  Its key is why no device is ever granted twice."""

    __tablename__ = "grants"

    device: Mapped[str] = mapped_column(String(512), primary_key=True)
    lease_id: Mapped[str] = mapped_column(ForeignKey("leases.id"))


class TransitionRow(Base):
    """One recorded change of a lease: who, when, why."""

    __tablename__ = "transitions"
    __table_args__ = (
        Index("ix_transitions_lease", "lease_id", "version"),
        Index("ix_transitions_why", "why", "at"),
    )

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    lease_id: Mapped[str] = mapped_column(ForeignKey("leases.id"))
    version: Mapped[int]
    at: Mapped[datetime] = mapped_column(UTCDateTime)
    who: Mapped[str] = mapped_column(String(255))
    why: Mapped[str] = mapped_column(String(64))
    source: Mapped[str] = mapped_column(String(16))
    target: Mapped[str] = mapped_column(String(16))
    attempt: Mapped[int]
    note: Mapped[str] = mapped_column(Text)
    plan: Mapped[int | None]  # that it is of; plans go sooner than this row


class PlanRow(Base):
    """A plan that changed something: what it decided, and from what; ``store.plans`` reads it.

    ``before``: the bytes of all bodies before this one, so no sum is taken over the table.
    """

    __tablename__ = "plans"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    at: Mapped[datetime] = mapped_column(UTCDateTime, index=True)
    before: Mapped[int] = mapped_column(BigInteger, index=True)
    body: Mapped[bytes] = mapped_column(LargeBinary)


class ReservationRow(Base):
    """A reservation, stored whole like a lease."""

    __tablename__ = "reservations"
    __table_args__ = (Index("ix_reservations_group", "group_name", "name"),)

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    version: Mapped[int]
    group_name: Mapped[str] = mapped_column(String(255))
    name: Mapped[str] = mapped_column(String(255))
    cancelled: Mapped[bool]
    created: Mapped[datetime] = mapped_column(UTCDateTime)
    record: Mapped[dict[str, Any]] = mapped_column(JSON)


class ReservationEventRow(Base):
    """What happened to a reservation, and which messages its people got."""

    __tablename__ = "reservation_events"
    __table_args__ = (Index("ix_reservation_events", "reservation_id", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    reservation_id: Mapped[str] = mapped_column(ForeignKey("reservations.id"))
    at: Mapped[datetime] = mapped_column(UTCDateTime, index=True)
    who: Mapped[str] = mapped_column(String(255))
    what: Mapped[str] = mapped_column(String(64))
    note: Mapped[str] = mapped_column(Text)


class PolicyRow(Base):
    """One saved version of the policy document."""

    __tablename__ = "policy_versions"

    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    text: Mapped[str] = mapped_column(Text)
    who: Mapped[str] = mapped_column(String(255))
    at: Mapped[datetime] = mapped_column(UTCDateTime)
    note: Mapped[str] = mapped_column(Text)


class MetaRow(Base):
    """What the service must find again: instance id, the writer's epoch, how often it wrote."""

    __tablename__ = "meta"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[str] = mapped_column(Text)


class IdempotencyRow(Base):
    """Which lease a repeated ask of the same key means."""

    __tablename__ = "idempotency_keys"

    who: Mapped[str] = mapped_column(String(255), primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    lease_id: Mapped[str] = mapped_column(ForeignKey("leases.id"), index=True)
    expires: Mapped[datetime] = mapped_column(UTCDateTime, index=True)


class VerdictRow(Base):
    """A change of verdict; the samples themselves are never stored."""

    __tablename__ = "verdicts"
    __table_args__ = (Index("ix_verdicts_lease", "lease_id", "at"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    lease_id: Mapped[str] = mapped_column(ForeignKey("leases.id"))
    at: Mapped[datetime] = mapped_column(UTCDateTime, index=True)
    verdict: Mapped[str] = mapped_column(String(16))


class EvidenceMinuteRow(Base):
    """Seconds of each verdict in one minute of a lease, and the peak use.

    Older minutes are one row for each hour, at its first minute.
    """

    __tablename__ = "evidence_minutes"
    __table_args__ = (Index("ix_evidence_minutes_minute", "minute", "lease_id"),)

    lease_id: Mapped[str] = mapped_column(ForeignKey("leases.id"), primary_key=True)
    minute: Mapped[datetime] = mapped_column(UTCDateTime, primary_key=True)
    busy: Mapped[float] = mapped_column(Float)
    quiet: Mapped[float] = mapped_column(Float)
    idle: Mapped[float] = mapped_column(Float)
    unknown: Mapped[float] = mapped_column(Float)
    peak: Mapped[float | None] = mapped_column(Float)


class UsageRow(Base):
    """A stretch of a lease that was charged.  Rows are only added, and outlive their lease."""

    __tablename__ = "usage"
    __table_args__ = (
        Index("ix_usage_project", "project", "ended"),
        Index("ix_usage_user", "user", "ended"),
    )

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    lease_id: Mapped[str] = mapped_column(String(64))
    user: Mapped[str] = mapped_column(String(255))
    project: Mapped[str] = mapped_column(String(255))
    gpu_class: Mapped[str] = mapped_column(String(64))
    pool: Mapped[str] = mapped_column(String(64))
    units: Mapped[int]
    price: Mapped[float] = mapped_column(Float)
    began: Mapped[datetime] = mapped_column(UTCDateTime)
    ended: Mapped[datetime] = mapped_column(UTCDateTime, index=True)
    estimated: Mapped[bool]


class RunRow(Base):
    """A run of a whole notebook, stored whole like a lease."""

    __tablename__ = "runs"
    __table_args__ = (
        Index("ix_runs_created", "created", "id"),
        Index("ix_runs_user", "user", "created"),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    version: Mapped[int]
    user: Mapped[str] = mapped_column(String(255))
    state: Mapped[str] = mapped_column(String(16), index=True)
    cleared: Mapped[bool]
    created: Mapped[datetime] = mapped_column(UTCDateTime)
    ended: Mapped[datetime | None] = mapped_column(UTCDateTime, index=True)
    record: Mapped[dict[str, Any]] = mapped_column(JSON)


class RunEventRow(Base):
    """What happened to a run: who, when, why."""

    __tablename__ = "run_events"
    __table_args__ = (Index("ix_run_events_run", "run_id", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"))
    at: Mapped[datetime] = mapped_column(UTCDateTime)
    who: Mapped[str] = mapped_column(String(255))
    what: Mapped[str] = mapped_column(String(64))
    note: Mapped[str] = mapped_column(Text)


_LEASE = TypeAdapter(Lease)


@dataclass(frozen=True)
class IdempotencyKey:
    """A key that a caller gave its change; ``fingerprint`` tells whether it is the same change."""

    who: str
    key: str
    fingerprint: str
    expires: datetime


@dataclass(frozen=True)
class Change:
    """One lease to be written.

    ``before`` is the lease as it was read (``None`` for a new one): the write is refused when the
    stored version is another.  ``who`` and ``why`` go to the audit.
    """

    before: Lease | None
    after: Lease
    who: str
    why: str
    key: IdempotencyKey | None = None


@dataclass(frozen=True)
class TransitionRecord:
    """One row of a lease's audit, oldest first."""

    lease_id: str
    version: int
    at: datetime
    who: str
    why: str
    source: str
    target: str
    attempt: int
    note: str
    plan: int | None = None


@dataclass(frozen=True)
class AuditRecord:
    """A row of the audit, with whose lease it was."""

    lease_id: str
    user: str
    gpu_class: str
    at: datetime
    who: str
    why: str
    source: str
    target: str
    note: str


@dataclass(frozen=True)
class PolicyVersion:
    """One saved policy document."""

    version: int
    text: str
    who: str
    at: datetime
    note: str


@dataclass(frozen=True)
class VerdictChange:
    """The verdict that holds from ``at``."""

    lease_id: str
    at: datetime
    verdict: Verdict


@dataclass(frozen=True)
class EvidenceMinute:
    """Seconds of each verdict in one minute, or a part of it: parts are added up."""

    lease_id: str
    minute: datetime
    busy: float = 0.0
    quiet: float = 0.0
    idle: float = 0.0
    unknown: float = 0.0
    peak: float | None = None


def columns_of(row: type[Base], record: type[DataclassInstance]) -> list[ColumnElement[Any]]:
    """Return the columns of a table that the members of a record are, in their order."""
    return [getattr(row, each.name) for each in fields(record)]


def to_json(lease: Lease) -> dict[str, Any]:
    """Return the lease as JSON values."""
    found: dict[str, Any] = _LEASE.dump_python(lease, mode="json")
    return found


def from_json(record: Mapping[str, Any]) -> Lease:
    """Return the lease; members that this version lacks are left out, new ones get defaults."""
    return _LEASE.validate_python(record)
