"""When what is seen is not trusted: nothing is reclaimed on the word of a broken monitoring.

The signs of that are here (many leases turn idle at once, nothing is heard, others take what was
granted) and what an admin is told of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpulease.policy import queue
from gpulease.policy.model import Alert, LeaseState, Snapshot, Verdict
from gpulease.policy.units import say_count, say_duration

#: Leases whose idle stretch began within so many seconds of each other turned idle "together".
TOGETHER = 2.0
#: More than this share of the leases turning idle together is a fault of the monitoring ...
FAULT_SHARE = 0.2
#: ... where at least this many do; a class of three may well stop at one word.
FAULT_COUNT = 5
#: From so many devices taken by others on, a pool's capacity is not ours to rely on ...
TAKEN_OFTEN = 2
#: ... for so many seconds after the last one: nothing is reclaimed that others would take again.
TAKEN_HOLD = 900.0


@dataclass(frozen=True)
class Doubts:
    """What keeps a plan from reclaiming, and what an admin is told of it."""

    alerts: tuple[Alert, ...]
    reclaims_at_all: bool
    contended: frozenset[str]

    @classmethod
    def of(cls, snapshot: Snapshot) -> Doubts:
        """Return the doubts about what a snapshot shows."""
        mass = mass_idle(snapshot)
        said = [*([mass] if mass else []), *_contended(snapshot), *_silent(snapshot)]
        sure = snapshot.capacity_known and mass is None
        return cls(tuple(said), sure, contended_pools(snapshot))

    def reclaims(self, pool: str) -> bool:
        """Whether idle leases of a pool may be taken."""
        return self.reclaims_at_all and pool not in self.contended


def contended_pools(snapshot: Snapshot) -> frozenset[str]:
    """Return the pools where others keep taking what was granted: contended capacity."""
    hold = timedelta(seconds=TAKEN_HOLD)
    return frozenset(
        pool
        for pool, times in snapshot.contended.items()
        if len(times) >= TAKEN_OFTEN and snapshot.now - max(times) < hold
    )


def _contended(snapshot: Snapshot) -> list[Alert]:
    return [
        Alert(
            "",
            "foreign_capacity",
            f"Others took GPUs of pool {pool} that had been granted: nothing is reclaimed there. "
            "Taint its nodes for gpulease alone, or take others' GPU pods away.",
            {"times": len(snapshot.contended[pool])},
        )
        for pool in sorted(contended_pools(snapshot))
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
        f"{together} of {say_count(len(watched), 'lease', 'leases')} turned idle in the same "
        "moment: nothing is reclaimed until the monitoring has been looked at.",
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
                    f"No evidence of the use of lease {lease.id} of {lease.user} has come for "
                    f"{say_duration(round(silent))}. It is kept while nobody waits for its GPU.",
                    {"seconds": silent},
                )
            )
    return alerts
