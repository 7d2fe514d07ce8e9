"""What is left of everything while one pass goes through the queue, and what its outcome is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from gpulease.policy import capacity, limits, queue
from gpulease.policy.capacity import fitting
from gpulease.policy.capacity.fitting import Inventory, Nodes, joined
from gpulease.policy.capacity.growth import Growth
from gpulease.policy.limits import Limits
from gpulease.policy.model import Action, GPUClass, Lease, LeaseState, Snapshot, Wish
from gpulease.policy.reservations.seats import Doors

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


class Rooms:
    """The nodes that could serve a request at all, looked for once for all that ask alike."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[Wish, Mapping[str, int]] = {}

    def nodes(self, gpu_class: GPUClass, request: Lease) -> Mapping[str, int]:
        """Return how many parts of a request fit on each node that could serve it by a class."""
        if request.wish not in self._known:
            good = capacity.in_service(self._snapshot).get(gpu_class.pool, ())
            suiting = [d for d in good if fitting.suits(gpu_class.name, d, request.needs)]
            room = fitting.room(suiting, request.count, request.nodes)
            self._known[request.wish] = {node: room[node] for node in sorted(room)}
        return self._known[request.wish]

    def unmet(self, gpu_class: GPUClass, request: Lease, line: Nodes) -> Unmet:
        """Return what a request lacks where it has these devices."""
        return _lacks(request, gpu_class.pool, self.nodes(gpu_class, request), line)


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
        rooms: the nodes that could serve a request at all.
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
        self.rooms = Rooms(snapshot)
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
        return self.rooms.unmet(gpu_class, request, self.line(request, gpu_class))

    def why_nothing(self, request: Lease, gpu_class: GPUClass) -> str:
        """Return the reason of a request that found nothing."""
        grows = self.growth.grows(gpu_class.pool)  # what is not there is not out of order
        lacking = "no_capacity" if grows or self.rooms.nodes(gpu_class, request) else "quarantined"
        if self.free[gpu_class.pool].has_room(request):
            lacking = "held"
        return self.doors.lacking(request) or lacking
