"""Minutes of evidence: how long each lease was busy, quiet, idle and unknown.

The minutes are stored, with each lease's sums over its whole life.  Single readings stay in memory
and are lost with the process: the last ten minutes of them, for a picture of the present.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from gpulease.policy.model import Evidence, Lease, Verdict
from gpulease.store import EvidenceMinute

_MINUTE = timedelta(minutes=1)
#: Between two readings that are kept; a reading is the highest use of so long a time.
_BETWEEN = timedelta(seconds=10)
#: So many are kept: ten minutes.
_KEPT = 60
#: Seconds of a lease below which its share says nothing.
_ENOUGH = 10.0


def share(busy: float, seconds: float) -> float | None:
    """Return the busy share of so many watched seconds; ``None`` when they are too few."""
    return busy / seconds if seconds >= _ENOUGH else None


class Minutes:
    """Adds up the time between rounds."""

    def __init__(self) -> None:
        self._last: datetime | None = None
        self._seconds: dict[tuple[str, datetime], dict[str, float]] = {}
        self._peaks: dict[tuple[str, datetime], float] = {}
        self._sums: dict[str, tuple[float, float]] = {}  # lease -> seconds busy, seconds in all

    def begin(self, sums: Mapping[str, tuple[float, float]]) -> None:
        """Go on from what is stored: seconds busy and seconds in all, by lease."""
        self._sums = dict(sums)

    def busy_share(self, lease_id: str) -> float | None:
        """Return the share of its time that a lease was busy; ``None`` when it is too short."""
        return share(*self._sums.get(lease_id, (0.0, 0.0)))

    def forget(self, kept: Container[str]) -> None:
        """Drop the sums of leases that are remembered no more."""
        for lease_id in [each for each in self._sums if each not in kept]:
            del self._sums[lease_id]

    def add(self, evidence: Mapping[str, Evidence], now: datetime) -> None:
        """Count the time since the last round for each lease's present verdict."""
        last, self._last = self._last, now
        if last is None or now <= last:
            return
        # A round that was late does not make its verdict hold for the whole pause.
        passed = min((now - last), _MINUTE).total_seconds()
        minute = now.replace(second=0, microsecond=0)
        for lease_id, each in evidence.items():
            key = (lease_id, minute)
            seconds = self._seconds.setdefault(key, {})
            seconds[each.verdict.value] = seconds.get(each.verdict.value, 0.0) + passed
            busy, total = self._sums.get(lease_id, (0.0, 0.0))
            used = passed if each.verdict is Verdict.BUSY else 0.0
            self._sums[lease_id] = (busy + used, total + passed)
            if each.utilisation is not None:
                self._peaks[key] = max(self._peaks.get(key, 0.0), each.utilisation)

    def due(self, now: datetime) -> list[EvidenceMinute]:
        """Return the minutes that are over; they stay until ``written`` is called."""
        minute = now.replace(second=0, microsecond=0)
        return [
            EvidenceMinute(lease_id, at, peak=self._peaks.get((lease_id, at)), **seconds)
            for (lease_id, at), seconds in self._seconds.items()
            if at < minute
        ]

    def written(self, minutes: list[EvidenceMinute]) -> None:
        """Forget minutes that the store took."""
        for each in minutes:
            self._seconds.pop((each.lease_id, each.minute), None)
            self._peaks.pop((each.lease_id, each.minute), None)


class Reading(NamedTuple):
    """The use of a lease's GPUs, 0 to 1, and their memory in bytes; ``None`` is not known."""

    at: datetime
    utilisation: float | None
    memory_used: int | None


class Readings:
    """Keeps the readings of the last ten minutes by lease."""

    def __init__(self) -> None:
        self._of: dict[str, deque[Reading]] = {}

    def of(self, lease_id: str) -> tuple[Reading, ...]:
        """Return the readings of one lease, oldest first."""
        return tuple(self._of.get(lease_id, ()))

    def add(
        self,
        leases: Iterable[Lease],
        evidence: Mapping[str, Evidence],
        memory_used: Callable[[Lease], int | None],
        now: datetime,
    ) -> None:
        """Take a reading of each lease that is due for one; forget the leases that are gone."""
        found: dict[str, deque[Reading]] = {}
        for lease in leases:
            if lease.id not in evidence:
                continue
            known = found[lease.id] = self._of.get(lease.id) or deque(maxlen=_KEPT)
            if not known or now - known[-1].at >= _BETWEEN:
                known.append(Reading(now, evidence[lease.id].utilisation, memory_used(lease)))
        self._of = found
