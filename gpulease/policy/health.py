"""What happened to leases by themselves; the first step of a plan.

They connected, failed to start, died, or lost their device: what the provider shows of it, and what
each lease's health asks for, with its devices put right.  Use is not judged here.
"""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from gpulease.policy import fitting, queue
from gpulease.policy.capacity import grantable, known_devices, usable
from gpulease.policy.fitting import Inventory, joined
from gpulease.policy.idleness import WINDOW
from gpulease.policy.lifecycle import OTHERS_FAILURES, STAGES, START_FAILURES, time_outs_of
from gpulease.policy.model import (
    Action,
    Activate,
    Alert,
    Bind,
    Device,
    Drain,
    End,
    EndReason,
    Lease,
    LeaseState,
    Observed,
    Progress,
    Requeue,
    Reshape,
    SetBack,
    Snapshot,
)
from gpulease.policy.queue import holding
from gpulease.sizes import say_count


def bindings(snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """Return the right devices of each lease whose record is wrong.

    A lease that waits may be left with fewer devices than it asked for: somebody else has landed
    on them, and there is no room for it at present.
    """
    if not snapshot.capacity_known:
        return {}
    landed = {
        lease.id: actual for lease in holding(snapshot) if (actual := _actual(snapshot, lease))
    }
    owner = {uuid: lease_id for lease_id, actual in landed.items() for uuid in actual}
    wrong = {
        lease.id: landed[lease.id]
        for lease in holding(snapshot)
        if lease.id in landed and set(landed[lease.id]) != set(lease.devices)
    }
    waiting = [lease for lease in holding(snapshot) if lease.id not in landed]
    displaced = [x for x in waiting if any(uuid in owner for uuid in x.devices)]
    if any(lease.state is not LeaseState.STARTING for lease in displaced):
        # A lease that runs is not moved by a guess: the next look tells where it is.
        displaced = [lease for lease in displaced if lease.state is LeaseState.STARTING]
        settled = {u for x in waiting if x.state is not LeaseState.STARTING for u in x.devices}
        wrong = {
            lease_id: actual for lease_id, actual in wrong.items() if settled.isdisjoint(actual)
        }
    moving = {lease.id for lease in displaced}
    taken = set(owner) | {u for x in waiting if x.id not in moving for u in x.devices}
    room = _Room(snapshot, taken, landed.keys(), moving)
    for lease in displaced:
        wrong[lease.id] = room.take(lease)
    return wrong


def _actual(snapshot: Snapshot, lease: Lease) -> tuple[str, ...]:
    seen = observed_of(snapshot, lease)
    return seen.devices if seen is not None and not seen.gone else ()


class _Room:
    """What is left for those who must give way, once everybody who landed has their place.

    Args:
        taken: devices that are somebody's for sure.
        landed: leases that landed.
        moving: leases that give way.
    """

    def __init__(
        self, snapshot: Snapshot, taken: Set[str], landed: Set[str], moving: Set[str]
    ) -> None:
        self._known = known_devices(snapshot)
        left = [d for d in self._known.values() if d.uuid not in taken and grantable(d)]
        shown = {d.uuid: d.occupied_by for d in left if d.occupied_by is not None}
        own = {uuid: holder for uuid, holder in shown.items() if holder in moving}
        pools = {device.pool for device in left}
        self._inventories = {
            pool: (
                Inventory([d for d in left if d.pool == pool and _is_for(d, moving)], own),
                # What the others left counts as free though the provider still shows it as theirs.
                Inventory([d for d in left if d.pool == pool and d.occupied_by in landed], {}),
            )
            for pool in pools
        }

    def take(self, lease: Lease) -> tuple[str, ...]:
        """Take devices that stand together for a lease, its own first."""
        pool = next((self._known[u].pool for u in lease.devices if u in self._known), "")
        if pool not in self._inventories:
            return ()
        free, left = self._inventories[pool]
        nodes = joined(free.line(lease), left.loose(lease.gpu_class, lease.needs))
        if lease.count > 1:
            nodes = {
                node: sorted(there, key=lambda device: device.uuid not in lease.devices)
                for node, there in nodes.items()
            }
        chosen = fitting.for_request(nodes, lease, fitting.Preference(frozenset(lease.devices)))
        free.take(chosen)
        left.take(chosen)
        return tuple(device.uuid for device in chosen)


def _is_for(device: Device, moving: Set[str]) -> bool:
    return device.occupied_by is None or device.occupied_by in moving


def reactions(snapshot: Snapshot) -> dict[str, Action]:
    """Return the step of each lease that its own health settles in this plan, by lease."""
    right = bindings(snapshot)
    found = {
        lease.id: _bound(lease, check(snapshot, lease), right) for lease in queue.holding(snapshot)
    }
    settled = {lease_id: action for lease_id, action in found.items() if action is not None}
    settled |= {
        each.id: End(each.id, "hard_end", EndReason.EXPIRED) for each in reshaped_too_late(snapshot)
    }
    return settled | set_back(snapshot)


def reshaped_too_late(snapshot: Snapshot) -> list[Lease]:
    """Return the leases in another shape whose time ran out before they were back."""
    return [
        each
        for each in queue.reshaping(snapshot)
        if each.hard_end is not None and each.hard_end <= snapshot.now
    ]


def _bound(lease: Lease, action: Action | None, right: dict[str, tuple[str, ...]]) -> Action | None:
    """Return the lease's step with its devices put right; one that ends it needs no devices."""
    devices = right.get(lease.id)
    if devices is None:
        return action
    if action is None:
        return Bind(lease.id, lease.reason, devices)
    if isinstance(action, Activate | Progress) and devices:
        return replace(action, devices=devices)
    return action


def stuck(snapshot: Snapshot) -> list[Alert]:
    """Return an alert for each of them; its devices are out of service meanwhile."""
    users = {lease.id: lease.user for lease in snapshot.leases}
    devices: dict[str, list[str]] = {}
    for each in snapshot.devices:
        if each.occupied_by is not None:
            devices.setdefault(each.occupied_by, []).append(each.uuid)
    return [
        Alert(
            lease_id,
            "stuck",
            f"Processes {', '.join(map(str, seen.left))} of lease {lease_id} "
            f"({users.get(lease_id, 'whose is not known')}) live on though it is over, and the "
            f"service may not end them: {', '.join(devices.get(lease_id, ['its GPU']))} is out of "
            "service. Look whose they are, then end them or put it back into service.",
        )
        for lease_id, seen in sorted(snapshot.observed.items())
        if seen.left
    ]


def unoffered(snapshot: Snapshot) -> list[Alert]:
    """Return an alert where both is so: most likely a pool has another name than was meant.

    Devices alone that nothing is offered of may be kept back on purpose, and a class alone whose
    pool has no device may wait for its node.
    """
    if not snapshot.capacity_known:
        return []
    asked = {each.pool for each in snapshot.policy.classes}
    there = {each.pool for each in snapshot.devices}
    lacking, unused = sorted(asked - there - set(snapshot.policy.elastic)), sorted(there - asked)
    if not lacking or not unused:
        return []
    count = sum(each.pool in unused for each in snapshot.devices)
    return [
        Alert(
            "",
            "no_such_pool",
            f"The policy's classes draw on {_pools(lacking)}, where there are no GPUs, and no "
            f"class draws on {_pools(unused)}, where there {'is' if count == 1 else 'are'} "
            f"{say_count(count, 'GPU', 'GPUs')}. "
            "Give the pool in the policy the name that it has here.",
            {"devices": count},
        )
    ]


def _pools(names: list[str]) -> str:
    return f"{'pool' if len(names) == 1 else 'the pools'} {', '.join(names)}"


#: Starts that may fail in a row before the request ends as ``failed``.
MAX_FAILURES = 3
#: First back-off (seconds) after a failed start; doubles each time up to ``MAX_BACK_OFF``.
BACK_OFF = 5.0
MAX_BACK_OFF = 60.0
#: Wait (seconds) after a start that failed by others' doing, where a back-off that doubles is not
#: right: a quota is freed by people, a home that would not attach is mirrored at once, and who lost
#: a device to others has waited for its place already and shall not be passed while one comes free.
OTHERS_BACK_OFF = {
    "quota_exceeded": 30.0,
    "volume_failed": 1.0,
    "capacity_taken": BACK_OFF,
    "node_not_added": 60.0,
}
#: Seconds that loading an image may take.
PULL_MAX = 1800.0
#: Adding a node may take so many times what it usually takes, and so many seconds at least: what
#: is out of stock in one place the autoscaler tries to get in another.
ADDING_TIMES, ADDING_LEAST = 3, 600.0
#: The stages of a start that have a bound of their own; the others have ``start_max``.  The
#: cluster's own queue takes as long as it takes.
STAGE_MAX = {"pulling": PULL_MAX, "cluster_queue": math.inf}


def observed_of(snapshot: Snapshot, lease: Lease) -> Observed | None:
    """Return what is seen of the lease's present attempt; what older attempts left is nothing."""
    seen = snapshot.observed.get(lease.id)
    return seen if seen is not None and seen.attempt == lease.attempt else None


def check(snapshot: Snapshot, lease: Lease) -> Action | None:
    """Return what the lease's own state of health asks for, or ``None``."""
    seen = observed_of(snapshot, lease)
    action = _check(snapshot, lease, seen)
    return replace(action, detail=seen.detail) if action and seen else action


def _check(snapshot: Snapshot, lease: Lease, seen: Observed | None) -> Action | None:
    if seen is not None and seen.parentless:
        return End(lease.id, "server_gone", EndReason.SERVER_GONE, _last_seen(snapshot, lease))
    if lease.state is LeaseState.STARTING:
        return _check_start(snapshot, lease, seen)
    if seen is not None and seen.gone:
        return _gone(snapshot, lease, seen)
    if lease.state is LeaseState.DRAINING:
        return None
    broken = device_trouble(snapshot, lease)
    if not broken:
        return None
    time_outs = time_outs_of(snapshot.policy, lease)
    until = snapshot.now + timedelta(seconds=time_outs.drain_max + time_outs.interrupt_grace)
    return Drain(lease.id, broken, until, EndReason.FAILED, True, lease.nominated_for)


def _gone(snapshot: Snapshot, lease: Lease, seen: Observed) -> Action:
    # What was asked for stands: a lease whose supervisor dies while it drains has drained.
    if lease.state is LeaseState.DRAINING and lease.becomes is not None:
        return Reshape(lease.id, "reshaped")
    why = seen.failed if seen.failed in START_FAILURES else "gone"
    wanted = lease.end_reason_wanted or EndReason.FAILED
    return End(lease.id, why, wanted, _last_seen(snapshot, lease))


def _last_seen(snapshot: Snapshot, lease: Lease) -> datetime | None:
    """Return when something was heard of a lease last; ``None`` where it still was, just now.

    In the favour of who pays: the last sample came at most one window before it was missed, and of
    what ended while the service was away nobody knows when it did.
    """
    evidence = snapshot.evidence.get(lease.id)
    silent = evidence.unknown_since if evidence is not None else None
    heard = silent - timedelta(seconds=WINDOW) if silent is not None else None
    if snapshot.away is None:
        return heard
    left, back = snapshot.away
    since = lease.active_since or snapshot.now
    if since < back and (evidence is None or (heard is not None and heard < back)):
        return left if heard is None else min(left, heard)  # not heard of since nobody watched
    return heard


def device_trouble(snapshot: Snapshot, lease: Lease) -> str:
    """Return ``device_unhealthy`` or ``device_lost`` when the lease cannot continue, else ``""``.

    A device marked ``lost`` may come back: its lease goes on.  One that the provider no longer
    lists at all does not.
    """
    if not snapshot.capacity_known:
        return ""
    known = known_devices(snapshot)
    if any(uuid not in known for uuid in lease.devices):
        return "device_lost"
    if any(not known[uuid].healthy for uuid in lease.devices):
        return "device_unhealthy"
    return ""


def _check_start(snapshot: Snapshot, lease: Lease, seen: Observed | None) -> Action | None:
    if seen is not None and (seen.failed or seen.gone):
        known = seen.failed in START_FAILURES
        return _failed_start(snapshot, lease, seen.failed if known else "supervisor_failed")
    broken = _broken(snapshot, lease)
    if broken:
        return _failed_start(snapshot, lease, broken)
    if seen is not None and seen.connected:
        return Activate(lease.id, "connected", ends=seen.ends)
    stage = seen.stage if seen is not None and seen.stage in STAGES else lease.reason
    if stage != lease.reason:
        return Progress(lease.id, stage)
    since = lease.stage_since or lease.state_since or lease.created
    own = time_outs_of(snapshot.policy, lease).start_max
    bound = STAGE_MAX.get(stage, own)
    if stage == "adding_node":
        bound = adding_max(snapshot, lease)
    if (snapshot.now - since).total_seconds() >= bound:
        late = "node_not_added" if stage == "adding_node" else "start_timeout"
        return _failed_start(snapshot, lease, late)
    return None


def adding_max(snapshot: Snapshot, lease: Lease) -> float:
    """Return how long a node may take to be added; a pool that grows no more gives up at once."""
    elastic = snapshot.policy.elastic.get(lease.pool)
    return max(ADDING_LEAST, ADDING_TIMES * elastic.provision_time) if elastic is not None else 0.0


def _broken(snapshot: Snapshot, lease: Lease) -> str:
    """Return why a start cannot continue with its devices, else ``""``."""
    if not snapshot.capacity_known:
        return ""
    known = known_devices(snapshot)
    mine = [known.get(uuid) for uuid in lease.devices]
    if any(device is not None and device.node and device.lost for device in mine):
        return "node_lost"
    if all(device is not None and usable(device) for device in mine):
        return ""
    return "device_unhealthy"


def _failed_start(snapshot: Snapshot, lease: Lease, reason: str) -> Action:
    # Losing a race for a device, or the device itself, is not the request's own failure.
    own = reason not in OTHERS_FAILURES
    failures = lease.failures + own
    if failures >= MAX_FAILURES:
        return End(lease.id, reason, EndReason.FAILED)
    # What others do is not counted against a request, but each try in vain was one attempt.
    tries = failures if own else lease.attempt
    delay = min(MAX_BACK_OFF, BACK_OFF * 2 ** min(max(0, tries - 1), 10))
    delay = OTHERS_BACK_OFF.get(reason, delay)
    return Requeue(lease.id, reason, snapshot.now + timedelta(seconds=delay), own)


#: A clock that is set by less is none that was wrong: leases live with that.
FAR: Final = timedelta(hours=1)
#: What is noted as it happens, so never later than now.
_NOTED: Final = (
    "state_since", "stage_since", "active_since", "claimed", "idle_from", "charged_from",
)  # fmt: skip


def set_back(snapshot: Snapshot) -> dict[str, SetBack]:
    """Return for each lease whose notes are of the future by how much they are moved back.

    Else its hard end would be years ahead.
    """
    found = {}
    for lease in queue.holding(snapshot):
        ahead = [at for at in _noted(lease) if at > snapshot.now + FAR]
        if ahead:
            first = min(ahead)
            seconds = (first - snapshot.now).total_seconds()
            found[lease.id] = SetBack(lease.id, "clock_set", first, seconds)
    return found


def _noted(lease: Lease) -> list[datetime]:
    return [at for name in _NOTED if (at := getattr(lease, name)) is not None]
