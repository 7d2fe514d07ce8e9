"""Whether one lease has been unused for long enough, and why.

Owns the comparison of the counted evidence with the time-outs, once for the planner and once for
the page that says when.  Refuses to know who waits: pressure is passed in.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from gpulease.policy.model import Evidence, Lease, LeaseState, Observed, TimeOuts, Verdict


def idle_case(
    lease: Lease,
    evidence: Evidence | None,
    seen: Observed | None,
    now: datetime,
    time_outs: TimeOuts,
    *,
    under_pressure: bool,
) -> str:
    """Return ``idle``, ``quiet``, ``busy_max``, ``no_data``, ``unclaimed``, or ``""``: it stays."""
    if lease.kept_until is not None and lease.kept_until > now:
        return ""
    if unclaimed(lease, seen, now, time_outs):
        return "unclaimed"
    if evidence is None or evidence.verdict is Verdict.BUSY:
        return ""
    idle_for, quiet_for = counted(lease, evidence, now)
    if evidence.verdict is Verdict.UNKNOWN:
        # No data is not idleness: it holds, and only for somebody who waits it is quiet one day.
        silent = (now - (evidence.unknown_since or now)).total_seconds() - time_outs.unknown_hold
        counts = under_pressure and silent > 0 and quiet_for + silent >= time_outs.quiet
        return "no_data" if counts else ""
    if evidence.verdict is Verdict.IDLE and idle_for >= idle_limit(time_outs, under_pressure):
        return "idle"
    return _unused(evidence) if quiet_for >= time_outs.quiet else ""


def _unused(evidence: Evidence) -> str:
    return "busy_max" if evidence.word_over else "quiet"


def idle_limit(time_outs: TimeOuts, under_pressure: bool) -> float:
    """Return the idle time-out in seconds; pressure never lengthens it."""
    if under_pressure:
        return min(time_outs.idle, time_outs.idle_under_pressure)
    return time_outs.idle


def counted(lease: Lease, evidence: Evidence, now: datetime) -> tuple[float, float]:
    """Return the seconds that count as idle and as quiet since the lease came back last."""
    if lease.idle_from is None:
        return evidence.idle_for, evidence.quiet_for
    since = max(0.0, (now - lease.idle_from).total_seconds())
    return min(evidence.idle_for, since), min(evidence.quiet_for, since)


def unclaimed(lease: Lease, seen: Observed | None, now: datetime, time_outs: TimeOuts) -> bool:
    """Whether nobody has come for an active lease within its claim time."""
    due = _to_be_claimed(lease, seen, time_outs)
    return due is not None and now >= due


def _to_be_claimed(lease: Lease, seen: Observed | None, time_outs: TimeOuts) -> datetime | None:
    """Return until when somebody has to come for it; ``None`` once somebody has."""
    if lease.claimed is not None or lease.active_since is None:
        return None
    if seen is None or not seen.connected or seen.in_use:
        return None
    return lease.active_since + timedelta(seconds=time_outs.claim)


def warned_at(
    lease: Lease,
    evidence: Evidence | None,
    seen: Observed | None,
    now: datetime,
    time_outs: TimeOuts,
) -> datetime | None:
    """Return when the lease would be warned if it stays as it is and nobody waits; else ``None``.

    ``None`` while it is used, while no data comes and before it is active.
    """
    if lease.state is not LeaseState.ACTIVE:
        return None
    dues = (_to_be_claimed(lease, seen, time_outs), _unused_at(lease, evidence, now, time_outs))
    due = min((each for each in dues if each is not None), default=None)
    if due is None or lease.kept_until is None:
        return due
    return max(due, lease.kept_until)


def _unused_at(
    lease: Lease, evidence: Evidence | None, now: datetime, time_outs: TimeOuts
) -> datetime | None:
    """Return when it will have been unused for long enough, a Keep aside."""
    if evidence is None or evidence.verdict not in (Verdict.IDLE, Verdict.QUIET):
        return None
    idle_for, quiet_for = counted(lease, evidence, now)
    left = time_outs.quiet - quiet_for
    if evidence.verdict is Verdict.IDLE:
        left = min(left, time_outs.idle - idle_for)
    elif not evidence.cells:  # the cell that made it quiet is over: it is about to count as idle
        left = min(left, time_outs.idle)
    # Until the warm-up is over nothing counts, so it comes on top.
    warm = (lease.active_since or now) + timedelta(seconds=time_outs.warm_up)
    return max(now, warm) + timedelta(seconds=max(0.0, left))
