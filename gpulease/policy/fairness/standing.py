"""How each department, project and person stands in each pool: what they hold, want and may have.

It says what of a snapshot counts in the tree (``tree``).  A lease that leaves for certain is not
held any more; one that starts is.  Seats of reservations stand outside: their units are taken off
the pool, and off what is guaranteed to their own project, which covers its reservation first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log

from gpulease.policy import budgets, capacity, limits, queue
from gpulease.policy.fairness.tree import Tree
from gpulease.policy.lifecycle import time_outs_of
from gpulease.policy.memo import once
from gpulease.policy.model import EndReason, Lease, LeaseState, Snapshot
from gpulease.policy.reservations.seats import in_hold, required, seating

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
