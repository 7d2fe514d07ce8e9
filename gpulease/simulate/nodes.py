"""Nodes that come and go in a replay: an elastic pool's, added for leases that wait for them.

Owns when a node is there.  It has as many GPUs as the lease needs that it was added for (each of a
lease's nodes is one).  Where that lease is over by then it comes all the same, for the next who
waits for such a one, and it goes once nobody has used it for a while, as a cluster's autoscaler
does.  No pool has more than its policy allows; what the trace begins with never goes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gpulease.policy.model import Device, Lease, LeaseState, PolicyDocument
from gpulease.simulate.clock import Clock

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
