"""Takes in leases that run although the store does not know them: it was restored from a backup.

Such a lease goes on for an hour at least, so that a restored backup does not
end a class's work, and an admin is told.  Pure.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from gpulease.policy.model import Alert, Lease, LeaseState, Observed

_NOTHING_PLANNED: dict[str, Any] = {
    "not_before": None,
    "stage_since": None,
    "warned_until": None,
    "drain_until": None,
    "end_reason_wanted": None,
    "nominated_for": None,
    "park": False,
}
#: Seconds that an adopted lease is left in peace, and after which it ends.
PEACE = 3600.0


def adopted(seen: Observed, known: Lease | None, now: datetime) -> Lease | None:
    """Return the lease as it stands once adopted; ``None`` when there is nothing to adopt.

    Args:
        seen: what runs, with what it says of itself.
        known: the lease as the store has it, ``None`` when it has none.
        now: the present.

    A lease that the store knows is adopted only where a later attempt runs than it knows of.
    """
    record = seen.record
    if record is None or not seen.devices or (known and known.attempt >= seen.attempt):
        return None
    if known is not None and known.state is LeaseState.ENDED:
        return None  # an end is never taken back
    until = now + timedelta(seconds=PEACE)
    wanted = record.hard_end
    return replace(
        known or record,
        attempt=seen.attempt,
        devices=seen.devices,
        count=len(seen.devices),
        state=LeaseState.ACTIVE,
        reason="connected",
        state_since=now,
        active_since=record.active_since,
        claimed=now,
        charged_from=now,
        idle_from=until,  # nothing is known of its use: idleness counts from then on only
        hard_end=until if wanted is None or wanted > until else max(wanted, now),
        version=known.version + 1 if known is not None else record.version,
        **_NOTHING_PLANNED,
    )


def alert(lease: Lease) -> Alert:
    """Return what an admin is told of an adopted lease."""
    return Alert(
        lease.id,
        "adopted",
        f"Lease {lease.id} of {lease.user} runs, but the database does not know it: was it "
        "restored from a backup?  It goes on for an hour at most.",
    )
