"""How GPUs were used and how long people waited, in equal steps of time: for charts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median

from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.schemas.shapes import TimelineStep
from gpulease.store import used
from gpulease.store.used import Used, Waited

#: A chart has about so many steps.
STEPS = 180
#: In so many parts a time is read.
_PARTS = 8
_HOUR = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)


async def read(ledger: Ledger, since: datetime, until: datetime) -> tuple[list[Used], list[Waited]]:
    """Return what is stored of a time, read in parts: a month of it keeps no change waiting.

    Raises:
        GPULeaseError: the store cannot be read.
    """
    part = max((until - since) / _PARTS, _HOUR)
    found: list[Used] = []
    at = since
    while at < until:
        end = min(at + part, until)
        found += await ledger.call(ledger.store.read, used.minutes, at, end)
        at = end
    return found, await ledger.call(ledger.store.read, used.waits, since, until)


def step_of(length: timedelta, folded: bool) -> timedelta:
    """Return how long a step is: whole minutes, and whole hours where older hours are one row."""
    unit = _HOUR if folded else _MINUTE
    return max(-(-length // (STEPS * unit)), 1) * unit


@dataclass
class _Step:
    busy: float = 0.0  # device-seconds
    quiet: float = 0.0
    idle: float = 0.0
    unknown: float = 0.0
    waiting: float = 0.0  # request-seconds
    waits: list[float] = field(default_factory=list)  # seconds, of those that got a GPU


def timeline(
    minutes: Iterable[Used],
    waits: Iterable[Waited],
    since: datetime,
    until: datetime,
    step: timedelta,
) -> list[TimelineStep]:
    """Return each step's averages: devices by what they did, and people who waited.

    Args:
        minutes: device-seconds by verdict.
        waits: the requests that waited within the time.
        since: the beginning of the first step.
        until: the end of the last step, which may be shorter than the others.
        step: how long a step is.
    """
    steps = [_Step() for _ in range(max(-(-(until - since) // step), 0))]
    for each in minutes:
        if since <= each.at < until:
            one = steps[(each.at - since) // step]
            one.busy, one.quiet = one.busy + each.busy, one.quiet + each.quiet
            one.idle, one.unknown = one.idle + each.idle, one.unknown + each.unknown
    for waited in waits:
        _add(steps, waited, since, until, step)
    found: list[TimelineStep] = []
    for number, one in enumerate(steps):
        at = since + number * step
        seconds = (min(at + step, until) - at).total_seconds()
        found.append(
            {
                "at": at.isoformat(),
                "busy": round(one.busy / seconds, 3),
                "quiet": round(one.quiet / seconds, 3),
                "idle": round(one.idle / seconds, 3),
                "unknown": round(one.unknown / seconds, 3),
                "waiting": round(one.waiting / seconds, 3),
                "granted": len(one.waits),
                "wait": round(median(one.waits), 1) if one.waits else None,
                "longest_wait": round(max(one.waits), 1) if one.waits else None,
            }
        )
    return found


def _add(
    steps: list[_Step], waited: Waited, since: datetime, until: datetime, step: timedelta
) -> None:
    begin, end = max(waited.since, since), min(waited.until or until, until)
    if begin < end:
        for number in range((begin - since) // step, -(-(end - since) // step)):
            at = since + number * step
            steps[number].waiting += (min(end, at + step) - max(begin, at)).total_seconds()
    if waited.granted and waited.until is not None and since <= waited.until < until:
        seconds = (waited.until - waited.since).total_seconds()
        steps[(waited.until - since) // step].waits.append(seconds)
