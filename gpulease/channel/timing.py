"""When a channel tries again, and when the other end counts as gone; the time is passed in."""

from __future__ import annotations

import random

#: Silence after which the other end of a CurveZMQ channel is taken for lost (seconds).
LOST_AFTER = 15.0


class BackOff:
    """Growing pauses between attempts, spread so that many processes do not come at once.

    Args:
        first: seconds of the first pause; each is twice the one before.
        longest: seconds that no pause exceeds, before it is spread.
    """

    def __init__(self, first: float = 0.2, longest: float = 10.0) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def pause(self, at_least: float = 0.0) -> float:
        """Return how long to wait before the next attempt; ``at_least``: the other end's wish."""
        now, self._next = self._next, min(self._longest, self._next * 2)
        return max(at_least, now * random.uniform(0.7, 1.3))

    def worked(self) -> None:
        """Begin with short pauses again."""
        self._next = self._first


class Heartbeat:
    """Whether the other end is still there, by when it was heard last (monotonic seconds).

    Silence counts only while somebody listens: a process that was stopped, or in which an
    extension held the interpreter for a minute, has answers waiting that it did not read.

    Args:
        lost_after: silence after which it is gone.
        back_within: how long it may take to come back after its connection broke.
        looks_every: how long it may take from one look to the next where all is well.
    """

    def __init__(
        self, now: float, lost_after: float, back_within: float, looks_every: float
    ) -> None:
        self._lost_after = lost_after
        self._back_within = back_within
        self._looks_every = looks_every
        self._heard = self._looked = now
        self._broken: float | None = None
        self.lost = False

    def heard(self, now: float) -> None:
        """The other end said something."""
        self._heard, self._broken = now, None

    def broke(self, now: float) -> None:
        """The connection broke; it may be made again."""
        self._broken = now if self._broken is None else self._broken

    def connected(self) -> None:
        """Somebody listens there (again), though nothing was said yet."""
        self._broken = None

    def just_lost(self, now: float) -> bool:
        """Look, and tell once that the other end is gone; it stays so."""
        absent = max(0.0, now - self._looked - self._looks_every)
        self._looked = now
        self._heard = min(now, self._heard + absent)
        silent = now - self._heard > self._lost_after
        if self._broken is not None:
            self._broken = min(now, self._broken + absent)
            silent = silent or now - self._broken > self._back_within
        if self.lost or not silent:
            return False
        self.lost = True
        return True
