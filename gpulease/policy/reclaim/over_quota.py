"""Takes back what projects borrow: who may reclaim from whom, and which lease goes.

Owns the two rules, both looked at where the two sides' branches of the tree part.  *Guarantee*: a
request that stays within what is guaranteed on its side takes from a side that holds more than is
guaranteed to it.  *Fairness*: one that stays within its share takes from a side that keeps its
share, where one of the two is a whole unit off its target; so nothing moves to and fro.  What a
project holds within its quota is never taken, whatever is promised to it besides, nor what asked to
be in quota only, nor a lease before its minimum runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from gpulease.policy import budgets, queue
from gpulease.policy.fairness.standing import Node, Tree, above, standing, stays, units_of
from gpulease.policy.lifecycle import time_outs_of
from gpulease.policy.model import Lease, LeaseState, Snapshot


@dataclass(frozen=True)
class Useful:
    """How many devices of a lease a request could use; ``kind`` says who uses the same."""

    kind: Hashable
    of: Callable[[Lease], int]


@dataclass(frozen=True)
class _Loan:
    """A lease that may go; ``rank``: told already, most idle, youngest first."""

    lease: Lease
    leaf: Node
    units: int
    rank: tuple[bool, float, float, object]


@dataclass(frozen=True)
class _Right:
    """By which rule a request may take; ``lacks``: with it its side is not above its target."""

    by_guarantee: bool
    by_share: bool
    lacks: bool


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
        self._moved: dict[Node, int] = {}  # what leaves: nobody holds it any more
        self._coming: dict[Node, int] = {}  # what is promised: it entitles to less, and is not held
        self._lent: dict[Node, list[_Loan]] = {}  # project -> leases, in the order in which they go
        self._within: dict[tuple[Node, int], bool] = {}
        self._known: dict[Node, dict[Hashable, tuple[_Loan, tuple[object, ...]] | None]] = {}
        self._sides: dict[Node, Sequence[tuple[Node, int, list[Node]]]] = {}
        gone = set(going)
        for lease in queue.holding(snapshot) if self._tree is not None else ():
            if queue.pool_of(snapshot, lease) != pool or not stays(snapshot, lease):
                continue
            if lease.id in gone:
                self._move(self._leaf(lease), -units_of(lease))
            elif lease.id not in settled and self._may_go(lease):
                leaf = self._leaf(lease)
                loan = _Loan(lease, leaf, units_of(lease), self._rank(lease))
                self._lent.setdefault(_project(leaf), []).append(loan)
        for loans in self._lent.values():
            loans.sort(key=_within_project)

    @property
    def nothing(self) -> bool:
        """Whether nobody holds anything that could be taken back."""
        return not self._lent

    def coming(self, request: Lease) -> None:
        """Count a request that starts in this plan, or gets what it lacks in another way."""
        if self._tree is not None:
            self._promise(self._leaf(request), request.count)

    def take(self, request: Lease, useful: Useful, missing: int) -> list[Lease]:
        """Return the leases that go for a request, none if they do not give it all it lacks."""
        if missing <= 0 or not self.may_take(request):
            return []
        taken: list[_Loan] = []
        while missing > 0:
            best = self._best(request, useful)
            if best is None:
                self._put_back(taken)
                return []
            taken.append(best)
            self._move(best.leaf, -best.units)
            self._lent[_project(best.leaf)].remove(best)
            missing -= useful.of(best.lease)
        self._promise(self._leaf(request), request.count)
        return [loan.lease for loan in taken]

    def may_take(self, request: Lease) -> bool:
        """Whether either rule may hold for a request at all; most have more than is theirs."""
        if self._tree is None:
            return False
        leaf, wanted = self._leaf(request), request.count
        project = _project(leaf)
        units = self._due(project) + wanted
        if units <= project.guarantee:
            return True
        within = units <= project.share or project in self._lent
        return within and self._due(leaf) + wanted <= leaf.share

    def kind(self, request: Lease) -> Hashable:
        """Return what requests have in common of which none gets anything where one does not."""
        return request.project, request.id in self._spent

    def hopeless(self, request: Lease) -> bool:
        """Whether none of its kind that asks for as much gets anything, after it got nothing."""
        if self._tree is None:
            return True
        leaf, wanted = self._leaf(request), request.count
        project = _project(leaf)
        units = self._due(project) + wanted
        alone = units > project.guarantee and units > project.share
        tried = alone or self._due(leaf) + wanted <= leaf.share
        return tried and not (self._lent.get(project) and self._moves_within(project, wanted))

    def _moves_within(self, project: Node, wanted: int) -> bool:
        """Whether anything may go from one person of a project to another."""
        key = project, wanted
        if key not in self._within:
            people = project.below.values()
            fair = [x for x in people if self._due(x) + wanted <= x.share]
            over = [x for x in self._lent[project] if self._held(x.leaf) - x.units >= x.leaf.share]
            lacks = any(self._due(x) + wanted <= x.target for x in fair)
            above_target = any(self._held(x.leaf) - x.units >= x.leaf.target for x in over)
            self._within[key] = bool(fair and over) and (lacks or above_target)
        return self._within[key]

    def _put_back(self, taken: Iterable[_Loan]) -> None:
        for loan in taken:
            self._move(loan.leaf, loan.units)
            loans = self._lent[_project(loan.leaf)]
            loans.append(loan)
            loans.sort(key=_within_project)

    def _best(self, request: Lease, useful: Useful) -> _Loan | None:
        leaf, wanted = self._leaf(request), request.count
        own, found = _project(leaf), dict[Node, _Loan]()
        if own in self._lent and self._held(own) > own.guarantee:
            first = self._first_within(leaf, wanted, self._lent[own], useful)
            if first is not None:
                found[own] = first
        keys = {project: self._between_projects(project, loan) for project, loan in found.items()}
        # The nearer the two sides meet, the less must hold of mine: from siblings on.
        mine = list(above(leaf))
        rights = {length: self._right(mine[:length], wanted) for length in range(2, len(mine) + 1)}
        for project, length, theirs in self._others(own) if rights[2] is not None else ():
            right = rights[length]
            if right is None:
                continue
            known = self._known.setdefault(project, {})
            key = len(theirs), right, useful.kind
            if key not in known:
                known[key] = self._first(theirs, right, self._lent[project], useful)
            first, place = known[key] or (None, ())
            if first is not None:
                found[project], keys[project] = first, place
        return found[min(keys, key=keys.__getitem__)] if keys else None

    def _others(self, own: Node) -> Sequence[tuple[Node, int, list[Node]]]:
        """Return the other projects that lend, each with the length of my side (the person as well)
        and the nodes of its own, up to where the two meet.
        """
        if own not in self._sides:
            self._sides[own] = [
                (project, 1 + len(mine), theirs)
                for project in self._lent
                if project is not own
                for mine, theirs in (_apart(own, project),)
            ]
        return self._sides[own]

    def _right(self, mine: list[Node], wanted: int) -> _Right | None:
        """Return by which rule a side may take, ``None`` for neither."""
        by_guarantee = all(self._due(n) + wanted <= n.guarantee for n in mine[1:])
        by_share = all(self._due(n) + wanted <= n.share for n in mine)
        if not by_guarantee and not by_share:
            return None
        lacks = by_share and self._due(mine[-1]) + wanted <= mine[-1].target
        return _Right(by_guarantee, by_share, lacks)

    def _first(
        self, theirs: list[Node], right: _Right, loans: Iterable[_Loan], useful: Useful
    ) -> tuple[_Loan, tuple[object, ...]] | None:
        """Return the lease of one project that goes first, with its place among all projects'.

        One that leaves the project its quota, if there is any.
        """
        if not all(self._held(node) > node.guarantee for node in theirs):
            return None
        cutting: _Loan | None = None
        fair: dict[int, bool] = {}
        for loan in loans:
            units = loan.units
            if units not in fair:
                fair[units] = right.by_guarantee or (
                    right.by_share
                    and all(self._held(node) - units >= node.share for node in theirs)
                    and (right.lacks or self._held(theirs[-1]) - units >= theirs[-1].target)
                )
            if not fair[units] or not useful.of(loan.lease):
                continue
            if self._held(theirs[0]) - units >= theirs[0].guarantee:
                return loan, self._between_projects(theirs[0], loan)
            cutting = cutting or loan
        return None if cutting is None else (cutting, self._between_projects(theirs[0], cutting))

    def _first_within(
        self, mine: Node, wanted: int, loans: Iterable[_Loan], useful: Useful
    ) -> _Loan | None:
        """Return what goes first from one person of a project to another."""
        if self._due(mine) + wanted > mine.share:
            return None
        lacks = self._due(mine) + wanted <= mine.target
        project, cutting = _project(mine), None
        for loan in loans:
            theirs, units = loan.leaf, loan.units
            if theirs is mine or self._held(theirs) - units < theirs.share:
                continue
            if not (lacks or self._held(theirs) - units >= theirs.target):
                continue
            if not useful.of(loan.lease):
                continue
            if self._held(project) - units >= project.guarantee:
                return loan
            cutting = cutting or loan
        return cutting

    def _between_projects(self, project: Node, loan: _Loan) -> tuple[object, ...]:
        """Told already, most idle, most over the share, youngest; whoever is cut into last."""
        told, idle, age, order = loan.rank
        held = self._held(project)
        cuts = held - loan.units < project.guarantee
        return told, cuts, idle, project.target - held, age, order

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
        """Return what a side holds that may be asked to give: no more than it really has."""
        return node.held + self._moved.get(node, 0)

    def _due(self, node: Node) -> int:
        """Return what a side that asks has, with what is promised to it."""
        return self._held(node) + self._coming.get(node, 0)

    def _promise(self, leaf: Node, units: int) -> None:
        self._within.clear()
        for node in above(leaf):
            self._coming[node] = self._coming.get(node, 0) + units

    def _move(self, leaf: Node, units: int) -> None:
        project = _project(leaf)
        if project.parent is not None and project.parent.parent is not None:
            self._known.clear()  # what its department holds counts for others as well
        self._known.pop(project, None)
        self._within.clear()
        for node in above(leaf):
            self._moved[node] = self._moved.get(node, 0) + units


def _project(leaf: Node) -> Node:
    assert leaf.parent is not None, "a person is in a project"
    return leaf.parent


def _within_project(loan: _Loan) -> tuple[object, ...]:
    told, idle, age, order = loan.rank
    return told, idle, loan.leaf.target - loan.leaf.held, age, order


def _apart(mine: Node, theirs: Node) -> tuple[list[Node], list[Node]]:
    """Return the paths of two projects up to where they meet, without that node."""
    ours, others = list(above(mine)), list(above(theirs))
    while ours and others and ours[-1] is others[-1]:
        ours.pop()
        others.pop()
    return ours, others
