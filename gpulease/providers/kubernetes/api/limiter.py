"""Bounds how fast pods are created, so that a class of 300 does not flood the API server.

Owns a token bucket and nothing else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class Limiter:
    """Lets ``rate`` calls a second through, and a burst of as many.

    Args:
        rate: calls a second, above 0.
        burst: how many may go at once after a quiet time; by default one second's worth.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        rate: float = 10.0,
        burst: int | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if rate <= 0:
            raise ValueError("a rate is above 0")
        self._rate = rate
        self._burst = max(1, round(rate) if burst is None else burst)
        self._clock = clock
        self._left = float(self._burst)
        self._at = clock()

    def take(self) -> float:
        """Take one call's place; return the seconds until it may go, 0 for at once.

        Places are given in the order in which they are taken.
        """
        now = self._clock()
        self._left = min(float(self._burst), self._left + (now - self._at) * self._rate)
        self._at = now
        self._left -= 1.0
        return max(0.0, -self._left / self._rate)

    async def wait(self) -> None:
        """Wait for one call's turn."""
        seconds = self.take()
        if seconds:
            await asyncio.sleep(seconds)
