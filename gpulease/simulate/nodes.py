"""Nodes and lease pods that are there ahead in a replay.

An elastic pool's nodes are added for leases that wait for them.  A node has as many GPUs as the
lease needs that it was added for (each of a lease's nodes is one).  Where that lease is over by
then it comes all the same, for the next who waits for such a one, and it goes once nobody has used
it for a while, as a cluster's autoscaler does.  No pool has more than its policy allows; what the
trace begins with never goes.  Of the lease pods that stand ready only the number is kept: what
they hold counts as held and, as in the service, as free.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from gpulease.policy import capacity
from gpulease.policy.calendar.occurrences import instant, wall_clock
from gpulease.policy.catalog import Warm
from gpulease.policy.model import Device, Lease, LeaseState, PolicyDocument, Snapshot
from gpulease.simulate.clock import Clock


class Ready:
    """The pods of each class, by when each is ready, the oldest first.

    Args:
        start: seconds until such a pod is ready.
        stood: told how many there are whenever that changes.
    """

    def __init__(
        self, policy: PolicyDocument, clock: Clock, start: float, stood: Callable[[int], None]
    ) -> None:
        self._clock, self._start, self._stood = clock, start, stood
        self._wanted = {x.name: x.warm for x in policy.classes if x.warm is not None}
        self._pods: dict[str, list[float]] = {name: [] for name in self._wanted}

    def changes(self) -> Iterator[float]:
        """Return the seconds at which another number may be wanted: the beginning, and by hours."""
        if self._wanted:
            yield 0.0
        end = self._clock.when(self._clock.length)
        for each in self._wanted.values():
            yield from map(self._clock.seconds, _edges(each, self._clock.begin, end))

    def stand(self, snapshot: Snapshot) -> None:
        """Have as many as the policy wants now: the youngest go first."""
        standing = capacity.ready_pods(snapshot) if self._wanted else None
        if standing is None:
            return
        for name, pods in self._pods.items():
            wanted = standing.pods.get(name, 0)
            pods[wanted:] = [self._clock.t + self._start] * max(0, wanted - len(pods))
        self._tell()

    def claim(self, lease: Lease) -> bool:
        """Tell whether a start finds a pod that is ready, which is the lease's then.

        A pod that stands ready has one device.
        """
        pods = self._pods.get(lease.gpu_class, [])
        if lease.count != 1 or not pods or pods[0] > self._clock.t:
            return False
        pods.pop(0)
        self._tell()
        return True

    def _tell(self) -> None:
        self._stood(sum(map(len, self._pods.values())))


def _edges(each: Warm, begin: datetime, end: datetime) -> Iterator[datetime]:
    zone = ZoneInfo(each.zone)
    minutes = sorted({minute for hours in each.hours for minute in (hours.start, hours.end)})
    day = wall_clock(begin, zone).date()
    while minutes and (midnight := datetime.combine(day, time())) <= wall_clock(end, zone):
        for minute in minutes:
            at = instant(midnight + timedelta(minutes=minute), zone)
            if begin < at < end:
                yield at
        day += timedelta(days=1)


#: Seconds after which a cluster that has as many nodes as it may tries again.
AGAIN = 60.0


@dataclass
class _Order:
    """Nodes that come, and the lease that they come for."""

    lease: Lease

    def is_like(self, lease: Lease) -> bool:
        """Tell whether another lease needs the same."""
        return (self.lease.pool, self.lease.nodes, self.lease.count) == (
            lease.pool, lease.nodes, lease.count,
        )  # fmt: skip


class Nodes:
    """The devices that are there, and the nodes that come.

    Args:
        policy: says how long a node takes to come.
        clock: the replay's.
        devices: those that are always there.
        unneeded: seconds after which a node that nobody uses goes.
        arrived: told the lease that a node was added for, and its devices.
        waits: tells whether a lease still waits for a node.
        wanted: returns the devices that a lease has or keeps.
        stood: told how many devices there are of each pool, and how many of them were added.
    """

    def __init__(
        self,
        policy: PolicyDocument,
        clock: Clock,
        devices: Sequence[Device],
        unneeded: float,
        *,
        arrived: Callable[[Lease, Sequence[Device]], None],
        waits: Callable[[Lease], bool],
        wanted: Callable[[], Collection[str]],
        stood: Callable[[Sequence[Device], int], None],
    ) -> None:
        self._clock, self._unneeded = clock, unneeded
        self._elastic = policy.elastic
        self._arrived, self._waits, self._wanted, self._stood = arrived, waits, wanted, stood
        self._orders: list[_Order] = []
        self._models = {each.pool: each for each in devices}
        self._devices = {each.uuid: each for each in devices}
        self._added: dict[str, float] = {}  # node -> since when nobody uses it
        self._number = 0
        self._changed()

    @property
    def grows(self) -> bool:
        """Whether nodes can be added to any pool."""
        return bool(self._elastic)

    def add_for(self, lease: Lease) -> None:
        """Have the nodes added that a lease waits for, if none such come already for nobody."""
        for order in self._orders:
            if order.is_like(lease) and not self._waits(order.lease):
                order.lease = lease
                return
        order = _Order(lease)
        self._orders.append(order)
        self._clock.after(self._elastic[lease.pool].provision_time, lambda: self._arrives(order))

    def show(self, devices: Sequence[str], holder: str | None) -> None:
        """Show who uses some devices from now on, ``None`` for nobody."""
        for uuid in devices:
            if uuid in self._devices:
                self._devices[uuid] = replace(self._devices[uuid], occupied_by=holder)
        self._show()
        for node in self._nodes_of(devices):
            self._rests(node)

    def _arrives(self, order: _Order) -> None:
        lease, made = order.lease, list[Device]()
        there = sum(each.pool == lease.pool for each in self._devices.values())
        if there + lease.count > self._elastic[lease.pool].max:
            if self._waits(lease):  # until another one has gone
                self._clock.after(AGAIN, lambda: self._arrives(order))
            else:
                self._orders.remove(order)
            return
        self._orders.remove(order)
        for _ in range(lease.nodes):
            self._number += 1
            node = f"added-{self._number}"
            made += [self._device(lease, node, number) for number in range(lease.per_node)]
            self._added[node] = self._clock.t
        self._devices |= {each.uuid: each for each in made}
        self._changed()
        self._arrived(lease, made)
        for node in self._nodes_of([each.uuid for each in made]):
            self._rests(node)

    def _device(self, lease: Lease, node: str, number: int) -> Device:
        """Return one like those that the pool has already."""
        uuid = f"{node}-{number}"
        model = self._models.get(lease.pool)
        if model is None:
            return Device(uuid, lease.pool, node=node)
        return replace(model, uuid=uuid, node=node, occupied_by=None)

    def _rests(self, node: str) -> None:
        """Let a node go after a while, unless somebody uses it by then or did meanwhile."""
        self._added[node] = since = self._clock.t
        if any(each.occupied_by for each in self._on(node)):
            return

        def due() -> None:
            if self._added.get(node) != since:
                return
            mine = [each.uuid for each in self._on(node)]
            if not set(mine).isdisjoint(self._wanted()):
                self._rests(node)
                return
            del self._added[node]
            for uuid in mine:
                del self._devices[uuid]
            self._changed()

        self._clock.after(self._unneeded, due)

    def _on(self, node: str) -> Iterator[Device]:
        return (each for each in self._devices.values() if each.node == node)

    def _nodes_of(self, devices: Sequence[str]) -> list[str]:
        known = (self._devices[uuid].node for uuid in devices if uuid in self._devices)
        return [node for node in dict.fromkeys(known) if node in self._added]

    def _show(self) -> None:
        #: What the planner sees; made once for each change.
        self.devices = tuple(self._devices.values())

    def _changed(self) -> None:
        """Show what is there, and say so: nodes have come or gone."""
        self._show()
        self._stood(self.devices, sum(each.node in self._added for each in self.devices))


def devices_of(leases: Iterable[Lease]) -> set[str]:
    """Return the devices that leases have, keep, or become another shape with."""
    found: set[str] = set()
    for lease in leases:
        if lease.state is not LeaseState.ENDED:
            found.update(lease.devices, lease.kept)
            found.update(lease.becomes.devices if lease.becomes is not None else ())
    return found
