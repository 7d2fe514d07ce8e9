"""Who waits and who holds, first come first.

Refuses to know devices, and whose turn it is where projects share them (``fairness``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime
from operator import attrgetter

from gpulease.policy.lifecycle import HOLDING
from gpulease.policy.memo import carry, once
from gpulease.policy.model import GPUClass, Lease, LeaseState, PolicyDocument, Snapshot


def order(lease: Lease) -> tuple[tuple[datetime, int], str]:
    """Sort key of the queue: the ticket, which survives every return to the queue."""
    return lease.ticket, lease.id


#: The same as ``order``, for whole queues.
_ORDER = attrgetter("ticket", "id")


@once
def waiting(snapshot: Snapshot) -> tuple[Lease, ...]:
    """Return the queued requests, first come first."""
    queued = LeaseState.QUEUED
    return tuple(sorted([x for x in snapshot.leases if x.state is queued], key=_ORDER))


@once
def waiting_ids(snapshot: Snapshot) -> frozenset[str]:
    """Return the identifiers of the queued requests."""
    return frozenset([lease.id for lease in waiting(snapshot)])


@once
def reshaping(snapshot: Snapshot) -> tuple[Lease, ...]:
    """Return the requests that are leases in another shape: what they need is held for them."""
    return tuple([lease for lease in waiting(snapshot) if lease.kept])


@once
def becoming(snapshot: Snapshot) -> frozenset[str]:
    """Return the leases that become another shape or just did: what is held for them is theirs."""
    drained = {lease.id for lease in holding(snapshot) if lease.becomes is not None}
    return frozenset(drained.union(lease.id for lease in reshaping(snapshot)))


@once
def holding(snapshot: Snapshot) -> tuple[Lease, ...]:
    """Return the leases that hold devices, by ticket."""
    return tuple(sorted([x for x in snapshot.leases if x.state in HOLDING], key=_ORDER))


def without(snapshot: Snapshot, settled: Set[str]) -> Snapshot:
    """Return a snapshot without some of its leases that hold devices."""
    if not settled:
        return snapshot
    rest = replace(snapshot, leases=tuple([x for x in snapshot.leases if x.id not in settled]))
    carry(waiting, snapshot, rest)
    carry(waiting_ids, snapshot, rest)
    return rest


def class_of(policy: PolicyDocument, name: str) -> GPUClass | None:
    """Return the class on offer by this name, or ``None``."""
    return policy.by_name.get(name)


def pool_of(snapshot: Snapshot, lease: Lease) -> str:
    """Return the pool a lease draws on; one whose class is gone belongs to its devices' pool."""
    gpu_class = snapshot.policy.by_name.get(lease.gpu_class)
    if gpu_class is not None:
        return gpu_class.pool
    if not lease.devices:
        return ""
    return next((d.pool for d in snapshot.devices if d.uuid in lease.devices), "")


@once
def by_pool(snapshot: Snapshot) -> Mapping[str, Sequence[Lease]]:
    """Return the queued requests of each pool, first come first; a pool whose first is first."""
    found: dict[str, list[Lease]] = {}
    classes = snapshot.policy.by_name
    for request in waiting(snapshot):
        gpu_class = classes.get(request.gpu_class)
        pool = gpu_class.pool if gpu_class is not None else pool_of(snapshot, request)
        known = found.get(pool)
        if known is None:
            known = found[pool] = []
        known.append(request)
    return found
