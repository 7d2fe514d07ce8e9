"""What is left of one pool's devices while the queue is gone through, by class and node.

Owns who may take what: a device that is kept for a request is its alone, the others are anybody's
whose class they suit.  A request costs what the nodes are, not what the devices are, so a queue of
hundreds is gone through quickly.  Refuses to know the queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set

from gpulease.policy.capacity import fitting
from gpulease.policy.model import Device, Lease

Nodes = Mapping[str, Sequence[Device]]
_Wish = tuple[str, str]  # class, what is needed besides


class Inventory:
    """The devices of one pool that nobody took yet.

    Args:
        devices: in the order in which they are taken within a node, the least versatile before.
        held: device -> the request that it is kept for.

    Attributes:
        versatile: of ``fitting.versatility``.
        warm: whether a pod stands ready on any of them.
    """

    def __init__(self, devices: Iterable[Device], held: Mapping[str, str]) -> None:
        there = list(devices)
        self.versatile = fitting.versatility(there)
        if self.versatile:
            there.sort(key=lambda device: self.versatile[device.uuid])
        self.warm = any(device.warm for device in there)
        self._left = {device.uuid: device for device in there}
        self._keeper = {uuid: held[uuid] for uuid in self._left if uuid in held}
        self._kept: dict[str, list[Device]] = {}
        for uuid, request_id in self._keeper.items():
            self._kept.setdefault(request_id, []).append(self._left[uuid])
        self._loose: dict[_Wish, dict[str, list[Device]]] = {}  # node -> devices
        self._count: dict[_Wish, Counter[str]] = {}  # node -> how many, kept ones as well

    def __len__(self) -> int:
        return len(self._left)

    def line(self, request: Lease) -> Nodes:
        """Return what a request may take, by node, what is kept for it first."""
        wish = request.gpu_class, request.needs
        loose = self.loose(*wish)
        kept_for = self._kept.get(request.id, ())
        mine = [d for d in kept_for if fitting.suits(request.gpu_class, d, request.needs)]
        if not mine:
            return loose
        kept = fitting.by_node(mine)
        return {node: [*kept.get(node, ()), *loose.get(node, ())] for node in {**kept, **loose}}

    def loose(self, gpu_class: str, needs: str = "") -> Nodes:
        """Return what suits a class and meets needs and is kept for nobody, by node."""
        wish = gpu_class, needs
        if wish not in self._loose:
            self._loose[wish] = fitting.by_node(
                device
                for device in self._left.values()
                if device.uuid not in self._keeper and fitting.suits(gpu_class, device, needs)
            )
        return self._loose[wish]

    def whole(self, request: Lease, but: Set[str] = frozenset()) -> Nodes:
        """Return what suits a request by node, what is kept for others last, ``but`` for these."""
        gpu_class, needs = request.gpu_class, request.needs
        rest = [self._left[uuid] for uuid, keeper in self._keeper.items() if keeper not in but]
        kept = fitting.by_node(d for d in rest if fitting.suits(gpu_class, d, needs))
        return joined(self.loose(gpu_class, needs), kept)

    def kept_for(self, request: Lease) -> list[str]:
        """Return the devices that are kept for a request."""
        return [device.uuid for device in self._kept.get(request.id, ())]

    def has_room(self, request: Lease) -> bool:
        """Whether the devices that a request asks for are left on its nodes, for whomever."""
        wish = request.gpu_class, request.needs
        if wish not in self._count:
            there = self._left.values()
            self._count[wish] = Counter(
                d.place for d in there if fitting.suits(wish[0], d, request.needs)
            )
        each = request.per_node
        return sum(left // each for left in self._count[wish].values()) >= request.nodes

    def take(self, devices: Iterable[Device]) -> None:
        """Let devices go; those that are not here are none of this one's."""
        for device in devices:
            if self._left.pop(device.uuid, None) is None:
                continue
            self._drop(device)
            for (gpu_class, needs), left in self._count.items():
                left[device.place] -= fitting.suits(gpu_class, device, needs)

    def keep(self, devices: Iterable[Device], request: Lease) -> None:
        """Keep devices for a request; those that are not here are left out."""
        for device in devices:
            if device.uuid in self._left:
                self._drop(device)
                self._keeper[device.uuid] = request.id
                self._kept.setdefault(request.id, []).append(device)

    def _drop(self, device: Device) -> None:
        """Strike a device from the lists that it may stand in."""
        holder = self._keeper.pop(device.uuid, None)
        if holder is not None:
            self._kept[holder] = [d for d in self._kept[holder] if d.uuid != device.uuid]
            return
        for nodes in self._loose.values():
            if device.place in nodes:
                left = [d for d in nodes[device.place] if d.uuid != device.uuid]
                nodes[device.place] = left
                if not left:
                    del nodes[device.place]


def joined(first: Nodes, second: Nodes) -> Nodes:
    """Return both inventories' lines, the first one's devices before the other's in each node."""
    if not first or not second:
        return first or second
    return {node: [*first.get(node, ()), *second.get(node, ())] for node in {**first, **second}}
