"""What ends a lease next, and when: the one time left that every view of it shows.

The pages, JupyterLab and ``%gpu`` show this instant and no other, so that they never disagree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from gpulease.policy import budgets, queue
from gpulease.policy.batch import stands_back
from gpulease.policy.evidence.idleness import warned_at
from gpulease.policy.health import observed_of
from gpulease.policy.memo import once
from gpulease.policy.model import Lease, LeaseState, Snapshot
from gpulease.policy.projects import AtZero
from gpulease.policy.reservations.departures import departures
from gpulease.policy.reservations.seats import time_outs_at, window_of

#: ``released``: it was warned; ``drained``: its variables are being saved, until then at most;
#: ``idle_warning``: it is unused and will be warned; ``exam``, ``seat``: its reserved time is over;
#: ``reserved``: a reservation needs the GPU; ``hard_limit``; ``budget``: its GPU-hours are spent.
Cause = Literal[
    "released", "drained", "idle_warning", "exam", "seat", "reserved", "hard_limit", "budget"
]
#: A request that waits for one of these takes no idle lease: it lacks something else.
_TAKES = frozenset({"", "no_capacity", "capacity_taken", "seats_taken"})


@dataclass(frozen=True)
class Ending:
    """The next thing that happens to a lease if it stays as it is."""

    cause: Cause
    at: datetime


def what_ends(snapshot: Snapshot, lease: Lease) -> Ending | None:
    """Return what ends a lease, or warns of its end, first; ``None`` where nothing is known."""
    return min(_endings(snapshot, lease), key=lambda each: each.at, default=None)


def _endings(snapshot: Snapshot, lease: Lease) -> Iterator[Ending]:
    if lease.state is LeaseState.WARNED and lease.warned_until is not None:
        yield Ending("released", lease.warned_until)
    elif lease.state is LeaseState.DRAINING and lease.drain_until is not None:
        yield Ending("drained", lease.drain_until)
    elif lease.state is LeaseState.ACTIVE:
        if lease.hard_end is not None:
            yield Ending("hard_limit", lease.hard_end)
        yield from _of_windows(snapshot, lease)
        if (unused := _idle_warning(snapshot, lease)) is not None:
            yield Ending("idle_warning", unused)
        if (spent := _spent_at(snapshot, lease)) is not None:
            yield Ending("budget", spent)


def _of_windows(snapshot: Snapshot, lease: Lease) -> Iterator[Ending]:
    """Yield the end of the lease's own seat, and when another window needs its GPUs."""
    seat = window_of(snapshot, lease)
    if seat is not None:
        yield Ending("exam" if seat.of.exam else "seat", seat.end_for(lease.user))
        return
    found = departures(snapshot).get(lease.id)
    if found is not None:
        yield Ending("reserved", found.until)


def _idle_warning(snapshot: Snapshot, lease: Lease) -> datetime | None:
    """Return when the lease is warned as idle: sooner where somebody waits who could take it."""
    evidence, seen = snapshot.evidence.get(lease.id), observed_of(snapshot, lease)
    outs, now = time_outs_at(snapshot, lease), snapshot.now
    if queue.pool_of(snapshot, lease) in _wanted_pools(snapshot):
        sooner = warned_at(lease, evidence, seen, now, outs, under_pressure=True)
        if sooner is not None and sooner > now:  # past it another lease was taken
            return sooner
    return warned_at(lease, evidence, seen, now, outs)


@once
def _wanted_pools(snapshot: Snapshot) -> frozenset[str]:
    """Return the pools of which somebody lacks a GPU for whom an idle one is taken."""
    return frozenset(
        pool
        for pool, requests in queue.by_pool(snapshot).items()
        if any(_takes(snapshot, request) for request in requests)
    )


def _takes(snapshot: Snapshot, request: Lease) -> bool:
    lacks = request.server_ready and request.reason in _TAKES
    return lacks and not stands_back(request, snapshot)


def _spent_at(snapshot: Snapshot, lease: Lease) -> datetime | None:
    """Return when nothing is left of the lease's budget, at the rate of all that it pays now."""
    left = budgets.of_lease(snapshot, lease)
    if left is None or left.at_zero is not AtZero.END:
        return None
    project = snapshot.policy.projects.home(lease.project).name
    rate = _rates(snapshot).get((project, lease.user if left.whose == "person" else None), 0.0)
    return snapshot.now + timedelta(hours=max(0.0, left.left) / rate) if rate > 0 else None


@once
def _rates(snapshot: Snapshot) -> Mapping[tuple[str, str | None], float]:
    """Return the GPU-hours an hour that each project, and each person in it, is charged now."""
    found: dict[tuple[str, str | None], float] = {}
    for lease in queue.holding(snapshot):
        if lease.charged_from is None:
            continue
        project = snapshot.policy.projects.home(lease.project).name
        for key in ((project, None), (project, lease.user)):
            found[key] = found.get(key, 0.0) + len(lease.devices) * lease.price
    return found
