"""Capacity that is not there yet: pools to which nodes are added when lease pods wait for them.

Here is who waits for a node, and how many more may.  What will come is promised to nobody: it
counts once it is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from gpulease.policy.memo import once
from gpulease.policy.model import Lease, LeaseState, PolicyDocument, Snapshot
from gpulease.policy.queue import holding


@once
def awaiting(snapshot: Snapshot) -> Mapping[str, Sequence[Lease]]:
    """Return, by pool, the leases that wait for a node to be added, first come first."""
    found: dict[str, list[Lease]] = {}
    for lease in holding(snapshot) if snapshot.grows and snapshot.policy.elastic else ():
        seen = snapshot.observed.get(lease.id)
        landed = seen is not None and seen.attempt == lease.attempt and seen.devices
        if not landed and waits_for_node(lease, snapshot.policy):
            found.setdefault(lease.pool, []).append(lease)
    return found


def waits_for_node(lease: Lease, policy: PolicyDocument) -> bool:
    """Whether a lease waits for a node to be added, by its record: it is granted no device yet.

    Its pod may have landed since; ``awaiting`` looks at that too.
    """
    waits = lease.state is LeaseState.STARTING and not lease.devices
    return waits and lease.pool in policy.elastic


class Growth:
    """How much more each elastic pool may be asked for while one plan is made."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._pods: Counter[str] = Counter()
        self._devices: Counter[str] = Counter()
        if not snapshot.grows or not snapshot.capacity_known:
            return
        there = Counter(device.pool for device in snapshot.devices if not device.leaving)
        for pool, elastic in snapshot.policy.elastic.items():
            waiting = awaiting(snapshot).get(pool, ())
            coming = sum(lease.count for lease in waiting)
            self._pods[pool] = elastic.max_pending - len(waiting)
            self._devices[pool] = elastic.max - there[pool] - coming

    def grows(self, pool: str) -> bool:
        """Whether nodes can be added to a pool, now or later."""
        return pool in self._devices

    def allows(self, pool: str, count: int = 1) -> bool:
        """Whether one more lease may wait for so many devices of a pool to be added."""
        return self._pods[pool] > 0 and self._devices[pool] >= count

    def ask(self, pool: str, count: int) -> None:
        """Count a lease that waits from now on."""
        self._pods[pool] -= 1
        self._devices[pool] -= count

    def left(self, pool: str) -> int:
        """Return how many more devices may be asked for by requests for one each."""
        return max(0, min(self._pods[pool], self._devices[pool]))


def most(snapshot: Snapshot, pool: str, there: int) -> int:
    """Return how many devices a pool can have at all, of which so many are there."""
    elastic = snapshot.policy.elastic.get(pool)
    return max(there, elastic.max) if elastic is not None and snapshot.grows else there


def promised(policy: PolicyDocument, pool: str, there: int) -> int:
    """Return how many of the devices that are there reservations may count on."""
    elastic = policy.elastic.get(pool)
    return there if elastic is None else min(there, elastic.promised)
