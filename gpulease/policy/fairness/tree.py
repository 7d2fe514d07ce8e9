"""The tree of departments, projects and people in one pool, and what each of them may have.

It counts what is held, wanted and used, and computes the shares.  ``standing`` says what of a
snapshot counts.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpulease.policy.fairness.division import Claim, shares, weighed
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

    __slots__ = (
        "_share",
        "_strength",
        "_target",
        "below",
        "divided",
        "guarantee",
        "held",
        "limit",
        "name",
        "parent",
        "path",
        "used",
        "used_below",
        "waiting",
        "weight",
    )

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
