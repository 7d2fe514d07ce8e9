"""The virtual clock of a replay, and what is due when."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import datetime, timedelta
from math import ceil


class Clock:
    """Seconds since the trace's beginning, the instant they stand for, and what comes.

    Args:
        begin: the instant of second 0.
        length: seconds after which nothing happens any more.
        passing: called with each new time before anything happens at it.
    """

    def __init__(self, begin: datetime, length: float, passing: Callable[[float], None]) -> None:
        self.begin = begin
        self.length = length
        self.t = 0.0
        self.now = begin
        self._passing = passing
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Let something happen at a time, or now where that is over; in the order of asking."""
        self._count += 1
        heapq.heappush(self._events, (max(when, self.t), self._count, what))

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        """Let something happen some seconds from now."""
        self.at(self.t + seconds, what)

    def step(self, grain: float) -> bool:
        """Let all happen that is due next, within one grain of time; tell whether there was any."""
        if not self._events or self._events[0][0] >= self.length:
            return False
        until = min(ceil(self._events[0][0] / grain) * grain, self.length)
        while self._events and self._events[0][0] <= until:
            at, _, what = heapq.heappop(self._events)
            self.go(at)
            what()
        self.go(until)
        return True

    def go(self, at: float) -> None:
        """Let the time pass until ``at``."""
        if at > self.t:
            self._passing(at)
            self.t = at
            self.now = self.when(at)

    def when(self, seconds: float) -> datetime:
        """Return the instant of a second."""
        return self.begin + timedelta(seconds=seconds)

    def seconds(self, at: datetime) -> float:
        """Return the second of an instant."""
        return (at - self.begin).total_seconds()
