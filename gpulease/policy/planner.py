"""The plan: one snapshot in, a list of actions out.

Owns the order of the steps: health, holds and admission from what is free, then reclaim (idle,
hard end).  Over-quota reclaim and preemption inside a project follow idle reclaim when there are
shares.  Pure, deterministic, and independent of the order in which the snapshot lists things; each
lease gets at most one action a plan.
"""

from __future__ import annotations

from dataclasses import replace

from gpulease.policy import admission, health, queue, reclaim
from gpulease.policy.model import (
    Action,
    Alert,
    End,
    LeaseState,
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


def plan(snapshot: Snapshot) -> list[Action]:
    """Return what to do now.

    Where the capacity is not known, nothing is granted and nothing reclaimed; leases that start,
    drain or reach their hard end go on.
    """
    actions: list[Action] = []
    settled: set[str] = set()
    for lease in queue.holding(snapshot):
        action = health.check(snapshot, lease)
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
    rest = _without(snapshot, settled)
    taken_for = nominations(rest, granted.unmet, reclaims=reclaims)
    for lease in queue.holding(rest):
        action = reclaim.decide(rest, lease, taken_for, reclaims=reclaims)
        if action is not None:
            actions.append(action)
    return [*actions, *alerts]


def _without(snapshot: Snapshot, settled: set[str]) -> Snapshot:
    return replace(snapshot, leases=tuple(x for x in snapshot.leases if x.id not in settled))


def _alerts(snapshot: Snapshot) -> list[Alert]:
    mass = mass_idle(snapshot)
    return [*([mass] if mass else []), *_silent(snapshot)]


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
    together = max(
        (sum(0 <= (b - a).total_seconds() <= TOGETHER for b in begun) for a in begun), default=0
    )
    if together < FAULT_COUNT or together <= FAULT_SHARE * len(watched):
        return None
    return Alert(
        "",
        "mass_idle",
        f"{together} of {len(watched)} leases turned idle in the same moment: nothing is "
        "reclaimed until the monitoring has been looked at.",
        {"together": together, "leases": len(watched)},
    )


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
