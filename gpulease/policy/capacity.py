"""What is there, what is free, and what comes free or is added by itself.

For whom a device is kept, ``remaining_capacity`` says.  Nodes are added to elastic pools when lease
pods wait for them; what will come is promised to nobody, it counts once it is there.  A pod that
stands ready holds a device that counts as free: it goes as soon as somebody else needs the device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from gpulease.policy.calendar.occurrences import wall_clock
from gpulease.policy.catalog import Warm
from gpulease.policy.fitting import suits
from gpulease.policy.limits import QUOTA
from gpulease.policy.model import (
    Device,
    Lease,
    LeaseState,
    PolicyDocument,
    Snapshot,
    once,
    once_for_devices,
)
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


def most_devices(snapshot: Snapshot, pool: str, there: int) -> int:
    """Return how many devices a pool can have at all, of which so many are there."""
    elastic = snapshot.policy.elastic.get(pool)
    return max(there, elastic.max) if elastic is not None and snapshot.grows else there


def promised_devices(policy: PolicyDocument, pool: str, there: int) -> int:
    """Return how many of the devices that are there reservations may count on."""
    elastic = policy.elastic.get(pool)
    return there if elastic is None else min(there, elastic.promised)


@dataclass(frozen=True)
class ReadyPods:
    """What should stand ready.

    ``pods``: how many of each class, that are nobody's yet.  ``granted``: the devices that are
    granted and on which nothing of their lease is seen yet, each with that lease and its class: a
    pod that stands ready there becomes the lease's, or makes room for it.
    """

    pods: Mapping[str, int] = field(default_factory=dict)
    granted: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def planned_pods(warm: Warm, now: datetime) -> int:
    """Return how many pods the policy names for an instant: the most of the hours that hold."""
    wall = wall_clock(now, ZoneInfo(warm.zone))
    minute = wall.hour * 60 + wall.minute
    held = [
        each.pods
        for each in warm.hours
        if wall.weekday() in each.days and each.start <= minute < each.end
    ]
    return max(held, default=warm.pods)


def ready_pods(snapshot: Snapshot) -> ReadyPods | None:
    """Return what should stand ready, ``None`` while nobody knows what is free.

    Never more than there are free devices, which the classes of one pool share in their order, and
    none at all while a quota of the namespace keeps a request waiting: they count in it, too.
    """
    if not snapshot.capacity_known:
        return None
    classes = [each for each in snapshot.policy.classes if each.warm is not None]
    if any(x.state is LeaseState.QUEUED and x.reason == QUOTA for x in snapshot.leases):
        classes = []
    paused = {each.name for each in snapshot.policy.pools if each.paused}
    taken, pods = Counter[str](), {}
    for each in classes:
        assert each.warm is not None
        free = free_devices(snapshot).get(each.pool, ())
        there = sum(suits(each.name, device) for device in free)
        left = 0 if each.pool in paused else max(0, there - taken[each.pool])
        pods[each.name] = min(planned_pods(each.warm, snapshot.now), left)
        taken[each.pool] += pods[each.name]
    return ReadyPods(pods, _granted(snapshot))


def _granted(snapshot: Snapshot) -> dict[str, tuple[str, str]]:
    found = {}
    for lease in snapshot.leases:
        seen = snapshot.observed.get(lease.id)
        there = seen is not None and seen.attempt == lease.attempt and seen.devices
        if lease.state is LeaseState.STARTING and not there:
            found.update(dict.fromkeys(lease.devices, (lease.id, lease.gpu_class)))
    return found


_MARK = "::"


def parts_of(card: str, parts: int) -> list[str]:
    """Return the names of a card's parts, its own where it is not divided."""
    return [f"{card}{_MARK}{number:02}" for number in range(parts)] if parts else [card]


def card_of(name: str) -> str:
    """Return the card that a device is a part of, or is."""
    return name.partition(_MARK)[0]


def overlap(one: str, other: str) -> bool:
    """Whether two devices are the same, or one is a part of the other: a policy may have changed
    between two leases.
    """
    whole = card_of(one) in (one, other) or card_of(other) in (one, other)
    return one == other or (whole and card_of(one) == card_of(other))


def with_parts(devices: Iterable[Device], parts: Mapping[str, int]) -> Iterator[Device]:
    """Yield the devices as a policy has them that divides the cards of some pools."""
    seen: set[str] = set()
    for device in devices:
        wanted = parts.get(device.pool, 0)
        if device.card_parts == wanted:
            yield device
            continue
        card = device.card or device.uuid
        for name in parts_of(card, wanted) if card not in seen else ():
            yield replace(device, uuid=name, card=card if wanted else "", card_parts=wanted)
        seen.add(card)
