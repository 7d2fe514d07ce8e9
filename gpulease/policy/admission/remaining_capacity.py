"""What is left of everything while one pass goes through the queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from gpulease.policy import capacity, limits, queue
from gpulease.policy.capacity import fitting
from gpulease.policy.capacity.fitting import Inventory, Nodes, joined
from gpulease.policy.capacity.growth import Growth
from gpulease.policy.fairness.fair_order import Line
from gpulease.policy.model import GPUClass, Lease, LeaseState, Snapshot
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


class Rooms:
    """The nodes that could serve a request at all, looked for once for all that ask alike."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[tuple[str, str, int, int], tuple[Mapping[str, int], Unmet]] = {}

    def nodes(self, gpu_class: GPUClass, request: Lease) -> Mapping[str, int]:
        """Return how many parts of a request fit on each node that could serve it by a class."""
        return self._of(gpu_class, request)[0]

    def unmet(self, gpu_class: GPUClass, request: Lease, line: Nodes) -> Unmet:
        """Return what a request lacks where it has these devices."""
        room, nothing = self._of(gpu_class, request)
        if not line:
            return nothing._replace(request=request)
        return _lacks(request, gpu_class.pool, room, line)

    def _of(self, gpu_class: GPUClass, request: Lease) -> tuple[Mapping[str, int], Unmet]:
        key = gpu_class.name, request.needs, request.count, request.nodes
        if key not in self._known:
            good = capacity.in_service(self._snapshot).get(gpu_class.pool, ())
            suiting = [d for d in good if fitting.suits(gpu_class.name, d, request.needs)]
            room = fitting.room(suiting, request.count, request.nodes)
            room = {node: room[node] for node in sorted(room)}
            self._known[key] = room, _lacks(request, gpu_class.pool, room, {})
        return self._known[key]


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
        self._keepers = frozenset(held.values())
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

    def keepers(self, line: Line) -> set[str]:
        """Return the requests of a line that something is kept for."""
        if not self._keepers:
            return set()
        return {x.id for group in line.groups for x in group if x.id in self._keepers}

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
