"""Takes back what projects borrow: who may reclaim from whom, and which lease goes.

There are two rules, both applied where the two sides' branches of the tree part.  *Guarantee*: a
request that stays within what is guaranteed on its side takes from a side that holds more than is
guaranteed to it.  *Fairness*: one that stays within its share takes from a side that keeps its
share, where one of the two is a whole unit off its target; so nothing moves to and fro.  What a
project holds within its quota is never taken, whatever is promised to it besides, nor what asked to
be in quota only, nor a lease before its minimum runtime.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple

from gpulease.policy import budgets, queue
from gpulease.policy.fairness import standing, stays, units_of
from gpulease.policy.model import Lease, Snapshot
from gpulease.policy.reclaim.reclaim_candidates import (
    Given,
    Loan,
    Useful,
    loans_of,
    may_go,
    next_parts,
    within_project,
)
from gpulease.policy.shares import Node, Tree


class _Right(NamedTuple):
    """By which rule a request may take; ``lacks``: with it its side is not above its target."""

    by_guarantee: bool
    by_share: bool
    lacks: bool


#: A lease that may go, and its place among all of these: the least goes first.
_Place = tuple[tuple[object, ...], Loan]


class Borrowed:
    """What of one pool is held over quota, and what is left of it while it is handed out.

    Args:
        snapshot: what is known.
        pool: of these devices.
        going: leases that leave for certain or for somebody already.
        parts: of those, how many devices each gives that goes on with the rest of them.
        settled: leases whose step in this plan is something else.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        pool: str,
        going: Iterable[str],
        settled: Container[str] = (),
        *,
        parts: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._snapshot = snapshot
        self._spent = budgets.exhausted(snapshot)
        self._tree: Tree | None = standing(snapshot).get(pool)
        self._moved: dict[Node, int] = {}  # what leaves: nobody holds it any more
        self._coming: dict[Node, int] = {}  # what is promised: it entitles to less, and is not held
        self._lent: dict[Node, list[Loan]] = {}  # project -> leases, in the order in which they go
        self._lenders: set[Node] = set()  # those of these projects that hold more than their quota
        self._units: dict[Node, set[int]] = {}  # how many units one of its leases may hold
        self._ordered: set[Node] = set()  # the projects whose leases stand in that order
        #: project -> what goes first of it, by what is useful and by which right
        self._firsts: dict[Node, dict[Hashable, _Place | None]] = {}
        gone = set(going)
        for lease in queue.holding(snapshot) if self._tree is not None else ():
            if queue.pool_of(snapshot, lease) != pool or not stays(snapshot, lease):
                continue
            if lease.id in gone:
                self._move(self._leaf(lease), -parts.get(lease.id, units_of(lease)))
            elif lease.id not in settled and may_go(snapshot, lease):
                leaf = self._leaf(lease)
                loans = loans_of(snapshot, lease, leaf)
                self._lent.setdefault(_project(leaf), []).extend(loans)
                self._units.setdefault(_project(leaf), set()).update(x.units for x in loans)
        self._lenders.update(filter(self._is_over_quota, self._lent))

    @property
    def nothing(self) -> bool:
        """Whether nobody holds anything that could be taken back."""
        return not self._lent

    def coming(self, request: Lease) -> None:
        """Count a request that starts in this plan, or gets what it lacks in another way."""
        if self._tree is not None:
            self._promise(self._leaf(request), request.count)

    def take(
        self, request: Lease, choices: Sequence[tuple[Useful, int]], places: int
    ) -> tuple[list[Given], list[int]]:
        """Return the leases that go for a request and which choices they give it, else nothing.

        A lease goes for one request at a time, be it in part.

        Args:
            request: who takes.
            choices: what is useful at a place and how many devices are missing there, best first.
            places: at how many of them it must get what is missing.
        """
        taken, chosen = list[Loan](), list[int]()
        spare: Counter[Hashable] = Counter()
        for number, (useful, missing) in enumerate(choices if self.may_take(request) else ()):
            if len(chosen) == places:
                break
            here = self._take_at(request, useful, missing - spare[useful.kind])
            if here is not None:
                taken += here
                chosen.append(number)
                spare[useful.kind] += sum(loan.gives(useful) for loan in here) - missing
        if not taken or len(chosen) < places:
            self._put_back(taken)
            return [], []
        self._promise(self._leaf(request), request.count)
        return self._given(taken), chosen

    def _given(self, taken: Iterable[Loan]) -> list[Given]:
        """Return the leases of some loans; the rest of these goes for nobody else."""
        units: Counter[str] = Counter()
        leases: dict[str, tuple[Lease, Node]] = {}
        for loan in taken:
            units[loan.lease.id] += loan.units
            leases[loan.lease.id] = loan.lease, _project(loan.leaf)
        for lease, project in leases.values():
            if lease.spares:
                self._firsts.pop(project, None)
                self._lent[project] = [x for x in self._lent[project] if x.lease.id != lease.id]
        return [Given(lease, units[lease.id]) for lease, _ in leases.values()]

    def _take_at(self, request: Lease, useful: Useful, missing: int) -> list[Loan] | None:
        taken: list[Loan] = []
        while missing > 0:
            best = self._best(request, useful)
            if best is None:
                self._put_back(taken)
                return None
            taken.append(best)
            self._move(best.leaf, -best.units)
            self._lent[_project(best.leaf)].remove(best)
            missing -= best.gives(useful)
        return taken

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

    def _put_back(self, taken: Iterable[Loan]) -> None:
        for loan in taken:
            self._move(loan.leaf, loan.units)
            self._lent[_project(loan.leaf)].append(loan)
            self._ordered.discard(_project(loan.leaf))

    def _best(self, request: Lease, useful: Useful) -> Loan | None:
        leaf, wanted = self._leaf(request), request.count
        own, found = _project(leaf), list[_Place]()
        if own in self._lenders:
            first = self._first_within(leaf, wanted, self._loans(own), useful)
            if first is not None:
                found.append((self._between_projects(own, first), first))
        # The nearer the two sides meet, the less must hold of mine: from siblings on.
        mine = leaf.path
        rights = [self._right(mine[:n], wanted) for n in range(2, len(mine) + 1)]
        if rights[0] is not None:
            other = self._first_of_others(own, rights, useful)
            if other is not None:
                found.append(other)
        return min(found, key=itemgetter(0))[1] if found else None

    def _first_of_others(
        self, own: Node, rights: Sequence[_Right | None], useful: Useful
    ) -> _Place | None:
        """Return the lease that goes first of all other projects', with its place."""
        found = []
        for project in self._lenders - {own}:
            mine, theirs = _apart(own, project)
            right = rights[len(mine) - 1]
            if right is None:
                continue
            known, key = self._firsts.setdefault(project, {}), (len(theirs), right, useful.kind)
            if key not in known:
                known[key] = self._first(theirs, right, useful)
            found.append(known[key])
        return min((each for each in found if each is not None), key=itemgetter(0), default=None)

    def _right(self, mine: Sequence[Node], wanted: int) -> _Right | None:
        """Return by which rule a side may take, ``None`` for neither."""
        by_guarantee = all(self._due(n) + wanted <= n.guarantee for n in mine[1:])
        by_share = all(self._due(n) + wanted <= n.share for n in mine)
        if not by_guarantee and not by_share:
            return None
        lacks = by_share and self._due(mine[-1]) + wanted <= mine[-1].target
        return _Right(by_guarantee, by_share, lacks)

    def _first(self, theirs: Sequence[Node], right: _Right, useful: Useful) -> _Place | None:
        """Return the lease of one project that goes first, with its place among all projects'.

        One that leaves the project its quota, if there is any.
        """
        project = theirs[0]
        if not all(map(self._is_over_quota, theirs)):
            return None
        fair = {units for units in self._units[project] if self._may_lose(theirs, units, right)}
        cutting: Loan | None = None
        for loan in next_parts(self._loans(project)) if fair else ():
            if loan.units not in fair or not loan.gives(useful):
                continue
            if self._held(project) - loan.units >= project.guarantee:
                return self._between_projects(project, loan), loan
            cutting = cutting or loan
        return None if cutting is None else (self._between_projects(project, cutting), cutting)

    def _is_over_quota(self, side: Node) -> bool:
        """Whether a side holds more than is guaranteed to it."""
        return self._held(side) > side.guarantee

    def _may_lose(self, theirs: Sequence[Node], units: int, right: _Right) -> bool:
        """Whether a side may be asked for so many units."""
        return right.by_guarantee or (
            right.by_share
            and all(self._held(node) - units >= node.share for node in theirs)
            and (right.lacks or self._held(theirs[-1]) - units >= theirs[-1].target)
        )

    def _loans(self, project: Node) -> list[Loan]:
        """Return what a project holds that may go, in the order in which it goes.

        It is put in order when it is asked for: that needs everybody's share.
        """
        loans = self._lent[project]
        if project not in self._ordered:
            self._ordered.add(project)
            if len(loans) > 1:
                loans.sort(key=within_project)
        return loans

    def _first_within(
        self, mine: Node, wanted: int, loans: Iterable[Loan], useful: Useful
    ) -> Loan | None:
        """Return what goes first from one person of a project to another."""
        if self._due(mine) + wanted > mine.share:
            return None
        lacks = self._due(mine) + wanted <= mine.target
        project, cutting = _project(mine), None
        for loan in next_parts(loans):
            theirs, units = loan.leaf, loan.units
            if theirs is mine or self._held(theirs) - units < theirs.share:
                continue
            if not (lacks or self._held(theirs) - units >= theirs.target):
                continue
            if not loan.gives(useful):
                continue
            if self._held(project) - units >= project.guarantee:
                return loan
            cutting = cutting or loan
        return cutting

    def _between_projects(self, project: Node, loan: Loan) -> tuple[object, ...]:
        """Told already, most idle, most over the share, youngest; whoever is cut into last."""
        told, idle, age, order = loan.rank
        held = self._held(project)
        cuts = held - loan.units < project.guarantee
        return told, cuts, idle, project.target - held, age, order, loan.part

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
        for node in leaf.path:
            self._coming[node] = self._coming.get(node, 0) + units

    def _move(self, leaf: Node, units: int) -> None:
        project = _project(leaf)
        if project.parent is not None and project.parent.parent is None:
            self._firsts.pop(project, None)
        else:  # what its department holds counts for its other projects as well
            self._firsts.clear()
        for node in leaf.path:
            self._moved[node] = self._moved.get(node, 0) + units
        self._lenders.discard(project)
        if project in self._lent and self._is_over_quota(project):
            self._lenders.add(project)


def _project(leaf: Node) -> Node:
    assert leaf.parent is not None, "a person is in a project"
    return leaf.parent


def _apart(mine: Node, theirs: Node) -> tuple[Sequence[Node], Sequence[Node]]:
    """Return the paths of two projects up to where they meet, without that node."""
    ours, others = mine.path, theirs.path
    while ours and others and ours[-1] is others[-1]:
        ours, others = ours[:-1], others[:-1]
    return ours, others
