"""Whose turn it is: the order in which the queue is served.

Without projects it is first come, first served.  With projects the turn goes, at each level of the
tree, to who has least of what is theirs: below the guarantee before above it, then by what is held
of the target; of equals to who asked first.  A person's own requests keep their order.  Each turn
counts as if it were granted, so a project that asks for a hundred does not get them in one go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from datetime import datetime
from heapq import heapify, heapreplace

from gpulease.policy import budgets, queue
from gpulease.policy.fairness.standing import Node, Tree, admissible, standing
from gpulease.policy.memo import once
from gpulease.policy.model import Lease, Snapshot

_Key = tuple[bool, float, datetime, int, str]


@once
def turns(snapshot: Snapshot) -> tuple[Lease, ...]:
    """Return the queued requests in the order in which they are served."""
    trees = standing(snapshot)
    if not trees:
        return queue.waiting(snapshot)
    over = budgets.exhausted(snapshot)
    startable = frozenset(request.id for request in admissible(snapshot))
    lines: dict[str, list[Lease]] = {}
    for request in queue.waiting(snapshot):
        lines.setdefault(queue.pool_of(snapshot, request), []).append(request)
    ordered: list[Lease] = []
    for pool in sorted(lines, key=lambda each: (queue.order(lines[each][0]), each)):
        tree = trees.get(pool)
        line = lines[pool]
        ordered += _in_turn(tree, line, over, startable) if tree is not None else line
    return tuple(ordered)


def _in_turn(
    tree: Tree, line: Iterable[Lease], over: frozenset[str], startable: frozenset[str]
) -> Iterable[Lease]:
    root = _Branch(tree.root)
    count = 0
    for request in line:
        root.add(tree.leaf(request, spent=request.id in over), request)
        count += 1
    root.begin()
    for _ in range(count):
        yield root.next(startable)


class _Branch:
    """A node with the requests that wait below it, and its own count of what is held."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._held = node.held
        self.line: deque[Lease] = deque()
        self.below: dict[str, _Branch] = {}
        self._heap: list[tuple[_Key, _Branch]] = []

    def add(self, leaf: Node, request: Lease) -> None:
        """Take a request in, in the order of the queue; for the root."""
        path = [leaf]
        while path[-1].parent is not None and path[-1].parent is not self._node:
            path.append(path[-1].parent)
        branch = self
        for node in reversed(path):
            branch = branch.below.setdefault(node.name, _Branch(node))
        branch.line.append(request)

    def begin(self) -> None:
        """Put what is below in order; once all requests are in."""
        for branch in self.below.values():
            branch.begin()
        self._heap = [(branch.key(), branch) for branch in self.below.values()]
        heapify(self._heap)

    def next(self, startable: frozenset[str]) -> Lease:
        """Return the request whose turn it is."""
        if not self.below:
            request = self.line.popleft()
        else:
            _, branch = self._heap[0]
            request = branch.next(startable)
            if branch.empty():
                self._drop_first()
            else:
                heapreplace(self._heap, (branch.key(), branch))
        if request.id in startable:
            self._held += request.count
        return request

    def __lt__(self, other: _Branch) -> bool:
        return self._node.name < other._node.name

    def _drop_first(self) -> None:
        last = self._heap.pop()
        if self._heap:
            heapreplace(self._heap, last)

    def empty(self) -> bool:
        """Whether everybody below has had their turns."""
        return not self.line and not self._heap

    def first(self) -> Lease:
        """Return the request that would be next."""
        return self.line[0] if self.line else self._heap[0][1].first()

    def key(self) -> _Key:
        """Return its place among its siblings; the least is next."""
        node, first = self._node, self.first()
        full = node.target if node.target > 0 else 1e-9
        at, number = first.ticket
        return self._held >= node.guarantee, self._held / full, at, number, first.id
