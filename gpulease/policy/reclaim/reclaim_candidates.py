"""Leases that give up what they hold, sorted by node and class once.

Owns their order and their number on each node.  Refuses to know for whom they are taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from gpulease.policy.capacity.fitting import nodes_of, suits
from gpulease.policy.model import Device, Lease


class Givers:
    """Leases that give up what they hold, in the order in which they are taken.

    Sorted by node and class once: a request looks at those that help it, not at all of them.

    Attributes:
        devices: how many devices each node's leases give up.
    """

    def __init__(self, leases: Iterable[Lease], known: Mapping[str, Device]) -> None:
        self.devices: Counter[str] = Counter()
        self._leases = {lease.id: lease for lease in leases}
        self._known = known
        self._helping: dict[tuple[str, str, str | None], dict[str, Lease]] = {}
        self._there: dict[str, list[Lease]] = {}
        for lease in self._leases.values():
            for node, devices in nodes_of(lease, known).items():
                self._there.setdefault(node, []).append(lease)
                self.devices[node] += devices

    def __len__(self) -> int:
        return len(self._leases)

    def to(self, request: Lease, node: str | None) -> Iterable[Lease]:
        """Return those that suit a request, on one node or (``None``) anywhere."""
        key = request.gpu_class, request.needs, node
        if key not in self._helping:
            there = self._leases.values() if node is None else self._there.get(node, ())
            self._helping[key] = {
                lease.id: lease
                for lease in there
                if lease.id in self._leases and self._suits(request, lease, node)
            }
        return self._helping[key].values()

    def drop(self, lease: Lease) -> None:
        """Leave a lease out from now on; one that is not here changes nothing."""
        gone = self._leases.pop(lease.id, None)
        if gone is None:
            return
        there = nodes_of(gone, self._known)
        self.devices.subtract(there)
        for (_, _, place), helping in self._helping.items():
            if place is None or place in there:
                helping.pop(lease.id, None)

    def _suits(self, request: Lease, lease: Lease, node: str | None) -> bool:
        known = [self._known[uuid] for uuid in lease.devices if uuid in self._known]
        here = [device for device in known if node in (None, device.place)]
        return all(suits(request.gpu_class, device, request.needs) for device in here)
