"""Leases that wait for a node though a device of their pool has come free meanwhile.

Their pods were made for new nodes only, so that they take no device from whose turn it is.  They go
back to the queue, with their place in it; the device is kept for them until they stand there.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Final

from gpulease.policy import capacity, queue
from gpulease.policy.capacity import fitting, growth
from gpulease.policy.capacity.inventory import Inventory
from gpulease.policy.model import Requeue, Snapshot
from gpulease.policy.reservations.seats import Doors

#: Why a lease is back in the queue for which a device of its pool came free.
CAME_FREE: Final = "came_free"


def came_free(
    snapshot: Snapshot, held: Mapping[str, str], settled: Set[str]
) -> tuple[dict[str, Requeue], dict[str, str]]:
    """Return the steps of these leases, by lease, and the devices that are kept for them.

    Args:
        held: device -> the request that it is kept for.
        settled: the leases that have their step in this plan already.
    """
    steps: dict[str, Requeue] = {}
    kept: dict[str, str] = {}
    waiting = growth.awaiting(snapshot)
    free = capacity.free_devices(snapshot) if waiting else {}
    pools = {each.name for each in snapshot.policy.pools if not each.paused}
    doors = Doors(snapshot, {pool: len(found) for pool, found in free.items()}) if free else None
    for pool in sorted(waiting.keys() & free.keys() & pools):
        left = Inventory(free[pool], held)
        for back in queue.by_pool(snapshot).get(pool, ()):
            if back.reason == CAME_FREE:  # or they would take it from each other, for ever
                left.take(fitting.for_request(left.loose(back.gpu_class, back.needs), back))
        for lease in waiting[pool]:
            if lease.id in settled or doors is None or doors.refusal(lease, pool):
                continue
            line = left.loose(lease.gpu_class, lease.needs)
            chosen = fitting.for_request(line, lease)
            if len(chosen) == lease.count:
                left.take(chosen)
                doors.let_in(lease, pool)
                steps[lease.id] = Requeue(lease.id, CAME_FREE, snapshot.now, failure=False)
                kept |= {device.uuid: lease.id for device in chosen}
    return steps, kept
