"""What is left of one pool's devices while the queue is gone through, by class and node.

Owns who may take what: a device that is kept for a request is its alone, the others are anybody's
whose class they suit.  A request costs what the nodes are, not what the devices are, so a queue of
hundreds is gone through quickly.  Refuses to know the queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gpulease.policy.capacity import fitting
from gpulease.policy.model import Device, Lease

Nodes = Mapping[str, Sequence[Device]]


class Inventory:
    """The devices of one pool that nobody took yet.

    Args:
        devices: in the order in which they are taken within a node.
        held: device -> the request that it is kept for.
    """

    def __init__(self, devices: Iterable[Device], held: Mapping[str, str]) -> None:
        self._left = {device.uuid: device for device in devices}
        self._keeper = {uuid: held[uuid] for uuid in self._left if uuid in held}
        self._kept: dict[str, list[Device]] = {}
        for uuid, request_id in self._keeper.items():
            self._kept.setdefault(request_id, []).append(self._left[uuid])
        self._loose: dict[str, dict[str, list[Device]]] = {}  # class -> node -> devices
        self._count: dict[str, Counter[str]] = {}  # class -> node -> how many, kept ones as well

    def __len__(self) -> int:
        return len(self._left)

    def line(self, request: Lease) -> Nodes:
        """Return what a request may take, by node, what is kept for it first."""
        loose = self.loose(request.gpu_class)
        mine = [d for d in self._kept.get(request.id, ()) if fitting.suits(request.gpu_class, d)]
        if not mine:
            return loose
        kept = fitting.by_node(mine)
        return {node: [*kept.get(node, ()), *loose.get(node, ())] for node in {**kept, **loose}}

    def loose(self, gpu_class: str) -> Nodes:
        """Return what suits a class and is kept for nobody, by node."""
        if gpu_class not in self._loose:
            self._loose[gpu_class] = fitting.by_node(
                device
                for device in self._left.values()
                if device.uuid not in self._keeper and fitting.suits(gpu_class, device)
            )
        return self._loose[gpu_class]

    def whole(self, gpu_class: str) -> Nodes:
        """Return what suits a class by node, what is kept for requests last."""
        rest = [self._left[uuid] for uuid in self._keeper]
        kept = fitting.by_node(device for device in rest if fitting.suits(gpu_class, device))
        return joined(self.loose(gpu_class), kept)

    def kept_for(self, request: Lease) -> list[str]:
        """Return the devices that are kept for a request."""
        return [device.uuid for device in self._kept.get(request.id, ())]

    def has_room(self, gpu_class: str, count: int) -> bool:
        """Whether so many devices that suit a class are left in one node, for whomever."""
        if gpu_class not in self._count:
            self._count[gpu_class] = Counter(
                device.node for device in self._left.values() if fitting.suits(gpu_class, device)
            )
        return any(left >= count for left in self._count[gpu_class].values())

    def take(self, devices: Iterable[Device]) -> None:
        """Let devices go; those that are not here are none of this one's."""
        for device in devices:
            if self._left.pop(device.uuid, None) is None:
                continue
            self._drop(device)
            for gpu_class, left in self._count.items():
                left[device.node] -= fitting.suits(gpu_class, device)

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
            if device.node in nodes:
                nodes[device.node] = [d for d in nodes[device.node] if d.uuid != device.uuid]
                if not nodes[device.node]:
                    del nodes[device.node]


def joined(first: Nodes, second: Nodes) -> Nodes:
    """Return both inventories' lines, the first one's devices before the other's in each node."""
    if not first or not second:
        return first or second
    return {node: [*first.get(node, ()), *second.get(node, ())] for node in {**first, **second}}
