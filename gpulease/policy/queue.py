"""Who waits and who holds, first come first.

Refuses to know devices, and whose turn it is where projects share them (``fairness``).
"""

from __future__ import annotations

from datetime import datetime

from gpulease.policy.lifecycle import HOLDING
from gpulease.policy.memo import once
from gpulease.policy.model import GPUClass, Lease, LeaseState, PolicyDocument, Snapshot


def order(lease: Lease) -> tuple[tuple[datetime, int], str]:
    """Sort key of the queue: the ticket, which survives every return to the queue."""
    return lease.ticket, lease.id


@once
def waiting(snapshot: Snapshot) -> tuple[Lease, ...]:
    """Return the queued requests, first come first."""
    return tuple(sorted((x for x in snapshot.leases if x.state is LeaseState.QUEUED), key=order))


@once
def waiting_ids(snapshot: Snapshot) -> frozenset[str]:
    """Return the identifiers of the queued requests."""
    return frozenset(lease.id for lease in waiting(snapshot))


@once
def holding(snapshot: Snapshot) -> tuple[Lease, ...]:
    """Return the leases that hold devices, by ticket."""
    return tuple(sorted((x for x in snapshot.leases if x.state in HOLDING), key=order))


def class_of(policy: PolicyDocument, name: str) -> GPUClass | None:
    """Return the class on offer by this name, or ``None``."""
    return next((c for c in policy.classes if c.name == name), None)


def pool_of(snapshot: Snapshot, lease: Lease) -> str:
    """Return the pool a lease draws on; one whose class is gone belongs to its devices' pool."""
    gpu_class = class_of(snapshot.policy, lease.gpu_class)
    if gpu_class is not None:
        return gpu_class.pool
    return next((d.pool for d in snapshot.devices if d.uuid in lease.devices), "")
