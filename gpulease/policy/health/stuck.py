"""Leases that are over and of which something lives on that the provider cannot end."""

from __future__ import annotations

from gpulease.policy.model import Alert, Snapshot


def stuck(snapshot: Snapshot) -> list[Alert]:
    """Return an alert for each of them; its devices are out of service meanwhile."""
    users = {lease.id: lease.user for lease in snapshot.leases}
    devices: dict[str, list[str]] = {}
    for each in snapshot.devices:
        if each.occupied_by is not None:
            devices.setdefault(each.occupied_by, []).append(each.uuid)
    return [
        Alert(
            lease_id,
            "stuck",
            f"Processes {', '.join(map(str, seen.left))} of lease {lease_id} "
            f"({users.get(lease_id, 'whose is not known')}) live on though it is over, and the "
            f"service may not end them: {', '.join(devices.get(lease_id, ['its GPU']))} is out of "
            "service. Look whose they are, then end them or put it back into service.",
        )
        for lease_id, seen in sorted(snapshot.observed.items())
        if seen.left
    ]
