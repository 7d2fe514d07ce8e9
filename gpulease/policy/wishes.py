"""What of a lease's wish is free by now: the class that was asked for, or more devices of its own.

Owns when a lease may become what was asked for.  It is admitted by the very rules of everybody, as
if it were asked for anew and with its own devices kept for it; nobody leaves for a wish, and it is
never granted by itself, for the lease is drained for it: its holder has to say so.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

from gpulease.errors import GPULeaseError
from gpulease.policy import capacity, queue
from gpulease.policy.admission import admit, holds
from gpulease.policy.model import Lease, LeaseState, Shape, Snapshot, Start
from gpulease.texts import Text


def has_wish(lease: Lease) -> bool:
    """Whether an active lease is less than what was asked for."""
    return lease.state is LeaseState.ACTIVE and bool(lease.asked_class or lease.asked_count)


def within_reach(snapshot: Snapshot, lease: Lease) -> Shape | None:
    """Return the best of what was asked for that a lease could be now, ``None`` for nothing.

    The class comes first, then the number of devices; it never has fewer of them than now.
    """
    if not has_wish(lease) or not snapshot.capacity_known:
        return None
    for gpu_class, count in _better(snapshot, lease):
        found = _admitted(snapshot, lease, gpu_class, count)
        if found is not None:
            return found
    return None


def granted(snapshot: Snapshot, lease: Lease) -> Shape:
    """Return what a lease becomes at its holder's word.

    Raises:
        GPULeaseError: ``nothing_wished``, ``wish_not_free`` (status 409).
    """
    if lease.state is not LeaseState.ACTIVE or not has_wish(lease):
        raise GPULeaseError(
            "nothing_wished",
            Text("There is nothing to change: this lease is what you asked for."),
            next_step=Text("For another GPU return this one first, then ask for it."),
            status=409,
        )
    found = within_reach(snapshot, lease)
    if found is None:
        raise GPULeaseError(
            "wish_not_free",
            Text("What you asked for is not free at present."),
            next_step=Text("You are told when it is; work on with what you have."),
            numbers={
                "gpu_class": lease.asked_class or lease.gpu_class,
                "count": lease.asked_count or lease.count,
            },
            status=409,
        )
    return found


def _better(snapshot: Snapshot, lease: Lease) -> Iterator[tuple[str, int]]:
    """Yield what would be nearer to the wish and may have enough devices, best first."""
    free = capacity.free_devices(snapshot)
    most = lease.asked_count or lease.count
    for name in filter(None, (lease.asked_class, lease.gpu_class)):
        gpu_class = queue.class_of(snapshot.policy, name)
        if gpu_class is None or gpu_class.queue is not None:  # the cluster's queue promises nothing
            continue
        mine = queue.pool_of(snapshot, lease) == gpu_class.pool
        there = len(free.get(gpu_class.pool, ())) + (len(lease.devices) if mine else 0)
        least = lease.count + (name == lease.gpu_class)
        for count in range(min(most, there, gpu_class.max_count), least - 1, -1):
            if count % lease.nodes == 0:
                yield name, count


def _admitted(snapshot: Snapshot, lease: Lease, gpu_class: str, count: int) -> Shape | None:
    """Return what a plan would grant if the lease waited for this, with its devices kept for it."""
    own = frozenset(lease.devices)
    asks = replace(
        lease,
        state=LeaseState.QUEUED,
        gpu_class=gpu_class,
        asked_class="",
        count=count,
        asked_count=0,
        min_count=0,
        devices=(),
        reason="",
        ticket=(snapshot.now, sys.maxsize),
    )
    devices = [replace(d, occupied_by=None) if d.uuid in own else d for d in snapshot.devices]
    others = [each for each in snapshot.leases if each.id != lease.id]
    then = replace(snapshot, devices=tuple(devices), leases=(*others, asks))
    held = {**holds(then), **dict.fromkeys(own, lease.id)}
    for action in admit(then, held).actions:
        if isinstance(action, Start) and action.lease_id == lease.id and action.devices:
            same = action.gpu_class in ("", gpu_class)
            return Shape(gpu_class, action.devices) if same else None
    return None
