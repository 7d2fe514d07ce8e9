"""What is free but kept for somebody, and what is left while one pass goes through the queue.

Devices are held for those for whom they were given up.  A request for several devices holds what
comes free until it has them all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain
from math import floor, log2
from types import MappingProxyType
from typing import Final, NamedTuple

from gpulease.policy import capacity, fitting, limits, queue
from gpulease.policy.capacity import Growth, coming_devices, free_devices
from gpulease.policy.fairness import turns
from gpulease.policy.fitting import (
    Inventory,
    Nodes,
    by_node,
    for_request,
    joined,
    of_one_node,
    suits,
)
from gpulease.policy.limits import Limits
from gpulease.policy.model import (
    Action,
    Device,
    GPUClass,
    Lease,
    LeaseState,
    Requeue,
    Snapshot,
)
from gpulease.policy.queue import stands_back
from gpulease.policy.reservations.seats import Doors

_ByPool = Mapping[str, Sequence[Device]]

#: A request for several devices gathers them in turns: for this long (seconds) it takes what is
#: there or waits, then for twice as long it holds what comes free, and so on with doubled turns.
#: So others are served meanwhile, and yet no stream of small requests can starve it.  No turn is
#: longer than the policy's ``gang_hold_max``.
GATHER_TURN = 600.0


def holds(snapshot: Snapshot, ending: frozenset[str] = frozenset()) -> Mapping[str, str]:
    """Return which device is kept for which request: what was reclaimed for somebody is not free.

    Nominations hold devices, and leases that change their shape what they will be made of.  A
    request's claim stands from its nomination until it starts or ends, while nothing but capacity
    keeps it waiting.  What comes free by itself is claimed in turn.  All claims are served in
    turn, whichever of the devices comes free first.

    Args:
        snapshot: with the ended leases whose nominee still waits.
        ending: the leases that end in this same plan.
    """
    held = _for_reshaping(snapshot)
    free = _but(free_devices(snapshot), held)
    coming = _but(coming_devices(snapshot, ending), held)
    claims, reclaimed = _nominated(snapshot)
    if not reclaimed and not coming:
        return held
    pools = {
        pool: _Kept(reclaimed, free.get(pool, ()), coming.get(pool, ()))
        for pool in free.keys() | coming.keys()
    }
    bounds = limits.Limits.of(snapshot, bounds=True)
    for request in turns(snapshot):
        kept = pools.get(queue.pool_of(snapshot, request))
        if kept is None or not kept.devices or request.kept:
            continue
        if limits.kept_waiting(request, snapshot.now, bounds) is None:
            mine = kept.claim(bounds.within(request), claims.get(request.id, 0))
            held.update((device.uuid, request.id) for device in mine)
    return held


def _for_reshaping(snapshot: Snapshot) -> dict[str, str]:
    """Return which device is held for which lease that becomes another shape, or just did."""
    held = {uuid: each.id for each in queue.reshaping(snapshot) for uuid in each.kept}
    for lease in queue.holding(snapshot):
        if lease.becomes is not None:
            own = lease.devices
            held.update((uuid, lease.id) for uuid in lease.becomes.devices if uuid not in own)
    return held


def _but(there: Mapping[str, Sequence[Device]], held: Mapping[str, str]) -> _ByPool:
    """Return each pool's devices but those that are held."""
    if not held:
        return there
    left = {pool: [d for d in found if d.uuid not in held] for pool, found in there.items()}
    return {pool: found for pool, found in left.items() if found}


class _Kept:
    """The devices of one pool that were given up, or come free by themselves, and are kept."""

    def __init__(self, reclaimed: Set[str], now: Sequence[Device], soon: Sequence[Device]) -> None:
        loose = {device.uuid for device in soon if device.uuid not in reclaimed}
        self.devices = [d for d in [*now, *soon] if d.uuid in reclaimed or d.uuid in loose]
        self._open_now = sum(device.uuid not in reclaimed for device in now)
        self._loose = len(loose)

    def claim(self, request: Lease, given_up: int) -> list[Device]:
        """Return what is kept for the next in turn.

        That is what was given up in its name (a number), and then what comes free by itself, after
        what is free for all.
        """
        missing = max(0, request.count - given_up)
        now = min(missing, self._open_now)
        later = min(missing - now, self._loose)
        self._open_now, self._loose = self._open_now - now, self._loose - later
        count = min(request.count, given_up + later)
        if not count:
            return []
        here = by_node(d for d in self.devices if suits(request.gpu_class, d, request.needs))
        several = request.nodes > 1
        mine = for_request(here, request)[:count] if several else of_one_node(here, count)
        gone = {device.uuid for device in mine}
        self.devices = [device for device in self.devices if device.uuid not in gone]
        return mine


def _nominated(snapshot: Snapshot) -> tuple[dict[str, int], set[str]]:
    """Return each nominee's number of devices, and the devices that were given up already."""
    claims: dict[str, int] = {}
    reclaimed: set[str] = set()
    requests = queue.waiting_ids(snapshot)
    for lease in snapshot.leases:
        if lease.nominated_for in requests and lease.nominated_for is not None:
            claims[lease.nominated_for] = claims.get(lease.nominated_for, 0) + len(lease.giving)
            reclaimed.update(lease.devices if lease.state is LeaseState.ENDED else ())
        for uuid, name in lease.gave:
            if name in requests:
                claims[name] = claims.get(name, 0) + 1
                reclaimed.add(uuid)
    return claims, reclaimed


def gathers(request: Lease, snapshot: Snapshot) -> bool:
    """Whether it is the turn of a request for several devices to hold what comes free."""
    if request.count < 2 or (request.batch and stands_back(request, snapshot)):
        return False
    waited = (snapshot.now - request.ticket[0]).total_seconds()
    most = snapshot.policy.gang_hold_max
    if waited <= 0 or most <= 0:
        return False
    doubled = _doubled_turns(most)
    rest = waited - doubled[-1]
    turn = bisect_right(doubled, waited) - 1 if rest < 0 else len(doubled) - 1 + int(rest // most)
    return turn % 2 == 1


@lru_cache(maxsize=16)
def _doubled_turns(most: float) -> tuple[float, ...]:
    """Return when each turn begins (seconds) until they are as long as may be."""
    number = max(0, floor(log2(most / GATHER_TURN)) + 1)
    return tuple([GATHER_TURN * (2**n - 1) for n in range(number + 1)])


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
    waiting = capacity.awaiting(snapshot)
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


#: The place of what is missing on several nodes.
ANYWHERE = "*"


class Unmet(NamedTuple):
    """A request that nothing but capacity keeps waiting.

    ``missing`` is how many devices it lacks on each node that could serve it at all: what is free
    or comes free there by itself is counted.  For a request for several nodes it has the fewest
    that are missing in all, under ``ANYWHERE``; ``parts`` tells where they are: what each node
    lacks for the first part, for one more, and so on.
    """

    request: Lease
    pool: str
    missing: Mapping[str, int]
    parts: Mapping[str, Sequence[int]] = MappingProxyType({})

    @property
    def shortage(self) -> Hashable:
        """The same for requests that ask for the same and lack the same."""
        parts = tuple([(node, *lacks) for node, lacks in self.parts.items()])
        return self.request.wish, tuple(self.missing.items()), parts


@dataclass
class Admission:
    """The outcome of one pass over the queue.

    Attributes:
        actions: what is done to the requests.
        started: pool -> the requests that start on its devices.
        limits: what is held by everybody once these have started.
        lacking: those that nothing but capacity keeps waiting, in the order of turns.
    """

    limits: Limits
    actions: list[Action] = field(default_factory=list)
    started: dict[str, list[Lease]] = field(default_factory=dict)
    lacking: list[Unmet] = field(default_factory=list)


def _lacks(request: Lease, pool: str, room: Mapping[str, int], line: Nodes) -> Unmet:
    here = {node: len(line.get(node, ())) for node in room}
    if request.nodes == 1:
        return Unmet(request, pool, {n: max(0, request.count - there) for n, there in here.items()})
    each = request.per_node
    parts = {
        node: [max(0, min(each, each * n - here[node])) for n in range(1, most + 1)]
        for node, most in room.items()
    }
    least = sorted(chain.from_iterable(parts.values()))[: request.nodes]
    return Unmet(request, pool, {ANYWHERE: sum(least)} if room else {}, parts)


class Left:
    """Devices, limits, seats and nodes to be added, as far as nobody got them in this pass.

    Args:
        snapshot: what is known.
        held: device -> the request that it is kept for (``holds``).
        ending: the leases that end in this same plan.

    Attributes:
        limits: what is held by everybody, with those who start.
        keepers: the requests that something is kept for.
        free: pool -> the devices that may be given now.
        coming: pool -> those that come free by themselves.
        growth: how many nodes may still be asked for.
        doors: who is let in, beside reservations.
        paused: the pools that give nothing.
        pending: how many pods of each class a queue of the cluster's has not let in yet.
    """

    def __init__(self, snapshot: Snapshot, held: Mapping[str, str], ending: frozenset[str]) -> None:
        self.snapshot = snapshot
        self.limits = limits.Limits.of(snapshot, bounds=True)
        self.keepers = frozenset(held.values())
        self._becoming = queue.becoming(snapshot)  # what runs goes on, be it in another shape
        self.paused = {each.name for each in snapshot.policy.pools if each.paused}
        free = capacity.free_devices(snapshot)
        coming = capacity.coming_devices(snapshot, ending)
        free = {
            pool: found
            if pool not in self.paused
            else [device for device in found if held.get(device.uuid) in self._becoming]
            for pool, found in free.items()
        }
        pools = free.keys() | coming.keys() | {each.pool for each in snapshot.policy.classes}
        self.free = {pool: Inventory(free.get(pool, ()), held) for pool in pools}
        self.coming = {pool: Inventory(coming.get(pool, ()), held) for pool in pools}
        self.growth = Growth(snapshot)
        self.doors = Doors(snapshot, {pool: len(found) for pool, found in free.items()})
        self._rooms: dict[Hashable, Mapping[str, int]] = {}
        self.pending = Counter(
            each.gpu_class
            for each in queue.holding(snapshot)
            if each.state is LeaseState.STARTING and each.reason in ("starting", "cluster_queue")
        )

    @cached_property
    def living(self) -> frozenset[str | None]:
        """Whose processes are still on devices, where leases become another shape."""
        devices = self.snapshot.devices if self._becoming else ()
        return frozenset([each.occupied_by for each in devices])

    def line(self, request: Lease, gpu_class: GPUClass) -> Nodes:
        """Return what is free or comes on each node, for a request."""
        free, coming = self.free[gpu_class.pool], self.coming[gpu_class.pool]
        return joined(free.line(request), coming.line(request))

    def unmet(self, request: Lease, gpu_class: GPUClass) -> Unmet:
        """Return what a request lacks, beside what is free or comes."""
        room, line = self.rooms(request, gpu_class), self.line(request, gpu_class)
        return _lacks(request, gpu_class.pool, room, line)

    def rooms(self, request: Lease, gpu_class: GPUClass) -> Mapping[str, int]:
        """Return how many parts of a request fit on each node that could serve it by a class."""
        if request.wish not in self._rooms:  # looked for once for all that ask alike
            good = capacity.in_service(self.snapshot).get(gpu_class.pool, ())
            suiting = [d for d in good if fitting.suits(gpu_class.name, d, request.needs)]
            room = fitting.room(suiting, request.count, request.nodes)
            self._rooms[request.wish] = {node: room[node] for node in sorted(room)}
        return self._rooms[request.wish]

    def why_nothing(self, request: Lease, gpu_class: GPUClass) -> str:
        """Return the reason of a request that found nothing."""
        grows = self.growth.grows(gpu_class.pool)  # what is not there is not out of order
        lacking = "no_capacity" if grows or self.rooms(request, gpu_class) else "quarantined"
        if self.free[gpu_class.pool].has_room(request):
            lacking = "held"
        return self.doors.lacking(request) or lacking
