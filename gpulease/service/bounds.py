"""How much of the service one person may take: changes in a time, and open channels.

Owns the counting.  Refuses to know HTTP and who is asking.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gpulease.errors import GPULeaseError

#: Live channels of one person's pages.
PAGES_MAX = 40
#: Channels of one notebook server or one lease's supervisor: one, and those that broke of late.
PEERS_MAX = 4
#: Above so many, people whose bucket is full again are forgotten.
_REMEMBERED = 1000
_MINUTE = 60.0


@dataclass
class _Bucket:
    left: float
    at: float


class ChangeRate:
    """A bucket of tokens for each person: a minute's changes at once, then as they come back.

    Args:
        per_minute: how many changes one person may make in a minute, at present.
        clock: monotonic, seconds.
    """

    def __init__(
        self, per_minute: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}

    def take(self, who: str) -> None:
        """Count one change.

        Raises:
            GPULeaseError: ``too_many_changes`` (429); ``retry_after`` is in seconds.
        """
        now, most = self._clock(), float(self._per_minute())
        if len(self._buckets) > _REMEMBERED:
            self._buckets = {k: b for k, b in self._buckets.items() if now - b.at < _MINUTE}
        bucket = self._buckets.setdefault(who, _Bucket(most, now))
        bucket.left = min(most, bucket.left + (now - bucket.at) * most / _MINUTE)
        bucket.at = now
        if bucket.left < 1.0:
            seconds = math.ceil((1.0 - bucket.left) * _MINUTE / most)
            raise GPULeaseError(
                "too_many_changes",
                f"That is more than {most:.0f} changes in a minute.",
                next_step=f"Try again in {seconds} s.",
                numbers={"max": int(most), "retry_after": seconds},
                status=429,
            )
        bucket.left -= 1.0


class Channels:
    """The open live channels, counted by whose they are."""

    def __init__(self) -> None:
        self._open: Counter[tuple[str, ...]] = Counter()

    @contextmanager
    def counted(self, whose: tuple[str, ...], most: int) -> Iterator[None]:
        """Count one for as long as it is open.

        Raises:
            GPULeaseError: ``too_many_channels`` (429).
        """
        if self._open[whose] >= most:
            raise GPULeaseError(
                "too_many_channels",
                f"{most} live channels are open already, as many as may be.",
                next_step="Close some pages of the lease service, then try again.",
                numbers={"max": most, "retry_after": 10},
                status=429,
            )
        self._open[whose] += 1
        try:
            yield
        finally:
            self._open[whose] -= 1
            if not self._open[whose]:
                del self._open[whose]


class Bounds:
    """What one person may take of the service.

    Args:
        per_minute: how many changes one person may make in a minute, at present.
    """

    def __init__(self, per_minute: Callable[[], int]) -> None:
        self.changes = ChangeRate(per_minute)
        self.channels = Channels()
