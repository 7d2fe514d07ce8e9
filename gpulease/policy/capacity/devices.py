"""What is there, what is free and what comes free by itself.

For whom a device is kept, ``admission.holds`` says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from gpulease.policy.memo import once, once_for_devices
from gpulease.policy.model import Device, Snapshot
from gpulease.policy.queue import holding


def usable(device: Device) -> bool:
    """Whether the device works and somebody knows what runs on it."""
    return device.healthy and not device.lost


def grantable(device: Device) -> bool:
    """Whether the device may be given to somebody once it is free."""
    return usable(device) and not device.leaving


@once_for_devices
def known_devices(devices: Sequence[Device]) -> Mapping[str, Device]:
    """Return the devices by identifier, in the order of the identifiers."""
    return {device.uuid: device for device in sorted(devices, key=lambda d: d.uuid)}


@once_for_devices
def pool_sizes(devices: Sequence[Device]) -> Mapping[str, int]:
    """Return how many devices each pool has; 0 for one that has none."""
    return Counter(device.pool for device in devices)


@once
def _loose(snapshot: Snapshot) -> Sequence[Device]:
    """Return the devices that are in no lease: of a full site few."""
    taken = {uuid for lease in holding(snapshot) for uuid in lease.devices}
    return [each for uuid, each in known_devices(snapshot).items() if uuid not in taken]


@once
def free_devices(snapshot: Snapshot) -> Mapping[str, Sequence[Device]]:
    """Return each pool's devices that may be given now: grantable, unoccupied, in no lease."""
    free: dict[str, list[Device]] = {}
    for device in _loose(snapshot):
        if grantable(device) and device.occupied_by is None:
            free.setdefault(device.pool, []).append(device)
    return free


def coming_devices(snapshot: Snapshot, ending: frozenset[str]) -> dict[str, list[Device]]:
    """Return each pool's devices that come free by themselves: their lease ended or ends now.

    They are granted only once they are free, but nobody else is asked to leave for them.
    """
    known = known_devices(snapshot)
    releasing = [d for d in _loose(snapshot) if d.occupied_by not in (None, "foreign")]
    if ending:
        mine = {uuid for x in holding(snapshot) if x.id in ending for uuid in x.devices}
        releasing = sorted(
            [*releasing, *(known[uuid] for uuid in mine if uuid in known)], key=lambda d: d.uuid
        )
    coming: dict[str, list[Device]] = {}
    for device in releasing:
        if grantable(device):
            coming.setdefault(device.pool, []).append(device)
    return coming


@once
def in_service(snapshot: Snapshot) -> Mapping[str, Sequence[Device]]:
    """Return each pool's devices that may be given to somebody, now or when they come free."""
    found: dict[str, list[Device]] = {}
    for device in snapshot.devices:
        if grantable(device) and device.occupied_by != "foreign":
            found.setdefault(device.pool, []).append(device)
    return found


def with_drained(devices: Sequence[Device], nodes: Collection[str]) -> Sequence[Device]:
    """Return the devices; those of drained nodes are about to go, whatever their node says."""
    if not nodes:
        return devices
    return [
        replace(each, leaving=True) if each.node in nodes and not each.leaving else each
        for each in devices
    ]


@once
def leaving_devices(snapshot: Snapshot) -> frozenset[str]:
    """Return the devices whose node is about to go."""
    return frozenset(device.uuid for device in snapshot.devices if device.leaving)
