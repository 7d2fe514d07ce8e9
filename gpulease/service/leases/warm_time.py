"""For how long GPUs were held by pods that stood ready: charged to nobody, shown to admins.

Owns the sums of each day (UTC), which outlive the service.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

from gpulease.errors import GPULeaseError
from gpulease.providers.base import WarmPods
from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.metrics import Metrics

log = logging.getLogger(__name__)

#: The store's note of the sums.
_NOTE = "warm_seconds"
#: Days for which sums are kept.
_KEPT = 400
#: Seconds between two looks.
EVERY = 60.0


class WarmTime:
    """The sums.

    Args:
        ledger: reaches the store.
        pods: where pods stand ready, if anywhere.
        clock: the time, UTC.
    """

    def __init__(
        self,
        ledger: Ledger,
        pods: WarmPods | None,
        metrics: Metrics,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._ledger = ledger
        self._pods = pods
        self._metrics = metrics
        self._clock = clock
        self._days: dict[str, dict[str, float]] = {}  # day -> class -> seconds

    async def load(self) -> None:
        """Read the sums from the store."""
        store = self._ledger.store
        self._days = json.loads(await self._ledger.call(store.noted, _NOTE) or "{}")

    def hours(self, since: date, until: date) -> dict[str, float]:
        """Return the hours of GPUs by class, of whole days from ``since`` to ``until``."""
        found: dict[str, float] = {}
        for day, classes in self._days.items():
            if since <= date.fromisoformat(day) <= until:
                for name, seconds in classes.items():
                    found[name] = found.get(name, 0.0) + seconds / 3600
        return {name: round(found[name], 4) for name in sorted(found)}

    async def watch(self) -> None:
        """Add up and write down, until cancelled; what is not stored is stored later."""
        while True:
            await asyncio.sleep(EVERY)
            try:
                await self.look()
            except GPULeaseError as error:
                log.warning("the time of pods that stand ready was not stored: %s", error.sentence)

    async def look(self) -> None:
        """Add what passed since the last look, and write it down.

        Raises:
            GPULeaseError: the store does not take it.
        """
        more = self._pods.seconds() if self._pods is not None else {}
        today = self._clock().date()
        sums = self._days.setdefault(today.isoformat(), {}) if more else {}
        for name, seconds in more.items():
            sums[name] = sums.get(name, 0.0) + seconds
            self._metrics.stood_ready(name, seconds)
        if more:
            oldest = (today - timedelta(days=_KEPT)).isoformat()
            self._days = {day: held for day, held in self._days.items() if day >= oldest}
            await self._ledger.call(self._ledger.store.note, _NOTE, json.dumps(self._days))
