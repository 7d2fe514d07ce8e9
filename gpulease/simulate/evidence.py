"""The evidence of a simulated lease, worked out instead of sampled.

``policy.idleness`` judges samples of each second; here it is known when the GPU was used,
and the same counters follow from that.  A test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

from gpulease.policy.idleness import WINDOW
from gpulease.policy.model import Evidence, Lease, TimeOuts, Verdict
from gpulease.simulate.clock import Clock
from gpulease.simulate.people import Person, Phase

_WINDOW = timedelta(seconds=WINDOW)


def of(
    leases: Iterable[tuple[Lease, Person]],
    known: Mapping[str, Evidence],
    clock: Clock,
    outs: Callable[[Lease], TimeOuts],
) -> dict[str, Evidence]:
    """Return the evidence of leases by now.

    Args:
        leases: each with who has it; those that were never active are left out.
        known: what the look before found.
        clock: the replay's.
        outs: returns a lease's time-outs.
    """
    found: dict[str, Evidence] = {}
    for lease, person in leases:
        if lease.active_since is None:
            continue
        before = known.get(lease.id)
        if person.phase is Phase.BUSY and person.lease == lease.id:
            same = before is not None and before.cells
            found[lease.id] = before if before and same else busy_since(clock.now)
            continue
        used = person.stopped
        since = clock.seconds(lease.active_since)
        ended = clock.when(used) if used is not None and used >= since else None
        found[lease.id] = idle_since(ended, lease.active_since, outs(lease).warm_up, clock.now)
    return found


def busy_since(began: datetime) -> Evidence:
    """Return the evidence of a lease whose GPU is in use."""
    return Evidence(Verdict.BUSY, began, utilisation=1.0, cells=1, used=True)


def idle_since(
    ended: datetime | None, active_since: datetime, warm_up: float, now: datetime
) -> Evidence:
    """Return the evidence of a lease whose GPU was in use until ``ended``, or not at all.

    The peak of the last seconds decides, so idleness begins when the last use has left them.
    """
    since = active_since if ended is None else ended + _WINDOW
    before = Verdict.UNKNOWN if ended is None else Verdict.BUSY
    if now < since:
        return Evidence(Verdict.BUSY, active_since, utilisation=1.0, used=True)
    counted = (now - max(since, active_since + timedelta(seconds=warm_up))).total_seconds()
    idle = max(0.0, counted)
    return Evidence(
        Verdict.IDLE, since, idle, idle, utilisation=0.0, used=ended is not None, before=before
    )
