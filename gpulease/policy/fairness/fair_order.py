"""Whose turn it is: the order in which the queue is served.

Without projects it is first come, first served.  With projects the turn goes, at each level of the
tree, to who has least of what is theirs: below the guarantee before above it, then by what is held
of the target; of equals to who asked first.  A person's own requests keep their order.  Each turn
counts as if it were granted, so a project that asks for a hundred does not get them in one go.

Turns are worked out as far as they are asked for: of ten thousand requests a plan that has room for
ten asks for some dozen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from functools import partial
from heapq import heapify, heappop, heappush, heapreplace

from gpulease.policy import budgets, queue
from gpulease.policy.batch import stands_back
from gpulease.policy.fairness.standing import blocked, by_spent, standing
from gpulease.policy.fairness.tree import Node
from gpulease.policy.memo import once
from gpulease.policy.model import Lease, Snapshot

_Key = tuple[bool, float, datetime, int, str]


class Line:
    """The requests of a pool in the order in which they are served; to be gone through often.

    Attributes:
        groups: the same ones, in groups that want the same.
        pool: of all of them, ``None`` for several.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[Lease]],
        pool: str | None,
        source: Callable[[], Iterable[Lease]],
        back: Set[str] = frozenset(),
    ) -> None:
        self.groups, self.pool = groups, pool
        self._begin, self._back = source, back
        self._source: Iterator[Lease] | None = None
        self._known: list[Lease] = []

    def __iter__(self) -> Iterator[Lease]:
        at = 0
        while True:
            if at == len(self._known):
                if self._source is None:
                    self._source = iter(_people_first(self._begin(), self._back))
                following = next(self._source, None)
                if following is None:
                    return
                self._known.append(following)
            yield self._known[at]
            at += 1


@once
def lines(snapshot: Snapshot) -> Sequence[Line]:
    """Return the queues that are served one after the other: one of each pool, or one for all."""
    runs = [group for group in queue.alike(snapshot) if group[0].batch]
    back = frozenset([x.id for group in runs for x in group if stands_back(x, snapshot)])
    if not standing(snapshot):
        return [Line(queue.alike(snapshot), None, lambda: queue.waiting(snapshot), back)]
    return [
        Line(groups, pool, partial(_all_turns, snapshot, pool), back)
        for pool, groups in queue.groups_by_pool(snapshot).items()
    ]


def _people_first(line: Iterable[Lease], back: Set[str]) -> Iterable[Lease]:
    """Return a line with those behind who stand back: runs of whole notebooks."""
    if not back:
        return line

    def ordered() -> Iterator[Lease]:
        behind: list[Lease] = []
        for request in line:
            if request.id in back:
                behind.append(request)
            else:
                yield request
        yield from behind

    return ordered()


@once
def turns(snapshot: Snapshot) -> tuple[Lease, ...]:
    """Return all queued requests in the order in which they are served."""
    return tuple([request for line in lines(snapshot) for request in line])


def _all_turns(snapshot: Snapshot, pool: str) -> Iterable[Lease]:
    if pool not in standing(snapshot):
        return queue.by_pool(snapshot)[pool]
    found = Turns(snapshot, pool)
    found.open(found.sides)
    return found


@once
def _by_project(snapshot: Snapshot) -> Mapping[str, Mapping[str, Sequence[Lease]]]:
    """Return the requests of each project, by pool and by the name of its node in the tree."""
    over, trees = budgets.exhausted(snapshot), standing(snapshot)
    found: dict[str, dict[str, list[Sequence[Lease]]]] = {}
    for pool, groups in queue.groups_by_pool(snapshot).items():
        tree, here = trees.get(pool), found.setdefault(pool, {})
        if tree is None:
            continue
        for group in groups:
            for requests, spent in by_spent(group, over):
                node = tree.project(requests[0], spent=spent)
                here.setdefault(node.name, []).append(requests)
    return {
        pool: {name: queue.in_order(groups) for name, groups in projects.items()}
        for pool, projects in found.items()
    }


class Turns:
    """A pool's requests in turn, of those projects that are looked at.

    Their order is the one among all: what a project or department at the top has had is its own.
    So it costs what they have who are looked at, and whoever is done with a project closes it.

    Args:
        snapshot: what is known.
        pool: whose; there is a tree of it.

    Attributes:
        sides: the names of all projects of which somebody waits.
    """

    def __init__(self, snapshot: Snapshot, pool: str) -> None:
        self._tree, self._cannot = standing(snapshot)[pool], blocked(snapshot)
        self._waiting = _by_project(snapshot).get(pool, {})
        self.sides = self._waiting.keys()
        self._top: dict[str, str] = {}  # project -> its department at the top, or itself
        self._below: dict[str, list[str]] = {}  # the other way round
        for name in self._waiting:
            self._top[name] = top = _top(self._tree.named(name)).name
            self._below.setdefault(top, []).append(name)
        self._opened: dict[str, set[str]] = {}  # what is at the top -> its projects that are open
        self._branches: dict[str, _Branch] = {}
        self._heap: list[tuple[_Key, str, _Branch]] = []
        self._there: set[str] = set()  # what of the top stands in the heap
        self._last: _Key | None = None

    def open(self, sides: Iterable[str]) -> None:
        """Look at some projects from now on; what would have been their turn already is over."""
        for side in sides:
            top = self._top[side]
            self._opened.setdefault(top, set()).add(side)
            if top in self._there:
                continue
            branch = self._branches.get(top)
            if branch is None:
                branch = self._branches[top] = self._branch(top)
            while self._last is not None and not branch.empty() and branch.key() < self._last:
                self._count(branch)
            if not branch.empty():
                self._there.add(top)
                heappush(self._heap, (branch.key(), top, branch))

    def close(self, side: str) -> None:
        """Look at a project no longer."""
        self._opened[self._top[side]].discard(side)

    def __iter__(self) -> Iterator[Lease]:
        heap = self._heap
        while heap:
            key, top, branch = heap[0]
            if not self._opened[top]:
                heappop(heap)
                self._there.discard(top)
                continue
            self._last = key
            request = self._count(branch)
            if branch.empty():
                heappop(heap)
                self._there.discard(top)
            else:
                heapreplace(heap, (branch.key(), top, branch))
            yield request

    def _count(self, branch: _Branch) -> Lease:
        """Count the turn of the request that is next in a branch, and return it."""
        request = branch.next()
        branch.count(0 if request.id in self._cannot else request.count)
        return request

    def _branch(self, top: str) -> _Branch:
        """Return what is at the top with all of its projects."""
        root = _Branch(self._tree.root)
        for name in self._below[top]:
            root.people(self._tree.named(name), self._waiting[name])
        (branch,) = root.below.values()
        branch.begin()
        return branch


def _top(node: Node) -> Node:
    """Return what a node belongs to below the root, be it itself."""
    while node.parent is not None and node.parent.parent is not None:
        node = node.parent
    return node


class _Branch:
    """A department with the projects that wait below it, and its own count of what is held."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.held = node.held
        self.below: dict[str, _Branch] = {}
        self._heap: list[tuple[_Key, str, _Branch]] = []

    def people(self, project: Node, line: Sequence[Lease]) -> None:
        """Put in the people of a project with their requests, first come first; for the root."""
        path = [project]
        while (parent := path[-1].parent) is not None and parent is not self.node:
            path.append(parent)
        branch = self
        for node in reversed(path[1:]):
            branch = branch.below.setdefault(node.name, _Branch(node))
        branch.below[project.name] = _People(project, line)

    def begin(self) -> None:
        """Put what is below in order; once all requests are in."""
        for branch in self.below.values():
            branch.begin()
        self._heap = [(branch.key(), branch.node.name, branch) for branch in self.below.values()]
        heapify(self._heap)

    def next(self) -> Lease:
        """Return the request whose turn it is; it stays there until it is counted."""
        return self._heap[0][2].next()

    def count(self, units: int) -> None:
        """Count the turn of the request that is next, and go on to the one after it."""
        branch = self._heap[0][2]
        branch.count(units)
        self.held += units
        if branch.empty():
            heappop(self._heap)
        else:
            heapreplace(self._heap, (branch.key(), branch.node.name, branch))

    def empty(self) -> bool:
        """Whether everybody below has had their turns."""
        return not self._heap

    def key(self) -> _Key:
        """Return its place among its siblings; the least is next."""
        node, first = self.node, self.next()
        at, number = first.ticket
        full = node.target or 1e-9
        return self.held >= node.guarantee, self.held / full, at, number, first.id


class _People(_Branch):
    """A project with the requests of its people.

    Who holds nothing and had no turn yet comes first, in the order of the queue: of them nobody's
    share need be known.
    """

    def __init__(self, node: Node, line: Sequence[Lease]) -> None:
        super().__init__(node)
        self.line = line
        self._at = 0
        self._had: dict[str, int] = {}
        self._later: dict[str, deque[Lease]] = {}
        self._again: list[tuple[float, datetime, int, str, str]] | None = None

    def begin(self) -> None:
        """Find the first; once all requests are in."""
        self._had = dict(self.node.holders())
        self._skip()

    def next(self) -> Lease:
        """Return the request whose turn it is."""
        if self._at < len(self.line):
            return self.line[self._at]
        assert self._again, "asked where nobody waits"
        return self._later[self._again[0][-1]][0]

    def count(self, units: int) -> None:
        """Count the turn of the request that is next, and go on to the one after it."""
        self.held += units
        if self._at < len(self.line):
            if units:
                self._had[self.line[self._at].user] = units
            self._at += 1
            self._skip()
            return
        assert self._again, "asked where nobody waits"
        user = self._again[0][-1]
        self._had[user] += units
        self._later[user].popleft()
        if self._later[user]:
            heapreplace(self._again, self._place(user))
        else:
            heappop(self._again)

    def empty(self) -> bool:
        """Whether everybody has had their turns."""
        return self._at == len(self.line) and not self._again

    def _skip(self) -> None:
        """Put those aside who hold something; at the end of the line it is their turn."""
        line, had = self.line, self._had
        while self._at < len(line) and (user := line[self._at].user) in had:
            self._later.setdefault(user, deque()).append(line[self._at])
            self._at += 1
        if self._at == len(line) and self._again is None:
            self._again = [self._place(user) for user in self._later]
            heapify(self._again)

    def _place(self, user: str) -> tuple[float, datetime, int, str, str]:
        first = self._later[user][0]
        full = self.node.below[user].target or 1e-9
        return self._had[user] / full, *first.ticket, first.id, user
