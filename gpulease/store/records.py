"""What goes into the store and comes out of it, as frozen dataclasses.

Owns the JSON form of a lease and the shapes of the store's answers.  Refuses to know SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

from gpulease.policy.model import EndReason, Lease, LeaseState, Verdict

_TIMES = frozenset(
    {
        "created",
        "state_since",
        "not_before",
        "stage_since",
        "active_since",
        "idle_from",
        "claimed",
        "hard_end",
        "warned_until",
        "drain_until",
        "kept_until",
        "ended",
        "charged_from",
        "charged_until",
    }
)
_TUPLES = frozenset({"groups", "devices"})
_END_REASONS = frozenset({"end_reason", "end_reason_wanted"})


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
class Incident:
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
    return {field.name: _plain(getattr(lease, field.name)) for field in fields(lease)}


def from_json(record: Mapping[str, Any]) -> Lease:
    """Return the lease; members that this version lacks are left out, new ones get defaults."""
    known = {field.name for field in fields(Lease)}
    return Lease(**{name: _typed(name, record[name]) for name in record if name in known})


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, (tuple, list)):
        return [_plain(each) for each in value]
    return value


def _typed(name: str, value: Any) -> Any:
    read = _READ.get(name)
    return value if value is None or read is None else read(value)


def _ticket(value: list[Any]) -> tuple[datetime, int]:
    return datetime.fromisoformat(value[0]), value[1]


def _pairs(value: list[list[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, why) for name, why in value)


_READ: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_TIMES, datetime.fromisoformat),
    **dict.fromkeys(_TUPLES, tuple),
    **dict.fromkeys(_END_REASONS, EndReason),
    "state": LeaseState,
    "ticket": _ticket,
    "blockers": _pairs,
}
