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
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from heapq import heapify, heappop, heapreplace

from gpulease.policy import budgets, queue
from gpulease.policy.batch import stands_back
from gpulease.policy.fairness.standing import Node, Tree, admissible, standing
from gpulease.policy.memo import once
from gpulease.policy.model import Lease, Snapshot

_Key = tuple[bool, float, datetime, int, str]


class Line:
    """Requests in the order in which they are served; to be gone through often.

    ``all``: the same ones, first come first.  ``pool``: of all of them, ``None`` for several.
    """

    def __init__(self, all_: Sequence[Lease], source: Iterable[Lease], pool: str | None) -> None:
        self.all, self.pool = all_, pool
        self._source = iter(source)
        self._known: list[Lease] = []

    def __iter__(self) -> Iterator[Lease]:
        at = 0
        while True:
            if at == len(self._known):
                following = next(self._source, None)
                if following is None:
                    return
                self._known.append(following)
            yield self._known[at]
            at += 1


@once
def lines(snapshot: Snapshot) -> Sequence[Line]:
    """Return the queues that are served one after the other: one of each pool, or one for all."""
    trees = standing(snapshot)
    back = frozenset(
        [x.id for x in queue.waiting(snapshot) if x.batch and stands_back(x, snapshot)]
    )
    if not trees:
        requests = queue.waiting(snapshot)
        return [Line(requests, _people_first(requests, back), None)]
    over = budgets.exhausted(snapshot)
    startable = frozenset([request.id for request in admissible(snapshot)])
    return [
        Line(
            requests,
            _people_first(
                _in_turn(trees[pool], requests, over, startable) if pool in trees else requests,
                back,
            ),
            pool,
        )
        for pool, requests in queue.by_pool(snapshot).items()
    ]


def _people_first(line: Iterable[Lease], back: frozenset[str]) -> Iterable[Lease]:
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


def _in_turn(
    tree: Tree, line: Sequence[Lease], over: frozenset[str], startable: frozenset[str]
) -> Iterator[Lease]:
    root = _Branch(tree.root)
    known: dict[tuple[str, bool], list[Lease]] = {}
    for request in line:
        key = request.project, request.id in over
        mine = known.get(key)
        if mine is None:
            mine = known[key] = root.people(tree.project(request, spent=key[1])).line
        mine.append(request)
    root.begin()
    for _ in line:
        request = root.next()
        yield request
        root.count(request.count if request.id in startable else 0)


class _Branch:
    """A department with the projects that wait below it, and its own count of what is held."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.held = node.held
        self.below: dict[str, _Branch] = {}
        self._heap: list[tuple[_Key, str, _Branch]] = []

    def people(self, project: Node) -> _People:
        """Return the people of a project, made where there are none yet; for the root."""
        path = [project]
        while (parent := path[-1].parent) is not None and parent is not self.node:
            path.append(parent)
        branch = self
        for node in reversed(path[1:]):
            branch = branch.below.setdefault(node.name, _Branch(node))
        found = branch.below.setdefault(project.name, _People(project))
        assert isinstance(found, _People), "a project has people, a department has projects"
        return found

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

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.line: list[Lease] = []
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
