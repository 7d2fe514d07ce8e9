"""How long things have stood that should not: silence, and what is past its bound.

Owns these figures for the alerts.  Pure, from a snapshot.  Refuses to decide: the planner does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from gpulease.policy.model import Lease, LeaseState, Snapshot

#: Leases whose use counts: those that start have none yet, those that leave are not judged.
_JUDGED = frozenset({LeaseState.ACTIVE, LeaseState.WARNED})


def silences(snapshot: Snapshot) -> dict[str, float]:
    """Return, for each class, the seconds for which its most silent lease has had no evidence."""

    def silent(lease: Lease) -> datetime | None:
        evidence = snapshot.evidence.get(lease.id)
        if lease.state not in _JUDGED:
            return None
        return evidence.unknown_since if evidence is not None else lease.active_since

    return _longest(snapshot, silent)


def overdue(snapshot: Snapshot) -> dict[str, float]:
    """Return, for each class, the seconds by which its latest reclaim is past its bound.

    A warning has its end and a drain its longest time; what has ended has none left, and counts
    while the provider still shows it.
    """

    def bound(lease: Lease) -> datetime | None:
        if lease.state is LeaseState.WARNED:
            return lease.warned_until
        if lease.state is LeaseState.DRAINING:
            return lease.drain_until
        if lease.state is LeaseState.ENDED and lease.id in snapshot.observed:
            return lease.ended
        return None

    return _longest(snapshot, bound)


def device_uses(snapshot: Snapshot, free: set[str]) -> Iterator[tuple[str, str]]:
    """Yield each device's pool and use: ``free``, ``used``, ``quarantined`` or ``lost``.

    Args:
        snapshot: with all devices.
        free: identifiers of those that may be granted now.
    """
    for device in snapshot.devices:
        kept_out = device.serves == () and device.occupied_by is None
        if device.lost:
            yield device.pool, "lost"
        elif not device.healthy or kept_out:
            yield device.pool, "quarantined"
        else:
            yield device.pool, "free" if device.uuid in free else "used"


def _longest(snapshot: Snapshot, since: Callable[[Lease], datetime | None]) -> dict[str, float]:
    found = dict.fromkeys((each.name for each in snapshot.policy.classes), 0.0)
    for lease in snapshot.leases:
        at = since(lease)
        if at is not None:
            seconds = (snapshot.now - at).total_seconds()
            found[lease.gpu_class] = max(found.get(lease.gpu_class, 0.0), seconds)
    return found
