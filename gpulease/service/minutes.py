"""Minutes of evidence: how long each lease was busy, quiet, idle and unknown.

Owns the adding up between writes.  Samples stay in memory and are lost with the process; what is
stored are these minutes, for whoever looks at a lease's use later.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from gpulease.policy.model import Evidence
from gpulease.store import EvidenceMinute

_MINUTE = timedelta(minutes=1)


class Minutes:
    """Adds up the time between rounds."""

    def __init__(self) -> None:
        self._last: datetime | None = None
        self._seconds: dict[tuple[str, datetime], dict[str, float]] = {}
        self._peaks: dict[tuple[str, datetime], float] = {}

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
