"""What must hold at every step of every replay; a replay in which it does not is worth nothing.

The planner's promises are checked from outside, by its decisions and the state that they lead to,
never by how the planner came to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gpulease.policy import budgets, capacity, lifecycle
from gpulease.policy.fairness import TAKEN
from gpulease.policy.fitting import suits
from gpulease.policy.health import adding_max
from gpulease.policy.model import (
    Action,
    Alert,
    Drain,
    EndReason,
    Lease,
    LeaseState,
    Shape,
    Snapshot,
    Start,
    Verdict,
    Warn,
)

_NOTHING = Shape("", ())
#: Reasons of waiting that say that nothing which is left would do.
_LACKING = frozenset({"no_capacity", "quarantined", "held"})


class BrokenPromise(AssertionError):
    """The planner did what it must never do: a mistake of gpulease, not of the trace."""


def check_plan(view: Snapshot, actions: Sequence[Action]) -> None:
    """Check what one plan decided.

    Raises:
        BrokenPromise: with the rule and the lease.
    """
    done = [action for action in actions if not isinstance(action, Alert)]
    acted = Counter(action.lease_id for action in done)
    _hold(max(acted.values(), default=0) <= 1, view, f"one action for each lease: {acted}")
    leases = {lease.id: lease for lease in view.leases}
    _check_grants(view, [a for a in done if isinstance(a, Start)], leases)
    _check_conserving(view, done)
    for action in done:
        lease = leases[action.lease_id]
        if isinstance(action, Warn):
            _check_warning(view, action, lease)
            if action.reason in TAKEN and not lease.batch:
                _check_preemption(view, lease, done)
        elif isinstance(action, Drain):
            early = lease.warned_until is not None and view.now < lease.warned_until
            broken = action.end_reason is EndReason.FAILED  # its device: nothing is won by waiting
            _hold(broken or not early, view, f"{lease.id} has its whole warning")
        _hold(action.reason != "not_plannable", view, f"{lease.id} can be planned for")
    for action in actions:
        _hold(action.reason != "not_plannable", view, f"a plan can be made: {action}")


def _check_grants(view: Snapshot, starts: Sequence[Start], leases: Mapping[str, Lease]) -> None:
    free = {d.uuid: d for each in capacity.free_devices(view).values() for d in each}
    granted = [uuid for start in starts for uuid in start.devices]
    _hold(len(granted) == len(set(granted)), view, "no device is granted twice")
    for start in starts:
        lease = leases[start.lease_id]
        _hold(all(uuid in free for uuid in start.devices), view, f"{lease.id} gets free devices")
        given = [free[uuid] for uuid in start.devices]
        comes = not given and start.pool in view.policy.elastic  # with a node that is added for it
        enough = lease.least <= (start.count if comes else len(given)) <= lease.count
        _hold(enough, view, f"{lease.id} gets all or nothing, or what it allows")
        _hold(_is_step(lease, len(given)), view, f"{lease.id} gets a step of its class")
        if comes:
            continue
        each = min(lease.per_node, len(given))
        parts = [
            {d.card or d.node for d in given[at : at + each]} for at in range(0, len(given), each)
        ]
        alone = all(len(nodes) == 1 for nodes in parts)
        _hold(alone, view, f"{lease.id} gets the devices of each of its nodes in one machine")
        name = start.gpu_class or lease.gpu_class
        _hold(
            all(suits(name, d, lease.needs) for d in given),
            view,
            f"{lease.id} gets devices that suit it",
        )


def _is_step(lease: Lease, number: int) -> bool:
    """Whether a lease of parts of a card may be so many of them."""
    return not lease.steps or not number or number in (lease.count, *lease.steps)


def _check_warning(view: Snapshot, action: Warn, lease: Lease) -> None:
    outs = lifecycle.time_outs_of(view.policy, lease)
    shape = action.becomes
    smaller = shape is None or lease.min_count <= shape.count < lease.count
    _hold(smaller, view, f"{lease.id} becomes smaller, and not smaller than it allows")
    step = shape is None or _is_step(lease, shape.count)
    _hold(step, view, f"{lease.id} becomes a step of its class")
    left = (action.until - view.now).total_seconds()
    _hold(left >= outs.warning - 1e-3, view, f"{lease.id} is warned for {outs.warning:g} s")
    evidence = view.evidence.get(lease.id)
    busy = evidence is not None and evidence.verdict is Verdict.BUSY
    _hold(
        not (busy and action.end_reason is EndReason.IDLE),
        view,
        f"{lease.id} is in use and not taken as idle",
    )


def _check_preemption(view: Snapshot, lease: Lease, done: Sequence[Action]) -> None:
    """Who uses a device loses it to others only beyond the quota and the minimum runtime."""
    outs = lifecycle.time_outs_of(view.policy, lease)
    held = (view.now - (lease.active_since or view.now)).total_seconds()
    _hold(held >= outs.minimum_runtime, view, f"{lease.id} has its minimum runtime")
    if view.windows or lease.id in budgets.exhausted(view):
        return  # a reservation is covered by its project's own, and who spent all owns nothing
    home = view.policy.projects.home(lease.project)
    own = view.policy.projects.guarantee(home, lease.pool)
    starting = {a.lease_id for a in done if isinstance(a, Start) and a.pool == lease.pool}
    units = sum(
        len(x.devices) or x.count
        for x in view.leases
        if (x.id in starting or (x.state in lifecycle.HOLDING and x.pool == lease.pool))
        and view.policy.projects.home(x.project) is home
    )
    _hold(units > own, view, f"{lease.id} is beyond the quota of its project, {own} of {units}")


def check_state(view: Snapshot, slack: float) -> None:
    """Check what stands once a plan is recorded.

    Args:
        view: the snapshot after it.
        slack: seconds by which a step may be late: how often is looked.

    Raises:
        BrokenPromise: with the rule and the lease.
    """
    holders = [x for x in view.leases if x.state in lifecycle.HOLDING]
    held = Counter(uuid for lease in holders for uuid in lease.devices)
    _hold(max(held.values(), default=0) <= 1, view, "no device is held twice")
    for lease in holders:
        enough = not lease.devices or len(lease.devices) >= lease.least
        _hold(enough, view, f"{lease.id} has as many devices as it can live with")
    _check_bounds(view, holders, slack)


def _check_bounds(view: Snapshot, holders: Iterable[Lease], slack: float) -> None:
    for lease in holders:
        outs = lifecycle.time_outs_of(view.policy, lease)
        # A running cell is interrupted, then killed: twice the grace.
        leaving = outs.drain_max + 2 * outs.interrupt_grace
        bounds = {LeaseState.STARTING: outs.start_max, LeaseState.DRAINING: leaving}
        bound, since = bounds.get(lease.state), lease.state_since
        grows = lease.pool in view.policy.elastic
        if grows and lease.state is LeaseState.STARTING:  # its stages have bounds
            since = lease.stage_since
            if lease.reason == "adding_node":
                bound = adding_max(view, lease)
        if bound is not None and since is not None:
            late = (view.now - since).total_seconds() - bound
            _hold(late <= slack, view, f"{lease.id} is {lease.state.value} for too long")
        if lease.state is LeaseState.WARNED and lease.warned_until is not None:
            late = (view.now - lease.warned_until).total_seconds()
            late -= view.policy.batch_cell if lease.batch else 0.0  # it finishes its cell first
            _hold(late <= slack, view, f"{lease.id} is warned for too long")
        if lease.hard_end is not None and lease.state is not LeaseState.STARTING:
            late = (view.now - lease.hard_end).total_seconds()
            _hold(late <= outs.warning + leaving + slack, view, f"{lease.id} ends at its hard end")


def _check_conserving(view: Snapshot, done: Sequence[Action]) -> None:
    """Nobody waits for want of a device while one is left that would do.

    What others gave up for somebody is kept, and requests for several devices may gather them: who
    waits for what is kept may find such devices left, and no others.
    """
    granted = {uuid for start in done if isinstance(start, Start) for uuid in start.devices}
    waiting = {x.id: x for x in view.leases if x.state is LeaseState.QUEUED}
    kept = {
        uuid
        for x in view.leases
        if x.state is LeaseState.ENDED and x.nominated_for in waiting
        for uuid in x.devices
    }
    kept |= {uuid for x in view.leases for uuid, name in x.gave if name in waiting}
    kept |= {uuid for x in view.leases for uuid in (*x.kept, *(x.becomes or _NOTHING).devices)}
    gathering = {x.gpu_class for x in waiting.values() if x.count > 1}
    # What came free is kept for those who go back to the queue for it from waiting for a node.
    back = any(action.reason == "came_free" for action in done)
    reasons = {a.lease_id: a.reason for a in done}
    free = capacity.free_devices(view)
    pools = {each.name: each.pool for each in view.policy.classes}
    for lease in waiting.values():
        reason = reasons.get(lease.id, lease.reason)
        if reason not in _LACKING or (reason == "held" and (gathering or back)):
            continue
        there: Counter[str] = Counter(
            device.card or device.node
            for device in free.get(pools.get(lease.gpu_class, ""), ())
            if suits(lease.gpu_class, device, lease.needs)
            and device.uuid not in granted
            and not (reason == "held" and device.uuid in kept)
        )
        parts = sum(number // lease.per_node for number in there.values())
        _hold(parts < lease.nodes, view, f"{lease.id} waits for what is free ({reason})")


def _hold(holds: bool, view: Snapshot, rule: str) -> None:
    if not holds:
        raise BrokenPromise(f"at {view.now.isoformat()}: {rule}")
