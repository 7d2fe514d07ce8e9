"""Takes back what projects borrow: who may reclaim from whom, and which lease goes.

Owns the two rules, both looked at where the two sides' branches of the tree part.  *Guarantee*: a
request that stays within what is guaranteed on its side takes from a side that holds more than is
guaranteed to it.  *Fairness*: one that stays within its share takes from a side that keeps its
share, where one of the two is a whole unit off its target; so nothing moves to and fro.  What a
project holds within its quota is never taken, nor what asked to be in quota only, nor a lease
before its minimum runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from datetime import timedelta

from gpulease.policy import budgets, queue
from gpulease.policy.fairness.standing import Node, Tree, above, standing, stays, units_of
from gpulease.policy.lifecycle import time_outs_of
from gpulease.policy.model import Lease, LeaseState, Snapshot

#: How many devices of a lease a request could use.
Useful = Callable[[Lease], int]


class Borrowed:
    """What of one pool is held over quota, and what is left of it while it is handed out.

    Args:
        snapshot: what is known.
        pool: of these devices.
        going: leases that leave for certain or for somebody already.
        settled: leases whose step in this plan is something else.
    """

    def __init__(
        self, snapshot: Snapshot, pool: str, going: Iterable[str], settled: Container[str] = ()
    ) -> None:
        self._snapshot = snapshot
        self._spent = budgets.exhausted(snapshot)
        self._tree: Tree | None = standing(snapshot).get(pool)
        self._moved: dict[Node, int] = {}
        self._lent: dict[Node, list[Lease]] = {}  # project -> leases, in the order in which they go
        gone = set(going)
        for lease in queue.holding(snapshot) if self._tree is not None else ():
            if queue.pool_of(snapshot, lease) != pool or not stays(snapshot, lease):
                continue
            if lease.id in gone:
                self._move(lease, -units_of(lease))
            elif lease.id not in settled and self._may_go(lease):
                self._lent.setdefault(_project(self._leaf(lease)), []).append(lease)
        for leases in self._lent.values():
            leases.sort(key=self._within_project)

    @property
    def nothing(self) -> bool:
        """Whether nobody holds anything that could be taken back."""
        return not self._lent

    def coming(self, request: Lease) -> None:
        """Count a request that starts in this plan, or gets what it lacks in another way."""
        if self._tree is not None:
            self._move(request, request.count)

    def take(self, request: Lease, useful: Useful, missing: int) -> list[Lease]:
        """Return the leases that go for a request, none if they do not give it all it lacks."""
        if self._tree is None or missing <= 0 or not self._may_take(request):
            return []
        taken: list[Lease] = []
        while missing > 0:
            best = self._best(request, useful)
            if best is None:
                self._put_back(taken)
                return []
            taken.append(best)
            self._move(best, -units_of(best))
            self._lent[_project(self._leaf(best))].remove(best)
            missing -= useful(best)
        self._move(request, request.count)
        return taken

    def _may_take(self, request: Lease) -> bool:
        """Whether either rule may hold for a request at all; most have more than is theirs."""
        leaf, wanted = self._leaf(request), request.count
        project = _project(leaf)
        own = self._held(project) + wanted <= project.guarantee
        return own or self._held(leaf) + wanted <= leaf.share

    def _put_back(self, taken: Iterable[Lease]) -> None:
        for lease in taken:
            self._move(lease, units_of(lease))
            leases = self._lent[_project(self._leaf(lease))]
            leases.append(lease)
            leases.sort(key=self._within_project)

    def _best(self, request: Lease, useful: Useful) -> Lease | None:
        leaf = self._leaf(request)
        found = [
            lease
            for project, leases in self._lent.items()
            if self._held(project) > project.guarantee
            and (lease := self._first(request, leaf, leases, useful)) is not None
        ]
        return min(found, key=self._between_projects, default=None)

    def _first(
        self, request: Lease, leaf: Node, leases: Iterable[Lease], useful: Useful
    ) -> Lease | None:
        """Return the lease of one project that goes first; one that leaves it its quota, if any."""
        cutting: Lease | None = None
        for lease in leases:
            if not useful(lease) or not self._entitled(request, leaf, lease):
                continue
            if not self._cuts(lease):
                return lease
            cutting = cutting or lease
        return cutting

    def _entitled(self, request: Lease, leaf: Node, lease: Lease) -> bool:
        mine, theirs = _sides(leaf, self._leaf(lease))
        if not all(self._held(node) > node.guarantee for node in _projects(theirs)):
            return False
        return self._by_guarantee(mine, request.count) or self._by_share(
            mine, theirs, request.count, units_of(lease)
        )

    def _by_guarantee(self, mine: list[Node], wanted: int) -> bool:
        projects = _projects(mine)
        return bool(projects) and all(self._held(n) + wanted <= n.guarantee for n in projects)

    def _by_share(self, mine: list[Node], theirs: list[Node], wanted: int, units: int) -> bool:
        if not mine or not theirs:
            return False  # the same person's
        kept = _projects(theirs) or theirs
        fair = all(self._held(node) + wanted <= node.share for node in mine)
        if not fair or not all(self._held(node) - units >= node.share for node in kept):
            return False
        top, other = mine[-1], theirs[-1]
        lacks = self._held(top) + wanted <= top.target
        return lacks or self._held(other) - units >= other.target

    def _cuts(self, lease: Lease) -> bool:
        """Whether a lease's project holds less than its quota without it."""
        project = _project(self._leaf(lease))
        return self._held(project) - units_of(lease) < project.guarantee

    def _between_projects(self, lease: Lease) -> tuple[object, ...]:
        """Told already, most idle, most over the share, youngest; whoever is cut into last."""
        told, idle, age, order = self._rank(lease)
        project = _project(self._leaf(lease))
        return told, self._cuts(lease), idle, project.target - self._held(project), age, order

    def _within_project(self, lease: Lease) -> tuple[object, ...]:
        told, idle, age, order = self._rank(lease)
        leaf = self._leaf(lease)
        return told, idle, leaf.target - leaf.held, age, order

    def _rank(self, lease: Lease) -> tuple[bool, float, float, object]:
        evidence = self._snapshot.evidence.get(lease.id)
        age = (self._snapshot.now - (lease.active_since or self._snapshot.now)).total_seconds()
        told = lease.state is LeaseState.WARNED
        return not told, -(evidence.quiet_for if evidence else 0.0), age, queue.order(lease)

    def _may_go(self, lease: Lease) -> bool:
        if lease.active_since is None or lease.in_quota_only:
            return False
        least = time_outs_of(self._snapshot.policy, lease).minimum_runtime
        return self._snapshot.now - lease.active_since >= timedelta(seconds=least)

    def _leaf(self, lease: Lease) -> Node:
        assert self._tree is not None, "asked where there are no projects"
        return self._tree.leaf(lease, spent=lease.id in self._spent)

    def _held(self, node: Node) -> int:
        return node.held + self._moved.get(node, 0)

    def _move(self, lease: Lease, units: int) -> None:
        for node in above(self._leaf(lease)):
            self._moved[node] = self._moved.get(node, 0) + units


def _project(leaf: Node) -> Node:
    assert leaf.parent is not None, "a person is in a project"
    return leaf.parent


def _projects(side: list[Node]) -> list[Node]:
    """Return the projects and departments of a side, without the person."""
    return side[1:]


def _sides(mine: Node, theirs: Node) -> tuple[list[Node], list[Node]]:
    """Return both paths, from the person up to where they meet, without that node."""
    ours, others = list(above(mine)), list(above(theirs))
    while ours and others and ours[-1] is others[-1]:
        ours.pop()
        others.pop()
    return ours, others
