"""What requests lack that nothing but capacity keeps waiting, and on which nodes.

Owns the count of what is missing where; what is free and what comes free by itself is told to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from gpulease.policy import capacity
from gpulease.policy.capacity import fitting
from gpulease.policy.capacity.inventory import Nodes
from gpulease.policy.model import GPUClass, Lease, Snapshot

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
