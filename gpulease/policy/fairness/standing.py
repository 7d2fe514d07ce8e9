"""How each department, project and person stands in each pool: what they hold, want and may have.

Owns the tree and what counts in it.  A lease that leaves for certain is not held any more; one that
starts is.  Seats of reservations stand outside: their units are taken off the pool, and off what is
guaranteed to their own project, which covers its reservation first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import log

from gpulease.policy import budgets, capacity, limits, queue
from gpulease.policy.fairness.division import Claim, divide, target, weighed
from gpulease.policy.lifecycle import time_outs_of
from gpulease.policy.memo import once
from gpulease.policy.model import EndReason, Lease, LeaseState, Snapshot
from gpulease.policy.projects import Project, Projects
from gpulease.policy.reservations.seats import in_hold, required, seating

#: Leases whose budget is used up and which go on as long as nobody else wants what they hold.
SPENT = "\0spent"
#: Why a lease leaves that is held over quota and that another project needs.
PREEMPTED = "preempted"


@dataclass(eq=False)
class Node:
    """A department, a project or a person in one pool; counts are units of the pool."""

    name: str
    parent: Node | None = None
    guarantee: int = 0
    limit: int | None = None
    weight: float = 1.0
    held: int = 0
    waiting: int = 0
    share: int = 0
    target: float = 0.0
    used: float = 0.0  # of the pool's whole capacity, 0 to 1, decayed
    below: dict[str, Node] = field(default_factory=dict)

    @property
    def saturation(self) -> float:
        """What it holds of its target; without one, more than any other."""
        return self.held / self.target if self.target > 0 else float(self.held + 1) * 1e9

    def wanted(self) -> int:
        """Return the units that it and those below it hold or wait for, within their limits."""
        if self.below:
            found = sum(node.wanted() for node in self.below.values())
        else:
            found = self.held + self.waiting
        return found if self.limit is None else min(found, self.limit)


class Tree:
    """All nodes of one pool; ``leaf`` gives a lease's own."""

    def __init__(self, projects: Projects, pool: str, covered: Mapping[str, int]) -> None:
        self.root = Node("")
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
            )
            above.below[project.name] = self._nodes[project.name] = found
        return found

    def _covered_of(self, project: Project) -> int:
        """Return the units of its guarantee that reservations of its own groups cover."""
        mine = self._covered.get(project.group, 0) if project.group else 0
        return mine + sum(
            self._covered_of(each) for each in self._projects.all if each.parent == project.name
        )

    def leaf(self, lease: Lease, *, spent: bool) -> Node:
        """Return the node of a lease's holder in the project that it is charged to."""
        project = Project(SPENT, weight=0.0) if spent else self._projects.home(lease.project)
        node = self._node(project)
        found = node.below.get(lease.user)
        if found is None:
            member = project.member(lease.user)
            found = Node(lease.user, node, limit=member.limit, weight=member.weight)
            node.below[lease.user] = found
        return found

    def settle(self, units: int, projects: Projects) -> None:
        """Work the shares out, from the pool's units down to each person."""
        self.root.share, self.root.target = units, float(units)
        _divide(self.root, projects.strength)


def above(leaf: Node) -> Iterator[Node]:
    """Yield a leaf and what it belongs to, without the root."""
    node: Node | None = leaf
    while node is not None and node.parent is not None:
        yield node
        node = node.parent


def _divide(node: Node, strength: float) -> None:
    if not node.below:
        return
    wanted = {each.name: each.wanted() for each in node.below.values()}
    weights = {
        each.name: each.weight for each in node.below.values() if wanted[each.name] > each.guarantee
    }
    used = {name: node.below[name].used for name in weights}
    weights = weighed(weights, used, strength)
    # Of equals the one that holds more comes first, so that rounding moves nothing.
    ranked = sorted(node.below.values(), key=lambda each: (-each.held, each.name))
    keys = {each.name: f"{rank:09}" for rank, each in enumerate(ranked)}
    claims = [
        Claim(keys[each.name], each.guarantee, weights.get(each.name, 0.0), wanted[each.name])
        for each in ranked
    ]
    shares, targets = divide(node.share, claims), target(node.share, claims)
    for each in ranked:
        each.share, each.target = shares[keys[each.name]], targets[keys[each.name]]
        _divide(each, strength)


@once
def standing(snapshot: Snapshot) -> Mapping[str, Tree]:
    """Return how everybody stands, by pool; empty where the policy has no projects."""
    projects = snapshot.policy.projects
    if not projects.all:
        return {}
    reserved, covered = _reserved(snapshot)
    pools = [pool.name for pool in snapshot.policy.pools]
    trees = {pool: Tree(projects, pool, covered.get(pool, {})) for pool in pools}
    over = budgets.exhausted(snapshot)
    for lease in queue.holding(snapshot):
        tree = trees.get(queue.pool_of(snapshot, lease))
        if tree is not None and stays(snapshot, lease):
            for node in above(tree.leaf(lease, spent=lease.id in over)):
                node.held += units_of(lease)
    for request in admissible(snapshot):
        tree = trees.get(queue.pool_of(snapshot, request))
        if tree is not None:
            tree.leaf(request, spent=request.id in over).waiting += request.count
    there = capacity.in_service(snapshot)
    units = {pool: len(there.get(pool, ())) - reserved.get(pool, 0) for pool in pools}
    _count_use(snapshot, trees, units)
    for pool, tree in trees.items():
        tree.settle(max(0, units[pool]), projects)
    return trees


def units_of(lease: Lease) -> int:
    """Return how many units of its pool a lease holds."""
    return len(lease.devices) or lease.count


def stays(snapshot: Snapshot, lease: Lease) -> bool:
    """Whether a lease counts as held by its project: not on a seat, and not about to go."""
    if lease.id in seating(snapshot).seated or lease.state is LeaseState.DRAINING:
        return False
    if lease.reason == PREEMPTED and lease.nominated_for not in queue.waiting_ids(snapshot):
        return True  # whom it was taken for needs it no more
    return lease.state is not LeaseState.WARNED or lease.end_reason_wanted is EndReason.IDLE


@once
def admissible(snapshot: Snapshot) -> tuple[Lease, ...]:
    """Return the requests that could start if everything were free, first come first."""
    bounds = limits.Limits.of(snapshot)
    found = []
    for request in queue.waiting(snapshot):
        if limits.kept_waiting(request, snapshot.now, bounds) is None:
            bounds.grant(request)
            found.append(request)
    return tuple(found)


def _reserved(snapshot: Snapshot) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    """Return the units that windows keep now, by pool, and by pool and group."""
    reserved: dict[str, int] = {}
    covered: dict[str, dict[str, int]] = {}
    seats = seating(snapshot)
    for window in in_hold(snapshot.windows, snapshot.now):
        units = required(snapshot, window, seats, snapshot.now)
        reserved[window.pool] = reserved.get(window.pool, 0) + units
        groups = covered.setdefault(window.pool, {})
        groups[window.of.group] = groups.get(window.of.group, 0) + units
    return reserved, covered


def _count_use(snapshot: Snapshot, trees: Mapping[str, Tree], units: Mapping[str, int]) -> None:
    """Note everybody's decayed use as a part of what the pool could have given.

    An admission counts as a minimum runtime at once, so that a burst cannot outrun the count; one
    that never becomes active leaves nothing behind.
    """
    projects = snapshot.policy.projects
    if projects.strength <= 0 or projects.half_life <= 0:
        return
    full = projects.half_life / log(2)
    for (project, user, pool), seconds in snapshot.use.items():
        if pool in trees and units[pool] > 0:
            lease = Lease("", user, "", "", 1, (snapshot.now, 0), snapshot.now, project=project)
            _add_use(trees[pool].leaf(lease, spent=False), seconds / (units[pool] * full))
    for lease in queue.holding(snapshot):
        pool = queue.pool_of(snapshot, lease)
        if pool not in trees or units[pool] <= 0 or not stays(snapshot, lease):
            continue
        since = lease.charged_from or snapshot.now
        least = time_outs_of(snapshot.policy, lease).minimum_runtime
        seconds = max(least, (snapshot.now - since).total_seconds())
        decayed = full * (1 - 0.5 ** (seconds / projects.half_life))
        share = units_of(lease) * decayed / (units[pool] * full)
        _add_use(trees[pool].leaf(lease, spent=False), share)


def _add_use(leaf: Node, share: float) -> None:
    for node in above(leaf):
        node.used = min(1.0, node.used + share)
