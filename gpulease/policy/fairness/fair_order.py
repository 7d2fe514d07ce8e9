"""Whose turn it is: the order in which the queue is served.

Without projects it is first come, first served.  With projects the turn goes, at each level of the
tree, to who has least of what is theirs: below the guarantee before above it, then by what is held
of the target; of equals to who asked first.  A person's own requests keep their order.  Each turn
counts as if it were granted, so a project that asks for a hundred does not get them in one go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence, Set
from datetime import datetime
from heapq import heapify, heappop, heapreplace

from gpulease.policy import budgets, queue
from gpulease.policy.batch import stands_back
from gpulease.policy.fairness.standing import blocked, standing
from gpulease.policy.fairness.tree import Node, Tree
from gpulease.policy.memo import once
from gpulease.policy.model import Lease, Snapshot

_Key = tuple[bool, float, datetime, int, str]


@once
def turns(snapshot: Snapshot) -> Sequence[Lease]:
    """Return all queued requests in the order in which they are served, pool by pool.

    Without projects the pools stand in one queue.
    """
    trees = standing(snapshot)
    if not trees:
        return _people_first(queue.waiting(snapshot), snapshot)
    return [
        request
        for pool, requests in queue.by_pool(snapshot).items()
        for request in _people_first(
            list(_in_turn(snapshot, trees[pool], requests)) if pool in trees else requests, snapshot
        )
    ]


def _people_first(line: Sequence[Lease], snapshot: Snapshot) -> Sequence[Lease]:
    """Return a line with those behind who stand back: runs of whole notebooks."""
    return sorted(line, key=lambda request: stands_back(request, snapshot))


def _in_turn(snapshot: Snapshot, tree: Tree, requests: Sequence[Lease]) -> Iterator[Lease]:
    """Yield a pool's requests in turn."""
    root, over, cannot = _Side(tree.root), budgets.exhausted(snapshot), blocked(snapshot)
    for request in requests:
        root.put(request, tree.leaf(request, spent=request.id in over))
    root.begin()
    for _ in requests:
        yield root.next(cannot)


class _Side:
    """A department, a project or a person, with the requests below it and what it would hold."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.held = node.held
        self.requests: deque[Lease] = deque()  # of a person
        self.below: dict[str, _Side] = {}
        self._heap: list[tuple[_Key, str, _Side]] = []

    def put(self, request: Lease, leaf: Node) -> None:
        """Put in a person's request, first come first; for the root."""
        side = self
        for node in reversed(leaf.path):
            found = side.below.get(node.name)
            side = found or side.below.setdefault(node.name, _Side(node))
        side.requests.append(request)

    def begin(self) -> None:
        """Put what is below in order, once all requests are in."""
        for side in self.below.values():
            side.begin()
        self._heap = [(side.key(), name, side) for name, side in self.below.items()]
        heapify(self._heap)

    def first(self) -> Lease | None:
        """Return the request whose turn it is, ``None`` where nobody waits any more."""
        if self.requests:
            return self.requests[0]
        return self._heap[0][-1].first() if self._heap else None

    def next(self, cannot: Set[str]) -> Lease:
        """Take out the request whose turn it is; it counts as granted unless it cannot start."""
        if self._heap:
            _, name, side = self._heap[0]
            request = side.next(cannot)
            if side.first() is None:
                heappop(self._heap)
            else:
                heapreplace(self._heap, (side.key(), name, side))
        else:
            request = self.requests.popleft()
        self.held += 0 if request.id in cannot else request.count
        return request

    def key(self) -> _Key:
        """Return its place among its siblings; the least is next."""
        first = self.first()
        assert first is not None, "asked where nobody waits"
        # The shares of a project's people are worked out only where one of them holds anything.
        part = self.held / (self.node.target or 1e-9) if self.held else 0.0
        return self.held >= self.node.guarantee, part, *first.ticket, first.id
