"""Who is entitled to what in each pool, and whose turn it is in the queue.

*Standing*: how each department, project and person stands, from what of a snapshot counts in the
tree (``shares``).  A lease that leaves for certain is not held any more; one that starts is.  Seats
of reservations stand outside: their units are taken off the pool, and off what is guaranteed to
their own project, which covers its reservation first.

*Turns*: without projects it is first come, first served.  With projects the turn goes, at each
level of the tree, to who has least of what is theirs: below the guarantee before above it, then by
what is held of the target; of equals to who asked first.  A person's own requests keep their order.
Each turn counts as if it were granted, so a project that asks for a hundred does not get them in
one go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import datetime
from heapq import heapify, heappop, heapreplace
from math import log

from gpulease.policy import budgets, capacity, limits, queue
from gpulease.policy.lifecycle import time_outs_of
from gpulease.policy.model import EndReason, Lease, LeaseState, Snapshot, once
from gpulease.policy.queue import stands_back
from gpulease.policy.reservations.seats import in_hold, required, seating
from gpulease.policy.shares import Node, Tree

#: Why a lease leaves that is held over quota and that another project needs, or becomes smaller.
PREEMPTED, PREEMPTED_IN_PART = "preempted", "preempted_in_part"
TAKEN = frozenset({PREEMPTED, PREEMPTED_IN_PART})


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
        units_held = units_that_stay(snapshot, lease) if tree is not None else 0
        if tree is not None and units_held:
            tree.hold(lease, units_held, spent=lease.id in over)
    for request in startable(snapshot):
        gpu_class = snapshot.policy.by_name.get(request.gpu_class)
        tree = trees.get(gpu_class.pool if gpu_class is not None else "")
        if tree is not None:
            tree.wait(request, spent=request.id in over)
    there = capacity.in_service(snapshot)
    units = {pool: len(there.get(pool, ())) - reserved.get(pool, 0) for pool in pools}
    _count_use(snapshot, trees, units)
    for pool, tree in trees.items():
        there_for_all = max(0, units[pool])
        tree.root.settle(there_for_all, float(there_for_all))
    return trees


def units_of(lease: Lease) -> int:
    """Return how many units of its pool a lease holds."""
    return len(lease.devices) or lease.count


def stays(snapshot: Snapshot, lease: Lease) -> bool:
    """Whether a lease counts as held by its project: not on a seat, and not about to go."""
    if lease.id in seating(snapshot).seated or lease.state is LeaseState.DRAINING:
        return False
    if lease.reason in TAKEN and lease.nominated_for not in queue.waiting_ids(snapshot):
        return True  # whom it was taken for needs it no more
    return lease.state is not LeaseState.WARNED or lease.end_reason_wanted is EndReason.IDLE


def units_that_stay(snapshot: Snapshot, lease: Lease) -> int:
    """Return the units of its pool that count as held: of what becomes smaller those it keeps."""
    if stays(snapshot, lease):
        return units_of(lease)
    shape = lease.becomes
    if shape is None or lease.id in seating(snapshot).seated:
        return 0
    return shape.count if shape.gpu_class == lease.gpu_class else 0


@once
def startable(snapshot: Snapshot) -> Sequence[Lease]:
    """Return the requests that could start one after the other if everything were free."""
    bounds, found = limits.Limits.of(snapshot), list[Lease]()
    for request in queue.waiting(snapshot):
        if limits.kept_waiting(request, snapshot.now, bounds) is None:
            found.append(request)
            if not request.kept:
                bounds.grant(request)
    return found


@once
def blocked(snapshot: Snapshot) -> frozenset[str]:
    """Return the requests that could not start though everything were free."""
    return queue.waiting_ids(snapshot).difference([x.id for x in startable(snapshot)])


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
    if not projects.use_counts:
        return
    full = projects.half_life / log(2)
    for (name, user, pool), seconds in snapshot.use.items():
        if pool in trees and units[pool] > 0:
            trees[pool].use(projects.home(name), user, seconds / (units[pool] * full))
    for lease in queue.holding(snapshot):
        pool = queue.pool_of(snapshot, lease)
        if pool not in trees or units[pool] <= 0 or not stays(snapshot, lease):
            continue
        since = lease.charged_from or snapshot.now
        least = time_outs_of(snapshot.policy, lease).minimum_runtime
        seconds = max(least, (snapshot.now - since).total_seconds())
        decayed = full * (1 - 0.5 ** (seconds / projects.half_life))
        share = units_of(lease) * decayed / (units[pool] * full)
        trees[pool].use(projects.home(lease.project), lease.user, share)


_Key = tuple[bool, float, datetime, int, str]


@once
def turns(snapshot: Snapshot) -> Sequence[Lease]:
    """Return all queued requests in the order in which they are served, pool by pool.

    Without projects the pools stand in one queue.
    """
    trees = standing(snapshot)
    if not trees:
        return _people_first(queue.waiting(snapshot), snapshot)
    return [
        request
        for pool, requests in queue.by_pool(snapshot).items()
        for request in _people_first(
            list(_in_turn(snapshot, trees[pool], requests)) if pool in trees else requests, snapshot
        )
    ]


def _people_first(line: Sequence[Lease], snapshot: Snapshot) -> Sequence[Lease]:
    """Return a line with those behind who stand back: runs of whole notebooks."""
    return sorted(line, key=lambda request: stands_back(request, snapshot))


def _in_turn(snapshot: Snapshot, tree: Tree, requests: Sequence[Lease]) -> Iterator[Lease]:
    """Yield a pool's requests in turn."""
    root, over, cannot = _Side(tree.root), budgets.exhausted(snapshot), blocked(snapshot)
    for request in requests:
        root.put(request, tree.leaf(request, spent=request.id in over))
    root.begin()
    for _ in requests:
        yield root.next(cannot)


class _Side:
    """A department, a project or a person, with the requests below it and what it would hold."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.held = node.held
        self.requests: deque[Lease] = deque()  # of a person
        self.below: dict[str, _Side] = {}
        self._heap: list[tuple[_Key, str, _Side]] = []

    def put(self, request: Lease, leaf: Node) -> None:
        """Put in a person's request, first come first; for the root."""
        side = self
        for node in reversed(leaf.path):
            found = side.below.get(node.name)
            side = found or side.below.setdefault(node.name, _Side(node))
        side.requests.append(request)

    def begin(self) -> None:
        """Put what is below in order, once all requests are in."""
        for side in self.below.values():
            side.begin()
        self._heap = [(side.key(), name, side) for name, side in self.below.items()]
        heapify(self._heap)

    def first(self) -> Lease | None:
        """Return the request whose turn it is, ``None`` where nobody waits any more."""
        if self.requests:
            return self.requests[0]
        return self._heap[0][-1].first() if self._heap else None

    def next(self, cannot: Set[str]) -> Lease:
        """Take out the request whose turn it is; it counts as granted unless it cannot start."""
        if self._heap:
            _, name, side = self._heap[0]
            request = side.next(cannot)
            if side.first() is None:
                heappop(self._heap)
            else:
                heapreplace(self._heap, (side.key(), name, side))
        else:
            request = self.requests.popleft()
        self.held += 0 if request.id in cannot else request.count
        return request

    def key(self) -> _Key:
        """Return its place among its siblings; the least is next."""
        first = self.first()
        assert first is not None, "asked where nobody waits"
        # The shares of a project's people are worked out only where one of them holds anything.
        part = self.held / (self.node.target or 1e-9) if self.held else 0.0
        return self.held >= self.node.guarantee, part, *first.ticket, first.id
