"""Whether a lease of a snapshot has been unused for long enough to be taken."""

from __future__ import annotations

from gpulease.policy.evidence.idleness import idle_case
from gpulease.policy.health import observed_of
from gpulease.policy.model import Lease, Snapshot
from gpulease.policy.reservations.seats import time_outs_at


def why_idle(snapshot: Snapshot, lease: Lease, under_pressure: bool) -> str:
    """Return why the lease counts as unused for long enough, or ``""``; see ``idle_case``."""
    return idle_case(
        lease,
        snapshot.evidence.get(lease.id),
        observed_of(snapshot, lease),
        snapshot.now,
        time_outs_at(snapshot, lease),
        under_pressure=under_pressure,
    )
