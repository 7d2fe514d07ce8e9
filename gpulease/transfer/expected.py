"""What home wants collected of a cell that is about to run, as soon as it has ended.

Owns the wait for the cell's end: the question comes with the cell, and where nothing can be new
the answer goes back with the cell's reply, so that neither costs a message of its own.  It knows
nothing of values.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import Any

from .message import Message

#: The answer where nothing is new.
NOTHING_NEW: dict[str, Any] = {"current": True, "threads": []}


class Expected:
    """The questions that wait for a cell's end; ``later`` takes those that must be looked into."""

    def __init__(self, later: Callable[[Message], None]) -> None:
        self._later = later
        self._waiting: collections.deque[Message] = collections.deque()
        self._told: int | None = None
        self._last: int | None = None

    def add(self, said: Mapping[str, Any]) -> None:
        """Take what ``Home.expect_gpu_cell`` said (any thread)."""
        self._last = int(said["number"])
        body = {"touched": said["touched"], "after": said.get("after", "")}
        self._waiting.append(Message(self._last, "collect", body))

    def clear(self) -> None:
        """Another home asks from here on."""
        self._waiting.clear()
        self._told = self._last = None

    def ended(self, nothing_new: Callable[[Message], bool]) -> int | None:
        """The cell ended (any thread); return the question that is answered by that alone."""
        told = None
        while (message := self._next()) is not None:
            if nothing_new(message):
                told = self._told = message.number
            else:
                self._later(message)
        return told

    def _next(self) -> Message | None:
        try:
            return self._waiting.popleft()
        except IndexError:
            return None

    def due(self, said: Mapping[str, Any]) -> bool:
        """Home saw the cell end without an answer to this (any thread): it may not have come.

        Returns whether a reply told the answer, which home has not seen.
        """
        number = int(said["number"])
        if number not in (self._last, self._told):
            self.add(said)
        self.ended(lambda _: False)
        return number == self._told
