"""The evidence of a simulated lease, worked out instead of sampled.

``policy.evidence.idleness`` judges samples of each second; here it is known when the GPU was used,
and the same counters follow from that.  A test compares the two.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from gpulease.policy.evidence.idleness import WINDOW
from gpulease.policy.model import Evidence, Verdict

_WINDOW = timedelta(seconds=WINDOW)


def busy_since(began: datetime) -> Evidence:
    """Return the evidence of a lease whose GPU is in use."""
    return Evidence(Verdict.BUSY, began, utilisation=1.0, cells=1)


def idle_since(
    ended: datetime | None, active_since: datetime, warm_up: float, now: datetime
) -> Evidence:
    """Return the evidence of a lease whose GPU was in use until ``ended``, or not at all.

    The peak of the last seconds decides, so idleness begins when the last use has left them.
    """
    since = active_since if ended is None else ended + _WINDOW
    before = Verdict.UNKNOWN if ended is None else Verdict.BUSY
    if now < since:
        return Evidence(Verdict.BUSY, active_since, utilisation=1.0)
    counted = (now - max(since, active_since + timedelta(seconds=warm_up))).total_seconds()
    idle = max(0.0, counted)
    return Evidence(Verdict.IDLE, since, idle, idle, utilisation=0.0, before=before)
