"""Who waits and who holds, first come first.

Where projects share devices, ``fairness`` decides whose turn it is.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import TypeVar

from gpulease.policy.lifecycle import HOLDING
from gpulease.policy.memo import keep, once
from gpulease.policy.model import GPUClass, Lease, LeaseState, PolicyDocument, Snapshot

V = TypeVar("V")


def order(lease: Lease) -> tuple[tuple[datetime, int], str]:
    """Sort key of the queue: the ticket, which survives every return to the queue."""
    return lease.ticket, lease.id


#: The same as ``order``, for whole queues.
_ORDER = attrgetter("place")


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
def by_person(snapshot: Snapshot) -> Mapping[str, Sequence[Lease]]:
    """Return the leases and requests of each person that have not ended."""
    found: dict[str, list[Lease]] = {}
    for lease in snapshot.leases:
        if lease.state is not LeaseState.ENDED:
            found.setdefault(lease.user, []).append(lease)
    return found


@once
def waiting_of(snapshot: Snapshot) -> Mapping[str, int]:
    """Return how many requests are queued of each person who has any."""
    return Counter([lease.user for lease in waiting(snapshot)])


def with_new(snapshot: Snapshot, request: Lease) -> Snapshot:
    """Return a snapshot in which one more request waits.

    Of hundreds that are made one after the other each needs to know those before it: what is known
    of thousands is not worked out anew.
    """
    more = replace(snapshot, leases=(*snapshot.leases, request))
    line, user = list(waiting(snapshot)), request.user
    insort(line, request, key=_ORDER)
    keep(waiting, more, tuple(line))
    theirs, numbers = by_person(snapshot), waiting_of(snapshot)
    keep(by_person, more, _put(theirs, user, (*theirs.get(user, ()), request)))
    keep(waiting_of, more, _put(numbers, user, numbers.get(user, 0) + 1))
    return more


def _put(known: Mapping[str, V], user: str, value: V) -> Mapping[str, V]:
    return {**known, user: value}


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
    keep(waiting, rest, waiting(snapshot))
    keep(waiting_ids, rest, waiting_ids(snapshot))
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
    for request in waiting(snapshot):
        found.setdefault(pool_of(snapshot, request), []).append(request)
    return found
