"""The tree of departments, projects and people in one pool, and what each of them may have.

It counts what is held, wanted and used, and computes the shares.  ``fairness`` says what of a
snapshot counts.

The units of a pool are divided among siblings: each gets ``min(guarantee, demand)``; what is left
goes by weight, capped by demand; who weighs nothing gets what nobody else wants.  The rounding is
house monotone: units are handed out one after the other in an order that does not depend on how
many there are, so one more takes none from anybody.  Among the siblings that would not be above
their fractional target the one is next that would fall below its own first (the quota method of
Balinski and Young), so everybody stays within one unit of the target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from gpulease.policy.model import Lease
from gpulease.policy.projects import Project, Projects


class Node:
    """A department, a project or a person in one pool; counts are units of the pool.

    Shares are worked out when they are asked for, from the root down: of a long queue most people's
    are never needed.

    Attributes:
        below: what belongs to it, by name.
        path: itself and what it belongs to, upwards, without the root.
        guarantee: what is its own.
        held: what it holds.
        waiting: what its requests ask for that could start if everything were free.
        used: of the pool's whole capacity, 0 to 1, decayed.
        used_below: the same of all below it that want something now.
    """

    def __init__(
        self,
        name: str,
        parent: Node | None = None,
        *,
        guarantee: int = 0,
        limit: int | None = None,
        weight: float = 1.0,
        strength: float = 0.0,
    ) -> None:
        self.name, self.parent, self.guarantee = name, parent, guarantee
        self.path: tuple[Node, ...] = (self, *parent.path) if parent is not None else ()
        self.limit, self.weight = limit, weight
        self.held = self.waiting = 0
        self.used = self.used_below = 0.0
        self._share, self._target = 0, 0.0
        self.divided = False
        self.below: dict[str, Node] = {}
        self._strength = strength

    @property
    def share(self) -> int:
        """What it may have, in whole units."""
        if self.parent is not None and not self.parent.divided:
            self.parent.divide()
        return self._share

    @property
    def target(self) -> float:
        """The same before rounding."""
        if self.parent is not None and not self.parent.divided:
            self.parent.divide()
        return self._target

    def settle(self, share: int, target: float) -> None:
        """Say how much it may have; the root's is the pool's, and all else follows."""
        self._share, self._target = share, target

    def wanted(self) -> int:
        """Return the units that it and those below it hold or wait for, within their limits."""
        below = [node.wanted() for node in self.below.values()]
        found = sum(below) if below else self.held + self.waiting
        return found if self.limit is None else min(found, self.limit)

    def divide(self) -> None:
        """Work out the shares of all that belongs to it."""
        units, self.divided = self.share, True
        wanted = {each: want for each in self.below.values() if (want := each.wanted())}
        self.used_below = sum(each.used for each in wanted if each.weight)
        # Of equals the one that holds more comes first, so that rounding moves nothing.
        ranked = sorted(wanted, key=lambda each: (-each.held, each.name))
        weights = {each.name: each.weight for each in wanted if wanted[each] > each.guarantee}
        if self._strength > 0 and any(each.used for each in wanted):
            used = {name: self.below[name].used for name in weights}
            weights = weighed(weights, used, self._strength)
        keys = [f"{rank:09}" for rank in range(len(ranked))]
        claims = [
            Claim(key, each.guarantee, weights.get(each.name, 0.0), wanted[each])
            for key, each in zip(keys, ranked, strict=True)
        ]
        whole, targets = shares(units, claims)
        for key, each in zip(keys, ranked, strict=True):
            each.settle(whole[key], targets[key])


class Tree:
    """All nodes of one pool; ``leaf`` gives a lease's own."""

    def __init__(self, projects: Projects, pool: str, covered: Mapping[str, int]) -> None:
        self.root = Node("", strength=projects.strength)
        self._projects = projects
        self._pool = pool
        self._covered = covered
        self._nodes: dict[str, Node] = {}
        for project in projects.all:
            self._node(project)

    def _node(self, project: Project) -> Node:
        found = self._nodes.get(project.name)
        if found is None:
            parent = self._projects.by_name.get(project.parent)
            above = self._node(parent) if parent is not None else self.root
            own = self._projects.guarantee(project, self._pool)
            found = Node(
                project.name,
                above,
                guarantee=max(0, own - self._covered_of(project)),
                limit=project.share(self._pool).limit,
                weight=project.weight,
                strength=self._projects.strength,
            )
            above.below[project.name] = self._nodes[project.name] = found
        return found

    def _covered_of(self, project: Project) -> int:
        """Return the units of its guarantee that reservations of its own groups cover."""
        mine = self._covered.get(project.group, 0) if project.group else 0
        return mine + sum(self._covered_of(each) for each in self._projects.below(project))

    def leaf(self, lease: Lease, *, spent: bool) -> Node:
        """Return the node of a lease's holder in the project that it is charged to."""
        return self._person(_SPENT if spent else self._projects.home(lease.project), lease.user)

    def _person(self, project: Project, user: str) -> Node:
        node = self._node(project)
        found = node.below.get(user)
        if found is None:
            member = project.member(user)
            found = Node(user, node, limit=member.limit, weight=member.weight)
            node.below[user] = found
        return found

    def hold(self, lease: Lease, units: int, *, spent: bool) -> None:
        """Count a lease as held; before anybody's share is asked for."""
        for node in self.leaf(lease, spent=spent).path:
            node.held += units

    def wait(self, request: Lease, *, spent: bool) -> None:
        """Count a request; before anybody's share is asked for."""
        self.leaf(request, spent=spent).waiting += request.count

    def use(self, project: Project, user: str, part: float) -> None:
        """Count past use, a part of the pool's capacity; before anybody's share is asked for."""
        for node in self._person(project, user).path:
            node.used = min(1.0, node.used + part)


#: The project of leases whose budget is used up: they go on while nobody else wants what they hold.
_SPENT = Project("\0spent", weight=0.0)


#: Two levels that differ by less are the same: weights are sums of floats.
_SAME = 1e-9


class Claim(NamedTuple):
    """What one sibling may claim, in units."""

    name: str
    guarantee: int
    weight: float
    demand: int


class _Part(NamedTuple):
    name: str
    weight: float
    most: int


def shares(capacity: int, claims: Sequence[Claim]) -> tuple[dict[str, int], dict[str, float]]:
    """Return each sibling's share in whole units, and as a fraction of units before rounding."""
    rounds = _rounds(claims)
    return _divide(capacity, claims, rounds), _target(capacity, claims, rounds)


def _target(
    capacity: float, claims: Iterable[Claim], rounds: Iterable[Sequence[_Part]]
) -> dict[str, float]:
    found = dict.fromkeys((each.name for each in claims), 0.0)
    left = float(max(0.0, capacity))
    for parts in rounds:
        given = _level(left, parts)
        for name, units in given.items():
            found[name] += units
        left = max(0.0, left - sum(given.values()))
    return found


def _divide(
    capacity: int, claims: Iterable[Claim], rounds: Iterable[Sequence[_Part]]
) -> dict[str, int]:
    found = dict.fromkeys((each.name for each in claims), 0)
    left = max(0, capacity)
    for parts in rounds:
        given = _in_units(min(left, sum(part.most for part in parts)), parts)
        for name, units in given.items():
            found[name] += units
        left -= sum(given.values())
    return found


def _rounds(claims: Iterable[Claim]) -> tuple[Sequence[_Part], ...]:
    """Return what is handed out, round after round: guarantees, by weight, to who weighs none."""
    own, over, last = list[_Part](), list[_Part](), list[_Part]()
    for name, guarantee, weight, demand in sorted(claims):
        certain = min(guarantee, demand)
        if certain > 0:
            own.append(_Part(name, float(certain), certain))
        if demand > certain:
            rest = demand - certain
            (over if weight > 0 else last).append(_Part(name, weight or 1.0, rest))
    return own, over, last


def _level(capacity: float, parts: Sequence[_Part]) -> dict[str, float]:
    """Return the water level's division: by weight, nobody above the most they take."""
    given = dict.fromkeys((part.name for part in parts), 0.0)
    wanting = sorted((p for p in parts if p.most > 0), key=lambda p: (p.most / p.weight, p.name))
    weight = sum(part.weight for part in wanting)
    for number, part in enumerate(wanting):
        if capacity * part.weight < part.most * weight:
            given |= {p.name: capacity * p.weight / weight for p in wanting[number:]}
            break
        given[part.name] = float(part.most)
        capacity, weight = max(0.0, capacity - part.most), weight - part.weight
    return given


def _in_units(capacity: int, parts: Sequence[_Part]) -> dict[str, int]:
    """Return the same in whole units, handed out one by one while the level rises.

    The n-th unit of a part may be given once the level is above (n - 1) / weight, and is due at
    n / weight: earliest due first.
    """
    given = dict.fromkeys((part.name for part in parts), 0)
    wanting = {part.name: part for part in parts if part.most > 0}
    ahead = [(0.0, name) for name in wanting]
    heapify(ahead)
    due: list[tuple[float, str]] = []
    rising = _Rising(list(wanting.values()))
    for _ in range(capacity):
        level = rising.next()
        while ahead and (ahead[0][0] < level - _SAME or not due):
            _, name = heappop(ahead)
            heappush(due, ((given[name] + 1) / wanting[name].weight, name))
        _, name = heappop(due)
        given[name] += 1
        if given[name] < wanting[name].most:
            heappush(ahead, (given[name] / wanting[name].weight, name))
    return given


class _Rising:
    """The water level after each unit: sum of min(most, weight x level) is the units so far."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        self._full = sorted((part.most / part.weight, part.name, part.weight) for part in parts)
        self._weight = sum(part.weight for part in parts)
        self._level = 0.0
        self._next = 0

    def next(self) -> float:
        """Return the level once one more unit is in."""
        unit = 1.0
        while self._next < len(self._full):
            full, _, weight = self._full[self._next]
            room = (full - self._level) * self._weight
            if room > unit:
                break
            unit -= max(0.0, room)
            self._level = max(self._level, full)
            self._weight -= weight
            self._next += 1
        if self._next < len(self._full):
            self._level += unit / self._weight
        return self._level


def weighed(
    weights: Mapping[str, float], used: Mapping[str, float], strength: float
) -> dict[str, float]:
    """Return the weights as past use changes them: who used more than their part gets less now.

    A weight w (of a sum of 1) becomes w + strength x (w - u), where u is the part of the pool's
    whole capacity that was used, 0 to 1.  Never less than a tenth of w: nobody is shut out.
    """
    total = sum(weights.values())
    if total <= 0:
        return dict(weights)
    changed = {}
    for name, weight in weights.items():
        part = weight / total
        changed[name] = max(part / 10, part + strength * (part - used.get(name, 0.0)))
    return changed
