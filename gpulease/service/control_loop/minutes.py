"""Minutes of evidence: how long each lease was busy, quiet, idle and unknown.

Owns the adding up between writes, and each lease's sums over its whole life.  Samples stay in
memory and are lost with the process; what is stored are these minutes, for whoever looks at a
lease's use later, this service after a restart too.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from datetime import datetime, timedelta

from gpulease.policy.model import Evidence, Verdict
from gpulease.store import EvidenceMinute

_MINUTE = timedelta(minutes=1)
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
