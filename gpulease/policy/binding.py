"""Brings the record of who has which device into step with where things really run.

Where the provider, not the plan, decides on which device a lease lands, the granted device is an
assumption.  Owns the correction: a lease that landed has what it landed on; one that still waits
for its place gives way and takes what the other left, in one node.  Pure.
"""

from __future__ import annotations

from gpulease.policy import fitting
from gpulease.policy.capacity import grantable
from gpulease.policy.health import observed_of
from gpulease.policy.model import Device, Lease, LeaseState, Snapshot
from gpulease.policy.queue import holding


def bindings(snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """Return the right devices of each lease whose record is wrong.

    A lease that waits may be left with fewer devices than it asked for: somebody else has landed
    on them, and there is no room for it at present.
    """
    if not snapshot.capacity_known:
        return {}
    known = {device.uuid: device for device in snapshot.devices}
    landed = {
        lease.id: actual for lease in holding(snapshot) if (actual := _actual(snapshot, lease))
    }
    owner = {uuid: lease_id for lease_id, actual in landed.items() for uuid in actual}
    wrong = {
        lease.id: landed[lease.id]
        for lease in holding(snapshot)
        if lease.id in landed and set(landed[lease.id]) != set(lease.devices)
    }
    displaced = [
        lease
        for lease in holding(snapshot)
        if lease.id not in landed and any(uuid in owner for uuid in lease.devices)
    ]
    if any(lease.state is not LeaseState.STARTING for lease in displaced):
        # A lease that runs is not moved by a guess: the next look tells where it is.
        displaced = [lease for lease in displaced if lease.state is LeaseState.STARTING]
        wrong = {
            lease_id: actual
            for lease_id, actual in wrong.items()
            if not _clashes(snapshot, lease_id, actual, landed)
        }
    taken = set(owner) | {
        uuid
        for lease in holding(snapshot)
        if lease.id not in landed and lease not in displaced
        for uuid in lease.devices
    }
    for lease in displaced:
        found = _room_for(snapshot, lease, taken, known)
        taken |= set(found)
        wrong[lease.id] = found
    return wrong


def _actual(snapshot: Snapshot, lease: Lease) -> tuple[str, ...]:
    seen = observed_of(snapshot, lease)
    return seen.devices if seen is not None and not seen.gone else ()


def _clashes(
    snapshot: Snapshot, lease_id: str, actual: tuple[str, ...], landed: dict[str, tuple[str, ...]]
) -> bool:
    return any(
        other.id != lease_id
        and other.id not in landed
        and other.state is not LeaseState.STARTING
        and set(other.devices) & set(actual)
        for other in holding(snapshot)
    )


def _room_for(
    snapshot: Snapshot, lease: Lease, taken: set[str], known: dict[str, Device]
) -> tuple[str, ...]:
    """Return devices of one node for a lease that must give way, its own first."""
    pools = {known[uuid].pool for uuid in lease.devices if uuid in known}
    free = [
        device
        for device in sorted(snapshot.devices, key=lambda d: (d.uuid not in lease.devices, d.uuid))
        if device.pool in pools
        and device.uuid not in taken
        and grantable(device)
        and device.occupied_by in (None, lease.id)
        and fitting.suits(lease.gpu_class, device)
    ]
    # What the others left counts as free although the provider still shows it as theirs.
    left = _left_behind(snapshot, pools, taken, {device.uuid for device in free})
    chosen = fitting.together([*free, *left], lease.count, lease.devices)
    return tuple(device.uuid for device in chosen)


def _left_behind(
    snapshot: Snapshot, pools: set[str], taken: set[str], listed: set[str]
) -> list[Device]:
    leavers = {lease.id for lease in holding(snapshot) if _actual(snapshot, lease)}
    return [
        device
        for device in sorted(snapshot.devices, key=lambda d: d.uuid)
        if device.pool in pools
        and device.uuid not in taken | listed
        and grantable(device)
        and device.occupied_by in leavers
    ]
