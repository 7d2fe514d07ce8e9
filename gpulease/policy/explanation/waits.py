"""How far waits ended from what had been expected: between which times 8 of 10 requests start.

Owns the rule: what was expected of a request is noted when it is first seen waiting, and compared
with its wait once it starts.  The interval lies between the tenth and the ninetieth of a hundred
such ratios of late.  So what the forecast leaves out (Keeps, people who come back, idle GPUs that
are used again, those who give up) is in it as it has been lately.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import log
from typing import Final

from gpulease.policy.explanation.forecast import SLACK, Forecast, forecasts
from gpulease.policy.model import LeaseState, Snapshot

#: So many of the last waits count; with fewer than ``LEAST`` nothing is said.
MOST: Final = 200
LEAST: Final = 20
#: The part that starts before, and after, the interval.
OUTSIDE: Final = 0.1


@dataclass(frozen=True)
class EndedWait:
    """A wait that is over, and what had been said of it when it was first seen."""

    since: datetime
    until: datetime
    said: Forecast


class ExpectedWaits:
    """Compares what was expected of requests with what came.

    Args:
        spread: what was found before, which holds until enough waits have ended here.
    """

    def __init__(self, spread: tuple[float, float] | None = None) -> None:
        self._said: dict[str, tuple[datetime, Forecast]] = {}
        self._ratios: deque[float] = deque(maxlen=MOST)
        self.spread = spread

    def look(
        self,
        snapshot: Snapshot,
        told: Callable[[Snapshot], Mapping[str, Forecast]] = forecasts,
    ) -> list[EndedWait]:
        """Note who waits; return the waits of those who have started since the last look.

        ``told``: what those who wait are told; who is told nothing yet is noted later.
        """
        waiting = {x.id for x in snapshot.leases if x.state is LeaseState.QUEUED}
        over = self._said.keys() - waiting
        ended = [
            EndedWait(since, snapshot.now, said)
            for lease in (snapshot.leases if over else ())
            if lease.id in over and lease.state is not LeaseState.ENDED
            for since, said in (self._said[lease.id],)
        ]
        for lease_id in over:
            del self._said[lease_id]
        new = waiting - self._said.keys()
        found = told(snapshot) if new else {}
        self._said |= {each: (snapshot.now, found[each]) for each in new & found.keys()}
        self._count(ended)
        return ended

    def _count(self, ended: list[EndedWait]) -> None:
        for each in ended:
            waited = (each.until - each.since).total_seconds()
            if waited < 0:  # the clock was set back meanwhile: nobody knows how long it was
                continue
            if each.said.expected_start is not None:
                expected = (each.said.expected_start - each.since).total_seconds()
                self._ratios.append(log((waited + SLACK) / (max(0.0, expected) + SLACK)))
        if ended and len(self._ratios) >= LEAST:
            ordered = sorted(self._ratios)
            outside = round(OUTSIDE * (len(ordered) + 1))
            self.spread = ordered[outside - 1], ordered[-outside]
