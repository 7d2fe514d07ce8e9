"""Takes old history out of the store while the service serves: small batches with pauses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from gpulease.errors import GPULeaseError
from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.reservations.commands import Reservations
from gpulease.store import Ages

log = logging.getLogger(__name__)

#: Seconds between two looks for what is old.
EVERY = 60.0
#: Of the time, batches take this share at most while there is much to do: others write, too.
_SHARE = 0.2


class Retention:
    """Looks once a minute, and continues while something is left."""

    def __init__(
        self,
        ledger: Ledger,
        reservations: Reservations,
        ages: Ages,
        *,
        every: float = EVERY,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._ledger = ledger
        self._reservations = reservations
        self._ages = ages
        self._every = every
        self._clock = clock

    async def run(self) -> None:
        """Run until cancelled; while the store is away, wait."""
        while True:
            try:
                gone = await self.once()
                if gone:
                    log.info("%d rows of old history are gone", gone)
            except GPULeaseError as error:
                log.warning("old history stays: %s", error.sentence, extra={"reason": error.reason})
            await asyncio.sleep(self._every)

    async def once(self) -> int:
        """Take away what is old now, all of it; return how many rows.

        Raises:
            GPULeaseError: the store cannot be used.
        """
        loop, gone = asyncio.get_running_loop(), 0
        while True:
            began = loop.time()
            batch = await self._batch(self._clock())
            if not batch:
                return gone
            gone += batch
            await asyncio.sleep((loop.time() - began) * (1 / _SHARE - 1))

    async def _batch(self, now: datetime) -> int:
        over = now - timedelta(days=self._ages.reservations)
        return await self._reservations.forget(over) or await self._ledger.call(
            self._ledger.store.sweep, now, self._ages
        )
