"""What goes into the store and comes out of it, as frozen dataclasses.

Owns the JSON form of a lease and the shapes of the store's answers.  Refuses to know SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from gpulease.policy.model import Lease, Verdict

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
class Page:
    """Leases, newest first; ``next`` asks for the following page, ``None`` at the end."""

    leases: tuple[Lease, ...]
    next: str | None


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


def to_json(lease: Lease) -> dict[str, Any]:
    """Return the lease as JSON values."""
    found: dict[str, Any] = _LEASE.dump_python(lease, mode="json")
    return found


def from_json(record: Mapping[str, Any]) -> Lease:
    """Return the lease; members that this version lacks are left out, new ones get defaults."""
    return _LEASE.validate_python(record)
