"""The tree of departments, projects and people in one pool, and what each of them may have.

It counts what is held, wanted and used, and computes the shares.  ``standing`` says what of a
snapshot counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpulease.policy.fairness.division import Claim, alike, shares, weighed
from gpulease.policy.model import Lease
from gpulease.policy.projects import Project, Projects


class Node:
    """A department, a project or a person in one pool; counts are units of the pool.

    Shares are worked out when they are asked for, from the root down, and so are the people of a
    project listed: of a long queue most people's are never needed.

    Attributes:
        guarantee: what is its own.
        held: what it holds.
        waiting: what its requests ask for that could start if everything were free.
        used: of the pool's whole capacity, 0 to 1, decayed.
    """

    __slots__ = (
        "_below",
        "_people",
        "_share",
        "_strength",
        "_target",
        "divided",
        "guarantee",
        "held",
        "limit",
        "name",
        "parent",
        "used",
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
        people: People | None = None,
    ) -> None:
        self.name, self.parent, self.guarantee = name, parent, guarantee
        self.limit, self.weight = limit, weight
        self.held = self.waiting = 0
        self.used = 0.0
        self._share, self._target = 0, 0.0
        self.divided = False
        self._below: dict[str, Node] = {}
        self._people = people
        self._strength = strength

    @property
    def below(self) -> dict[str, Node]:
        """What belongs to it, by name."""
        people, self._people = self._people, None
        if people is not None:
            self._below = people.nodes(self)
        return self._below

    def holders(self) -> Mapping[str, int]:
        """Return what each of a project's people holds, of those who hold anything."""
        if self._people is not None:
            return self._people.held
        return {name: node.held for name, node in self._below.items() if node.held}

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

    @property
    def saturation(self) -> float:
        """What it holds of its target; without one, more than any other."""
        return self.held / self.target if self.target > 0 else float(self.held + 1) * 1e9

    def settle(self, share: int, target: float) -> None:
        """Say how much it may have; the root's is the pool's, and all else follows."""
        self._share, self._target = share, target

    def wanted(self) -> int:
        """Return the units that it and those below it hold or wait for, within their limits."""
        unlisted = self._people is not None and not self._people.bounded
        if unlisted or not self.below:
            found = self.held + self.waiting
        else:
            found = sum(node.wanted() for node in self._below.values())
        return found if self.limit is None else min(found, self.limit)

    def divide(self) -> None:
        """Work out the shares of all that belongs to it."""
        units, self.divided = self.share, True
        wanted = {each: want for each in self.below.values() if (want := each.wanted())}
        # Of equals the one that holds more comes first, so that rounding moves nothing.
        ranked = sorted(wanted, key=lambda each: (-each.held, each.name))
        if self._all_alike(ranked):
            shares_of = alike(units, [wanted[each] for each in ranked])
            for each, (share, part) in zip(ranked, shares_of, strict=True):
                each.settle(share, part)
            return
        weights = {each.name: each.weight for each in wanted if wanted[each] > each.guarantee}
        if self._strength > 0 and any(each.used for each in wanted):
            used = {name: self._below[name].used for name in weights}
            weights = weighed(weights, used, self._strength)
        keys = [f"{rank:09}" for rank in range(len(ranked))]
        claims = [
            Claim(key, each.guarantee, weights.get(each.name, 0.0), wanted[each])
            for key, each in zip(keys, ranked, strict=True)
        ]
        whole, targets = shares(units, claims)
        for key, each in zip(keys, ranked, strict=True):
            each.settle(whole[key], targets[key])

    def _all_alike(self, siblings: Sequence[Node]) -> bool:
        """Whether nothing but what they want tells siblings apart, as most people of a project."""
        weights = {each.weight for each in siblings}
        own = any(each.guarantee or (self._strength > 0 and each.used) for each in siblings)
        return len(weights) == 1 and weights != {0.0} and not own


@dataclass(eq=False)
class People:
    """Who holds, waits and has used how much of one project, until they are asked for."""

    project: Project
    held: Counter[str] = field(default_factory=Counter)
    used: dict[str, float] = field(default_factory=dict)
    waiting: list[Lease] = field(default_factory=list)

    @property
    def bounded(self) -> bool:
        """Whether what they want is bounded one by one."""
        return self.project.bounds_people

    def nodes(self, above: Node) -> dict[str, Node]:
        """Return a node for each of them."""
        found: dict[str, Node] = {}
        for user, units in self.held.items():
            self.node(above, found, user).held = units
        for user, used in self.used.items():
            self.node(above, found, user).used = used
        for request in self.waiting:
            self.node(above, found, request.user).waiting += request.count
        return found

    def node(self, above: Node, known: dict[str, Node], user: str) -> Node:
        """Return one person's node, made where there is none yet."""
        found = known.get(user)
        if found is None:
            member = self.project.member(user)
            found = Node(user, above, limit=member.limit, weight=member.weight)
            known[user] = found
        return found


class Tree:
    """All nodes of one pool; ``leaf`` gives a lease's own."""

    def __init__(self, projects: Projects, pool: str, covered: Mapping[str, int]) -> None:
        self.root = Node("", strength=projects.strength)
        self._projects = projects
        self._pool = pool
        self._covered = covered
        self._nodes: dict[str, Node] = {}
        self._people: dict[str, People] = {}
        for project in projects.all:
            self._node(project)

    def _node(self, project: Project) -> Node:
        found = self._nodes.get(project.name)
        if found is None:
            parent = self._projects.by_name.get(project.parent)
            above = self._node(parent) if parent is not None else self.root
            own = self._projects.guarantee(project, self._pool)
            people = People(project) if not self._projects.below(project) else None
            found = Node(
                project.name,
                above,
                guarantee=max(0, own - self._covered_of(project)),
                limit=project.share(self._pool).limit,
                weight=project.weight,
                strength=self._projects.strength,
                people=people,
            )
            if people is not None:
                self._people[project.name] = people
            above.below[project.name] = self._nodes[project.name] = found
        return found

    def _covered_of(self, project: Project) -> int:
        """Return the units of its guarantee that reservations of its own groups cover."""
        mine = self._covered.get(project.group, 0) if project.group else 0
        return mine + sum(self._covered_of(each) for each in self._projects.below(project))

    def project(self, lease: Lease, *, spent: bool) -> Node:
        """Return the node of the project that a lease is charged to."""
        if spent:
            return self._node(_SPENT)
        home = self._projects.home(lease.project)
        return self._nodes.get(home.name) or self._node(home)

    def named(self, name: str) -> Node:
        """Return the node of a project that a lease is charged to (``project``), by its name."""
        return self._nodes[name]

    def leaf(self, lease: Lease, *, spent: bool) -> Node:
        """Return the node of a lease's holder in the project that it is charged to."""
        node = self.project(lease, spent=spent)
        below = node.below
        return below.get(lease.user) or self._people[node.name].node(node, below, lease.user)

    def hold(self, lease: Lease, units: int, *, spent: bool) -> None:
        """Count a lease as held; before anybody's share is asked for."""
        node = self.project(lease, spent=spent)
        self._people[node.name].held[lease.user] += units
        for each in above(node):
            each.held += units

    def wait(self, requests: Sequence[Lease], *, spent: bool) -> None:
        """Count requests that want the same; before anybody's share is asked for."""
        node = self.project(requests[0], spent=spent)
        self._people[node.name].waiting.extend(requests)
        node.waiting += requests[0].count * len(requests)

    def use(self, project: Project, user: str, part: float) -> None:
        """Count past use, a part of the pool's capacity; before anybody's share is asked for."""
        node = self._node(project)
        used = self._people[node.name].used
        used[user] = min(1.0, used.get(user, 0.0) + part)
        for each in above(node):
            each.used = min(1.0, each.used + part)


#: The project of leases whose budget is used up: they go on while nobody else wants what they hold.
_SPENT = Project("\0spent", weight=0.0)


def above(leaf: Node) -> Iterator[Node]:
    """Yield a leaf and what it belongs to, without the root."""
    node: Node | None = leaf
    while node is not None and node.parent is not None:
        yield node
        node = node.parent
