"""From raw evidence to a verdict, and how long it has counted.

The rule by which a lease is *busy*, *quiet*, *idle* or *unknown*, and the two counters that
run against the time-outs.  ``planner`` ends leases by it.

The rule, first match wins, over the window of the last ``WINDOW`` seconds:

* *unknown*: no valid sample.  A gap of the probe is no sample and never a zero.
* *busy*: device use above ``USE`` while a cell, thread or process of the user lived there.
* *quiet*: a cell of the user ran (``sleep`` and ``input()`` included) without device use.
* *idle*: none of these.

Busy resets both counters, quiet resets the idle one, unknown pauses both, and the first
``warm_up`` seconds after *active* count for neither.  At evidence level ``cells`` the device cannot
be attributed: a running cell is busy, and device data may only make it quiet.

Where nothing but the companion's own word speaks for use (level ``cells``, simulated devices), it
lengthens a lease to ``busy_max`` only: busy without interruption for longer is quiet from then on.
An instant without data interrupts nothing.

The counters hold seconds, not deadlines, so a changed time-out counts at once and from the
beginning of the present stretch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from gpulease.policy.model import (
    Evidence,
    EvidenceLevel,
    Lease,
    LeaseState,
    Observed,
    TimeOuts,
    Verdict,
)

#: Seconds that a sample speaks for; the peak of the window decides.
WINDOW = 10.0
#: Share of the device above which it is used.
USE = 0.03
#: Seconds within which a device sample and a sign of life belong together.
TOGETHER = 2.0
#: A late call is judged in steps no longer than this (seconds), so no burst between is overlooked.
STEP = 5.0
#: A call later than this (seconds) is not judged step by step: nobody watched meanwhile.
LATE = 600.0

# Each lease is judged each second: not made anew for every sample.
_WINDOW, _TOGETHER = timedelta(seconds=WINDOW), timedelta(seconds=TOGETHER)
_S = TypeVar("_S", "DeviceSample", "ActivitySample")


@dataclass(frozen=True)
class DeviceSample:
    """Device use at one instant, 0..1; ``None`` is a gap."""

    at: datetime
    utilisation: float | None


@dataclass(frozen=True)
class ActivitySample:
    """What lived in the lease at one instant, gpulease's own work left out.

    ``use`` is the peak share of one core that user code used, 0..1.
    """

    at: datetime
    cells: int
    threads: int = 0
    processes: int = 0
    use: float = 0.0
    tasks: int = 0
    used: bool = False  # a cell has run in the lease, whenever it was

    @property
    def alive(self) -> bool:
        """Whether anything that the user started lives."""
        return self.cells + self.threads + self.processes + self.tasks > 0


@dataclass(frozen=True)
class IdleState:
    """The accumulator: evidence up to ``at`` and the samples that still matter."""

    at: datetime
    evidence: Evidence
    device: tuple[DeviceSample, ...] = ()
    activity: tuple[ActivitySample, ...] = ()
    busy_from: datetime | None = None  # since when the samples say busy, whatever it counts as


def begin(now: datetime) -> IdleState:
    """Return the state of a lease of which nothing is known yet."""
    return IdleState(now, Evidence(Verdict.UNKNOWN, since=now, unknown_since=now))


def advance(
    state: IdleState,
    device: Iterable[DeviceSample],
    activity: Iterable[ActivitySample],
    now: datetime,
    *,
    time_outs: TimeOuts,
    active_since: datetime | None,
    level: EvidenceLevel = EvidenceLevel.PROCESS,
    simulated: bool = False,
) -> IdleState:
    """Return the state at ``now`` after new samples, given in any order.

    ``simulated``: the device samples are the companion's own word too.
    A clock that goes backwards changes nothing but the samples.
    """
    joined = replace(
        state,
        device=_ordered([*state.device, *device]),
        activity=_ordered([*state.activity, *activity]),
    )
    by_word = simulated or level is EvidenceLevel.CELLS
    longest = _seconds(time_outs.busy_max) if by_word else timedelta.max
    counted_from = now if active_since is None else active_since + _seconds(time_outs.warm_up)
    unwatched_until = now - _seconds(LATE)
    if joined.at < unwatched_until:
        joined = replace(joined, at=unwatched_until)
    for moment in _moments(joined.at, now):
        joined = _step(joined, moment, counted_from, level, longest)
    oldest = joined.at - _WINDOW
    return replace(
        joined,
        device=tuple(sample for sample in joined.device if sample.at > oldest),
        activity=tuple(sample for sample in joined.activity if sample.at > oldest),
    )


def judge(
    device: Sequence[DeviceSample],
    activity: Sequence[ActivitySample],
    at: datetime,
    level: EvidenceLevel = EvidenceLevel.PROCESS,
) -> Verdict:
    """Return the verdict at one instant from the samples of the window before it."""
    return _verdict(_within(activity, at), _valid(device, at), level)


def _verdict(
    seen: Sequence[ActivitySample], valid: Sequence[DeviceSample], level: EvidenceLevel
) -> Verdict:
    """Return the verdict from the samples of one window."""
    running = any(sample.cells for sample in seen)
    if not seen:
        return Verdict.UNKNOWN
    if level is EvidenceLevel.CELLS:
        return _judge_cells(valid, running=running)
    if not valid:
        return Verdict.UNKNOWN
    if any((s.utilisation or 0.0) > USE and _alive_near(seen, s.at) for s in valid):
        return Verdict.BUSY
    return Verdict.QUIET if running else Verdict.IDLE


def _judge_cells(valid: Sequence[DeviceSample], *, running: bool) -> Verdict:
    if not running:
        return Verdict.IDLE
    unused = bool(valid) and all((s.utilisation or 0.0) <= USE for s in valid)
    return Verdict.QUIET if unused else Verdict.BUSY


def _step(
    state: IdleState,
    at: datetime,
    counted_from: datetime,
    level: EvidenceLevel,
    longest: timedelta,
) -> IdleState:
    seen, valid = _within(state.activity, at), _valid(state.device, at)
    verdict = _verdict(seen, valid, level)
    busy_from = _busy_from(state, verdict, at)
    word_over = verdict is Verdict.BUSY and busy_from is not None and at - busy_from >= longest
    if word_over:
        verdict = Verdict.QUIET
    before = state.evidence
    counted = max(0.0, (at - max(state.at, counted_from)).total_seconds())
    idle_for, quiet_for = before.idle_for, before.quiet_for
    if verdict is Verdict.BUSY:
        idle_for = quiet_for = 0.0
    elif verdict is Verdict.QUIET:
        idle_for, quiet_for = 0.0, quiet_for + counted
    elif verdict is Verdict.IDLE:
        idle_for, quiet_for = idle_for + counted, quiet_for + counted
    evidence = Evidence(
        verdict,
        since=before.since if verdict is before.verdict else at,
        idle_for=idle_for,
        quiet_for=quiet_for,
        unknown_since=(before.unknown_since or at) if verdict is Verdict.UNKNOWN else None,
        utilisation=max((s.utilisation or 0.0 for s in valid), default=None),
        cells=seen[-1].cells if seen else 0,
        used=before.used or any(sample.alive or sample.used for sample in seen),
        before=before.before if verdict is before.verdict else before.verdict,
        word_over=word_over,
    )
    return replace(state, at=at, evidence=evidence, busy_from=busy_from)


def _busy_from(state: IdleState, verdict: Verdict, at: datetime) -> datetime | None:
    if verdict is Verdict.BUSY:
        return state.busy_from or at
    return state.busy_from if verdict is Verdict.UNKNOWN else None


def _moments(last: datetime, now: datetime) -> list[datetime]:
    """Return the instants to judge between two calls, ``now`` being the last."""
    gap = (now - last).total_seconds()
    if gap <= 0:
        return []
    steps = max(1, math.ceil(gap / STEP))
    return [last + (now - last) * n / steps for n in range(1, steps)] + [now]


def _ordered(samples: list[_S]) -> tuple[_S, ...]:
    return tuple(sorted(samples, key=lambda sample: sample.at))


def _within(samples: Sequence[_S], at: datetime) -> list[_S]:
    """Return the samples of the window that ends at an instant."""
    oldest = at - _WINDOW
    return [sample for sample in samples if oldest < sample.at <= at]


def _valid(device: Sequence[DeviceSample], at: datetime) -> list[DeviceSample]:
    return [sample for sample in _within(device, at) if sample.utilisation is not None]


def _alive_near(activity: Sequence[ActivitySample], at: datetime) -> bool:
    return any(sample.alive and abs(sample.at - at) <= _TOGETHER for sample in activity)


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


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
    if now < _first_cell_until(lease, evidence, now, time_outs):
        return ""
    return _why(lease, evidence, now, time_outs, under_pressure=under_pressure)


def _why(
    lease: Lease,
    evidence: Evidence,
    now: datetime,
    time_outs: TimeOuts,
    *,
    under_pressure: bool,
) -> str:
    """Return which of the time-outs is over, ``""`` for none."""
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
    if seen is None or not seen.connected or seen.in_use or math.isinf(time_outs.claim):
        return None
    return lease.active_since + timedelta(seconds=time_outs.claim)


def warned_at(
    lease: Lease,
    evidence: Evidence | None,
    seen: Observed | None,
    now: datetime,
    time_outs: TimeOuts,
    *,
    under_pressure: bool = False,
) -> datetime | None:
    """Return when the lease would be warned if it stays as it is; else ``None``.

    ``None`` while it is used, while no data comes, before it is active and where idleness ends
    nothing.
    """
    if lease.state is not LeaseState.ACTIVE:
        return None
    unused = _unused_at(lease, evidence, now, time_outs, idle_limit(time_outs, under_pressure))
    dues = [_to_be_claimed(lease, seen, time_outs), unused]
    due = min((each for each in dues if each is not None), default=None)
    if due is None or lease.kept_until is None:
        return due
    return max(due, lease.kept_until)


def _unused_at(
    lease: Lease,
    evidence: Evidence | None,
    now: datetime,
    time_outs: TimeOuts,
    idle: float,
) -> datetime | None:
    """Return when it will have been unused for long enough, a Keep aside."""
    if evidence is None or evidence.verdict not in (Verdict.IDLE, Verdict.QUIET):
        return None
    idle_for, quiet_for = counted(lease, evidence, now)
    left = time_outs.quiet - quiet_for
    if evidence.verdict is Verdict.IDLE:
        left = min(left, idle - idle_for)
    elif not evidence.cells:  # the cell that made it quiet is over: it is about to count as idle
        left = min(left, idle)
    if math.isinf(left):
        return None
    # Until the warm-up is over nothing counts, so it comes on top.
    warm = (lease.active_since or now) + timedelta(seconds=time_outs.warm_up)
    due = max(now, warm) + timedelta(seconds=max(0.0, left))
    return max(due, _first_cell_until(lease, evidence, now, time_outs))


def _first_cell_until(
    lease: Lease, evidence: Evidence, now: datetime, time_outs: TimeOuts
) -> datetime:
    """Return until when a lease that no cell has used yet is left alone; now for a used one.

    Its holder may still be opening the notebook.
    """
    if evidence.used or lease.active_since is None or math.isinf(time_outs.claim):
        return now
    return lease.active_since + timedelta(seconds=time_outs.claim)
