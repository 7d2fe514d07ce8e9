"""What the wire's thread waits for beside its socket, and what it does when that can be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import zmq


class Polled:
    """File descriptors with what is done for each; the wire's thread only."""

    def __init__(self, poller: zmq.Poller) -> None:
        self._poller = poller
        self._doors: dict[int, Callable[[], None]] = {}

    def open(self, file: int, door: Callable[[], None]) -> None:
        """Call ``door`` whenever ``file`` can be read."""
        self._doors[file] = door
        self._poller.register(file, zmq.POLLIN)

    def shut(self, file: int) -> None:
        """Look at ``file`` no longer."""
        if self._doors.pop(file, None) is not None:
            self._poller.unregister(file)

    def look(self, events: dict[Any, int]) -> None:
        """Do what the poller's events ask for."""
        for file in self._doors.keys() & events.keys():
            if file in self._doors:  # one that was closed by another's doing is none
                self._doors[file]()
