"""Leases that are over and of which something lives on that the provider cannot end."""

from __future__ import annotations

from gpulease.policy.model import Alert, Snapshot


def stuck(snapshot: Snapshot) -> list[Alert]:
    """Return an alert for each of them; its devices are out of service meanwhile."""
    return [
        Alert(
            lease_id,
            "stuck",
            f"Processes of lease {lease_id} live on though it is over, and the service may not end "
            "them: its GPU is out of service until they have ended. The service's log names them.",
        )
        for lease_id, seen in sorted(snapshot.observed.items())
        if seen.stuck
    ]
