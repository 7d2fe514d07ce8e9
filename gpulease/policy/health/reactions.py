"""The first step of a plan: what each lease's health asks for, with its devices put right."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from gpulease.policy import queue
from gpulease.policy.capacity import fitting, grantable, known_devices
from gpulease.policy.capacity.fitting import Inventory, joined
from gpulease.policy.health.checks import check, observed_of, set_back
from gpulease.policy.model import (
    Action,
    Activate,
    Alert,
    Bind,
    Device,
    End,
    EndReason,
    Lease,
    LeaseState,
    Progress,
    Snapshot,
)
from gpulease.policy.queue import holding
from gpulease.policy.units import say_count


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


def reactions(snapshot: Snapshot) -> dict[str, Action]:
    """Return the step of each lease that its own health settles in this plan, by lease."""
    right = bindings(snapshot)
    found = {
        lease.id: _bound(lease, check(snapshot, lease), right) for lease in queue.holding(snapshot)
    }
    settled = {lease_id: action for lease_id, action in found.items() if action is not None}
    settled |= {
        each.id: End(each.id, "hard_end", EndReason.EXPIRED) for each in reshaped_too_late(snapshot)
    }
    return settled | set_back(snapshot)


def reshaped_too_late(snapshot: Snapshot) -> list[Lease]:
    """Return the leases in another shape whose time ran out before they were back."""
    return [
        each
        for each in queue.reshaping(snapshot)
        if each.hard_end is not None and each.hard_end <= snapshot.now
    ]


def _bound(lease: Lease, action: Action | None, right: dict[str, tuple[str, ...]]) -> Action | None:
    """Return the lease's step with its devices put right; one that ends it needs no devices."""
    devices = right.get(lease.id)
    if devices is None:
        return action
    if action is None:
        return Bind(lease.id, lease.reason, devices)
    if isinstance(action, Activate | Progress) and devices:
        return replace(action, devices=devices)
    return action


def stuck(snapshot: Snapshot) -> list[Alert]:
    """Return an alert for each of them; its devices are out of service meanwhile."""
    users = {lease.id: lease.user for lease in snapshot.leases}
    devices: dict[str, list[str]] = {}
    for each in snapshot.devices:
        if each.occupied_by is not None:
            devices.setdefault(each.occupied_by, []).append(each.uuid)
    return [
        Alert(
            lease_id,
            "stuck",
            f"Processes {', '.join(map(str, seen.left))} of lease {lease_id} "
            f"({users.get(lease_id, 'whose is not known')}) live on though it is over, and the "
            f"service may not end them: {', '.join(devices.get(lease_id, ['its GPU']))} is out of "
            "service. Look whose they are, then end them or put it back into service.",
        )
        for lease_id, seen in sorted(snapshot.observed.items())
        if seen.left
    ]


def unoffered(snapshot: Snapshot) -> list[Alert]:
    """Return an alert where both is so: most likely a pool has another name than was meant.

    Devices alone that nothing is offered of may be kept back on purpose, and a class alone whose
    pool has no device may wait for its node.
    """
    if not snapshot.capacity_known:
        return []
    asked = {each.pool for each in snapshot.policy.classes}
    there = {each.pool for each in snapshot.devices}
    lacking, unused = sorted(asked - there - set(snapshot.policy.elastic)), sorted(there - asked)
    if not lacking or not unused:
        return []
    count = sum(each.pool in unused for each in snapshot.devices)
    return [
        Alert(
            "",
            "no_such_pool",
            f"The policy's classes draw on {_pools(lacking)}, where there are no GPUs, and no "
            f"class draws on {_pools(unused)}, where there {'is' if count == 1 else 'are'} "
            f"{say_count(count, 'GPU', 'GPUs')}. "
            "Give the pool in the policy the name that it has here.",
            {"devices": count},
        )
    ]


def _pools(names: list[str]) -> str:
    return f"{'pool' if len(names) == 1 else 'the pools'} {', '.join(names)}"
