"""One pass of a mirror: what it did, and how its caller follows and stops it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from gpulease.mirror.entries import Left
from gpulease.mirror.plan import Conflict


@dataclass
class PassReport:
    """What one pass did.

    Attributes:
        sent, received: files and bytes that travelled.
        written, removed: paths that changed at home.
        conflicts: what both sides had changed.
        left: what is on one side only, and why.
        refusal: why nothing is mirrored at all; "" when it is.
        paths, total: how many paths home has, and bytes of its files.
        seconds: how long it took.
    """

    sent: int = 0
    sent_bytes: int = 0
    received: int = 0
    received_bytes: int = 0
    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    refusal: str = ""
    paths: int = 0
    total: int = 0
    seconds: float = 0.0


class StoppedError(Exception):
    """Whoever asked for the pass does not wait for it any more."""


class Job:
    """One pass, as its thread and whoever waits for it see it."""

    def __init__(self) -> None:
        self.report = PassReport()
        self.error: BaseException | None = None
        self.text = ""
        self.done = threading.Event()
        self.stop = threading.Event()

    def show(self, text: str) -> None:
        """Say what is done now; a good moment to stop.

        Raises:
            StoppedError: nobody waits any more.
        """
        self.text = text
        if self.stop.is_set():
            raise StoppedError
