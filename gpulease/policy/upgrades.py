"""What of a lease's wish is free by now: the class that was asked for, or more devices of its own.

It is admitted by the very rules of everybody, as
if it were asked for anew and with its own devices kept for it; nobody leaves for a wish, and it is
never granted by itself, for the lease is drained for it: its holder has to say so.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpulease.errors import GPULeaseError
from gpulease.policy import capacity, queue
from gpulease.policy.admission import admit, holds
from gpulease.policy.model import Lease, LeaseState, Shape, Snapshot, Start
from gpulease.texts import Text


def has_wish(lease: Lease) -> bool:
    """Whether an active lease is less than what was asked for."""
    return lease.state is LeaseState.ACTIVE and bool(lease.asked_class or lease.asked_count)


def within_reach(snapshot: Snapshot) -> dict[str, Shape]:
    """Return the best of what was asked for that each lease could be now, all of them at once.

    The class comes first, then the number of devices; no lease has fewer of them than now.  A
    device is offered to one of them only: to whoever asked first, as everywhere.
    """
    if not snapshot.capacity_known:
        return {}
    first = sorted(filter(has_wish, snapshot.leases), key=lambda lease: lease.ticket)
    wishing = {lease.id: lease for lease in first}
    left = {name: options for name, x in wishing.items() if (options := _better(snapshot, x))}
    found: dict[str, Shape] = {}
    while left:  # as often as one of them has options
        asked = [(wishing[name], *options[0]) for name, options in left.items()]
        found |= _admitted(snapshot, asked, found)
        left = {
            name: options[1:]
            for name, options in left.items()
            if name not in found and len(options) > 1
        }
    return found


def granted(snapshot: Snapshot, lease: Lease) -> Shape:
    """Return what a lease becomes at its holder's word.

    Raises:
        GPULeaseError: ``nothing_wished``, ``wish_not_free`` (status 409).
    """
    if not has_wish(lease):
        raise GPULeaseError(
            "nothing_wished",
            Text("There is nothing to change: this lease is what you asked for."),
            next_step=Text("For another GPU return this one first, then ask for it."),
            status=409,
        )
    found = _first(snapshot, lease)
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


def _first(snapshot: Snapshot, lease: Lease) -> Shape | None:
    """Return what one lease could be now, whatever others wish."""
    for option in _better(snapshot, lease) if snapshot.capacity_known else ():
        found = _admitted(snapshot, [(lease, *option)], {})
        if found:
            return found[lease.id]
    return None


def _better(snapshot: Snapshot, lease: Lease) -> list[tuple[str, int]]:
    """Return what would be nearer to the wish and may have enough devices, best first."""
    free = capacity.free_devices(snapshot)
    most, found = lease.asked_count or lease.count, []
    for name in filter(None, (lease.asked_class, lease.gpu_class)):
        gpu_class = queue.class_of(snapshot.policy, name)
        if gpu_class is None or gpu_class.queue is not None:  # the cluster's queue promises nothing
            continue
        mine = queue.pool_of(snapshot, lease) == gpu_class.pool
        there = len(free.get(gpu_class.pool, ())) + (len(lease.devices) if mine else 0)
        least = lease.count + (name == lease.gpu_class)
        counts = range(min(most, there, gpu_class.most), least - 1, -1)
        found += [(name, count) for count in counts if _may_be(lease, count, most)]
    return found


def _may_be(lease: Lease, count: int, most: int) -> bool:
    """Whether a lease can be of so many devices: equal parts of its nodes, a step of its class."""
    return count % lease.nodes == 0 and (not lease.steps or count in (most, *lease.steps))


def _admitted(
    snapshot: Snapshot, asked: Sequence[tuple[Lease, str, int]], before: Mapping[str, Shape]
) -> dict[str, Shape]:
    """Return what a plan would grant if these waited for a class and count, last of all.

    Their own devices are kept for each, and what is found ``before`` for others.
    """
    asks = {
        lease.id: replace(
            lease,
            state=LeaseState.QUEUED,
            gpu_class=gpu_class,
            asked_class="",
            count=count,
            asked_count=0,
            min_count=0,
            devices=(),
            reason="",
            ticket=(snapshot.now, sys.maxsize - len(asked) + place),
        )
        for place, (lease, gpu_class, count) in enumerate(asked)
    }
    own = {uuid: lease.id for lease, _, _ in asked for uuid in lease.devices}
    devices = [replace(d, occupied_by=None) if d.uuid in own else d for d in snapshot.devices]
    leases = [asks.get(each.id, each) for each in snapshot.leases]
    then = replace(snapshot, devices=tuple(devices), leases=tuple(leases))
    taken = {uuid: name for name, shape in before.items() for uuid in shape.devices}
    return {
        action.lease_id: Shape(asks[action.lease_id].gpu_class, action.devices)
        for action in admit(then, {**holds(then), **taken, **own}).actions
        if isinstance(action, Start)
        and action.lease_id in asks
        and action.devices
        and action.gpu_class in ("", asks[action.lease_id].gpu_class)
    }
