"""The plan: one snapshot in, a list of actions out.

Owns the order of the steps: health, holds and admission from what is free, then reclaim (idle,
hard end).  Over-quota reclaim and preemption inside a project follow idle reclaim when there are
shares.  Pure, deterministic, and independent of the order in which the snapshot lists things; each
lease gets at most one action a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gpulease.policy import admission, health, queue, reclaim
from gpulease.policy.binding import bindings
from gpulease.policy.model import (
    Action,
    Activate,
    Alert,
    Bind,
    End,
    Lease,
    LeaseState,
    Progress,
    Snapshot,
    Verdict,
)
from gpulease.policy.nominations import nominations

#: Leases whose idle stretch began within so many seconds of each other turned idle "together".
TOGETHER = 2.0
#: More than this share of the leases turning idle together is a fault of the monitoring ...
FAULT_SHARE = 0.2
#: ... where at least this many do; a class of three may well stop at one word.
FAULT_COUNT = 5
#: From so many devices taken by others on, a pool's capacity is not ours to rely on ...
THEFTS = 2
#: ... for so many seconds after the last one: nothing is reclaimed that others would take again.
THEFT_HOLD = 900.0


def plan(snapshot: Snapshot) -> list[Action]:
    """Return what to do now.

    Where the capacity is not known, nothing is granted and nothing reclaimed; leases that start,
    drain or reach their hard end go on.
    """
    actions: list[Action] = []
    settled: set[str] = set()
    right = bindings(snapshot)
    for lease in queue.holding(snapshot):
        action = _bound(lease, health.check(snapshot, lease), right)
        if action is not None:
            actions.append(action)
            settled.add(lease.id)
    ending = frozenset(a.lease_id for a in actions if isinstance(a, End))
    granted = admission.Admission()
    if snapshot.capacity_known:
        granted = admission.admit(snapshot, ending)
    actions += granted.actions
    alerts = _alerts(snapshot)
    reclaims = snapshot.capacity_known and not any(a.reason == "mass_idle" for a in alerts)
    robbed = robbed_pools(snapshot)
    rest = _without(snapshot, settled)
    wanted = [unmet for unmet in granted.unmet if unmet.pool not in robbed]
    taken_for = nominations(rest, wanted, reclaims=reclaims)
    for lease in queue.holding(rest):
        theirs = reclaims and queue.pool_of(rest, lease) not in robbed
        action = reclaim.decide(rest, lease, taken_for, reclaims=theirs)
        if action is not None:
            actions.append(action)
    return [*actions, *alerts]


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


def robbed_pools(snapshot: Snapshot) -> frozenset[str]:
    """Return the pools where others keep taking what was granted."""
    hold = timedelta(seconds=THEFT_HOLD)
    return frozenset(
        pool
        for pool, times in snapshot.thefts.items()
        if len(times) >= THEFTS and snapshot.now - max(times) < hold
    )


def _without(snapshot: Snapshot, settled: set[str]) -> Snapshot:
    return replace(snapshot, leases=tuple(x for x in snapshot.leases if x.id not in settled))


def _alerts(snapshot: Snapshot) -> list[Alert]:
    mass = mass_idle(snapshot)
    return [*([mass] if mass else []), *_robbed(snapshot), *_silent(snapshot)]


def _robbed(snapshot: Snapshot) -> list[Alert]:
    return [
        Alert(
            "",
            "foreign_capacity",
            f"Others took GPUs of pool {pool} that had been granted: nothing is reclaimed there. "
            "Taint its nodes for gpulease alone, or take others' GPU pods away.",
            {"times": len(snapshot.thefts[pool])},
        )
        for pool in sorted(robbed_pools(snapshot))
    ]


def mass_idle(snapshot: Snapshot) -> Alert | None:
    """Return the alert when too many leases turned idle in the same moment.

    It stands for ``unknown_hold`` seconds beyond the idle time-out after that moment: time for
    somebody to look, and no immunity when a whole class really stopped at one word.
    """
    watched = [x for x in queue.holding(snapshot) if x.state is not LeaseState.STARTING]
    outs = snapshot.policy.time_outs
    begun = sorted(
        evidence.since
        for lease in watched
        if (evidence := snapshot.evidence.get(lease.id)) is not None
        and evidence.verdict is Verdict.IDLE
        and evidence.before in (Verdict.BUSY, Verdict.QUIET)
        and (snapshot.now - evidence.since).total_seconds() < outs.idle + outs.unknown_hold
    )
    together = _most_within(begun, timedelta(seconds=TOGETHER))
    if together < FAULT_COUNT or together <= FAULT_SHARE * len(watched):
        return None
    return Alert(
        "",
        "mass_idle",
        f"{together} of {len(watched)} leases turned idle in the same moment: nothing is "
        "reclaimed until the monitoring has been looked at.",
        {"together": together, "leases": len(watched)},
    )


def _most_within(times: Sequence[datetime], span: timedelta) -> int:
    """Return how many of these instants, in order, lie within one span at most."""
    most = first = 0
    for last, at in enumerate(times):
        while at - times[first] > span:
            first += 1
        most = max(most, last - first + 1)
    return most


def _silent(snapshot: Snapshot) -> list[Alert]:
    """Return an alert for each lease of which nothing has been heard for too long."""
    alerts = []
    hold = snapshot.policy.time_outs.unknown_hold
    for lease in queue.holding(snapshot):
        evidence = snapshot.evidence.get(lease.id)
        if evidence is None or evidence.unknown_since is None:
            continue
        silent = (snapshot.now - evidence.unknown_since).total_seconds()
        if lease.state in (LeaseState.ACTIVE, LeaseState.WARNED) and silent >= hold:
            alerts.append(
                Alert(
                    lease.id,
                    "no_data",
                    f"No evidence of use has come for {silent:.0f} s.",
                    {"seconds": silent},
                )
            )
    return alerts
