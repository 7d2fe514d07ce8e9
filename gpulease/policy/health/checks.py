"""What happened to leases by itself: they connected, failed to start, died, lost their device.

The first step of every plan reacts to what the provider shows.  Use is not judged here.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from gpulease.policy import queue
from gpulease.policy.capacity.devices import known_devices, usable
from gpulease.policy.evidence.idleness import WINDOW
from gpulease.policy.lifecycle import OTHERS_FAILURES, STAGES, START_FAILURES, time_outs_of
from gpulease.policy.model import (
    Action,
    Activate,
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
    """Return ``device_unhealthy`` or ``device_lost`` when the lease cannot go on, else ``""``.

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
    """Return why a start cannot go on with its devices, else ``""``."""
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
