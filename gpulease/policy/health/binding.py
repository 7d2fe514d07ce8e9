"""Brings the record of who has which device into step with where things really run.

Where the provider, not the plan, decides on which device a lease lands, the granted device is an
assumption.  Owns the correction: a lease that landed has what it landed on; one that still waits
for its place gives way and takes what the other left.  Pure.
"""

from __future__ import annotations

from collections.abc import Set

from gpulease.policy.capacity import fitting, grantable, known_devices
from gpulease.policy.capacity.inventory import Inventory, joined
from gpulease.policy.health.checks import observed_of
from gpulease.policy.model import Device, Lease, LeaseState, Snapshot
from gpulease.policy.queue import holding


def bindings(snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """Return the right devices of each lease whose record is wrong.

    A lease that waits may be left with fewer devices than it asked for: somebody else has landed
    on them, and there is no room for it at present.
    """
    if not snapshot.capacity_known:
        return {}
    landed = {
        lease.id: actual for lease in holding(snapshot) if (actual := _actual(snapshot, lease))
    }
    owner = {uuid: lease_id for lease_id, actual in landed.items() for uuid in actual}
    wrong = {
        lease.id: landed[lease.id]
        for lease in holding(snapshot)
        if lease.id in landed and set(landed[lease.id]) != set(lease.devices)
    }
    waiting = [lease for lease in holding(snapshot) if lease.id not in landed]
    displaced = [x for x in waiting if any(uuid in owner for uuid in x.devices)]
    if any(lease.state is not LeaseState.STARTING for lease in displaced):
        # A lease that runs is not moved by a guess: the next look tells where it is.
        displaced = [lease for lease in displaced if lease.state is LeaseState.STARTING]
        settled = {u for x in waiting if x.state is not LeaseState.STARTING for u in x.devices}
        wrong = {
            lease_id: actual for lease_id, actual in wrong.items() if settled.isdisjoint(actual)
        }
    moving = {lease.id for lease in displaced}
    taken = set(owner) | {u for x in waiting if x.id not in moving for u in x.devices}
    room = _Room(snapshot, taken, landed.keys(), moving)
    for lease in displaced:
        wrong[lease.id] = room.take(lease)
    return wrong


def _actual(snapshot: Snapshot, lease: Lease) -> tuple[str, ...]:
    seen = observed_of(snapshot, lease)
    return seen.devices if seen is not None and not seen.gone else ()


class _Room:
    """What is left for those who must give way, once everybody who landed has their place.

    Args:
        taken: devices that are somebody's for sure.
        landed: leases that landed.
        moving: leases that give way.
    """

    def __init__(
        self, snapshot: Snapshot, taken: Set[str], landed: Set[str], moving: Set[str]
    ) -> None:
        self._known = known_devices(snapshot)
        left = [d for d in self._known.values() if d.uuid not in taken and grantable(d)]
        shown = {d.uuid: d.occupied_by for d in left if d.occupied_by is not None}
        own = {uuid: holder for uuid, holder in shown.items() if holder in moving}
        pools = {device.pool for device in left}
        self._inventories = {
            pool: (
                Inventory([d for d in left if d.pool == pool and _is_for(d, moving)], own),
                # What the others left counts as free though the provider still shows it as theirs.
                Inventory([d for d in left if d.pool == pool and d.occupied_by in landed], {}),
            )
            for pool in pools
        }

    def take(self, lease: Lease) -> tuple[str, ...]:
        """Take devices that stand together for a lease, its own first."""
        pool = next((self._known[u].pool for u in lease.devices if u in self._known), "")
        if pool not in self._inventories:
            return ()
        free, left = self._inventories[pool]
        nodes = joined(free.line(lease), left.loose(lease.gpu_class, lease.needs))
        if lease.count > 1:
            nodes = {
                node: sorted(there, key=lambda device: device.uuid not in lease.devices)
                for node, there in nodes.items()
            }
        chosen = fitting.for_request(nodes, lease, fitting.Preference(frozenset(lease.devices)))
        free.take(chosen)
        left.take(chosen)
        return tuple(device.uuid for device in chosen)


def _is_for(device: Device, moving: Set[str]) -> bool:
    return device.occupied_by is None or device.occupied_by in moving
