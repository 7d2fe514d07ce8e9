"""Who waits and who holds, first come first; runs of whole notebooks wait and give way differently.

Where projects share devices, ``fairness`` decides whose turn it is.

Nobody sits at a run, so it can wait.  Its request *stands back*: every request of a person comes
before it, and nothing is taken back for it, however idle.  So that it does not wait for ever it
does so for ``batch_wait`` at most; from then on it is a request like any other, with the ticket it
has had from the beginning.  Then, whatever others ask, only those who asked before it are served
before it.  Without projects, or where its project is guaranteed a GPU, it has one after the longest
of the leases that run by then.

A run's lease *gives way* to a person's request however busy it is, after its minimum runtime, with
the ordinary warning; a cell that runs is let finish, for ``batch_cell`` at most.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TypeVar

from gpulease.policy.lifecycle import HOLDING, time_outs_of
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
    of thousands is not computed again.
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


def stands_back(request: Lease, snapshot: Snapshot) -> bool:
    """Whether a request lets everybody else go first."""
    waited = snapshot.now - request.ticket[0]
    return request.batch and waited < timedelta(seconds=snapshot.policy.batch_wait)


def gives_way(lease: Lease, snapshot: Snapshot) -> bool:
    """Whether a lease goes, used or not, where a person waits."""
    if not lease.batch or lease.state is not LeaseState.ACTIVE or lease.active_since is None:
        return False
    least = time_outs_of(snapshot.policy, lease).minimum_runtime
    return snapshot.now - lease.active_since >= timedelta(seconds=least)


def finishes_cell(lease: Lease, snapshot: Snapshot) -> bool:
    """Whether the drain of a lease that gives way is put off until its running cell has ended.

    Never beyond its hard end: that is nobody's to move.
    """
    evidence = snapshot.evidence.get(lease.id)
    if not lease.batch or evidence is None or not evidence.cells or lease.warned_until is None:
        return False
    until = lease.warned_until + timedelta(seconds=snapshot.policy.batch_cell)
    return snapshot.now < min(until, lease.hard_end or until)
