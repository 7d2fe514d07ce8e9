"""One simulated person: what they do next, and what they were given.

The order is think, ask, wait, use, think again, leave; a longer wait moves all that follows.  The
replay tells a person what happened.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import isfinite

from gpulease.simulate.trace import Session


class Phase(Enum):
    """What a person does."""

    THINKING = "thinking"
    WAITING = "waiting"
    BUSY = "busy"
    GONE = "gone"


@dataclass(slots=True)
class Person:
    """One session in a replay; all times are seconds from its beginning.

    Attributes:
        think: factor of the time to think.
        serial: counts changes of mind: what was agreed for an older one is void.
        next: the number of the present burst, or of the one that is thought about.
        left: seconds of GPU use that are left of it.
        lease: the id of the present lease or request.
        asked: since when the person waits.
        entered: when they asked first.
        began: when the present use began.
        stopped: when the GPU was used last.
        taken: when a lease was taken from them as idle, until they ask again.
        had: whether they have had a GPU.
        gone_at: when they closed the notebook.
    """

    session: Session
    think: float = 1.0
    phase: Phase = Phase.THINKING
    serial: int = 0
    next: int = 0
    left: float = 0.0
    lease: str | None = None
    asked: float | None = None
    entered: float | None = None
    began: float = 0.0
    stopped: float | None = None
    taken: float | None = None
    had: bool = False
    gone_at: float | None = None

    def __post_init__(self) -> None:
        self.left = self.session.bursts[0].busy

    def first(self) -> float:
        """Return when the first burst is wanted; nobody looks for a seat while thinking."""
        burst = self.session.bursts[0]
        return self.session.start + burst.think

    def wants(self, at: float) -> None:
        """Ask for a GPU."""
        self.phase = Phase.WAITING
        self.asked = at
        self.entered = at if self.entered is None else self.entered
        self.serial += 1

    def begins(self, at: float) -> float:
        """Use the GPU from now on; return when the burst is over if nobody interrupts it."""
        self.phase = Phase.BUSY
        self.began = at
        self.asked = None
        self.had = True
        self.serial += 1
        return at + self.left

    def stops(self, at: float) -> float:
        """Be interrupted, or done; return the seconds used."""
        used = min(self.left, at - self.began)
        self.left -= used
        self.stopped = at
        self.phase = Phase.THINKING
        self.serial += 1
        return used

    def goes_on(self, at: float) -> tuple[float, bool]:
        """Return when the next thing is due, and whether it is to leave."""
        self.next += 1
        bursts = self.session.bursts
        if self.next >= len(bursts):
            return at + self.session.linger * self.think, True
        self.left = bursts[self.next].busy
        return at + bursts[self.next].think * self.think, False

    def leaves(self, at: float) -> None:
        """Close the notebook."""
        self.phase = Phase.GONE
        self.gone_at = at
        self.serial += 1

    @property
    def gives_up_after(self) -> float | None:
        """Seconds after which a wait is given up, ``None`` for never."""
        patience = self.session.patience
        return patience if isfinite(patience) else None
