"""What home wants collected of a cell that is about to run, as soon as it has ended.

Owns the wait for the cell's end: the question comes with the cell, and where nothing can be new
the answer goes back with the cell's reply, so that neither costs a message of its own.  Owns also
the questions that came by one way before an acknowledgement that home sent sooner by another.  It
knows nothing of values.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Container, Mapping
from typing import Any

from gpulease.wire.message import Message

#: The answer where nothing is new.
NOTHING_NEW: dict[str, Any] = {"current": True, "threads": []}


def asked_early(message: Message, offered: Container[str]) -> bool:
    """Say whether home had acknowledged an offer before it asked, and that has not come yet."""
    return message.body.get("after") in offered


class Expected:
    """The questions that wait for a cell's end; ``later`` takes those that must be looked into."""

    def __init__(self, later: Callable[[Message], None]) -> None:
        self._later = later
        self._waiting: collections.deque[Message] = collections.deque()
        self._early: list[Message] = []
        self._told: int | None = None
        self._last: int | None = None

    def add(self, said: Mapping[str, Any]) -> None:
        """Take what ``Home.expect_gpu_cell`` said (any thread)."""
        self._last = int(said["number"])
        body = {key: said.get(key) for key in ("touched", "after", "room")}
        self._waiting.append(Message(self._last, "collect", body))

    def clear(self) -> None:
        """Another home asks from here on."""
        self._waiting.clear()
        self._told = self._last = None

    def kept_early(self, message: Message, offered: Container[str]) -> bool:
        """Keep a question that came too early; say whether it did (under the transfer lock).

        What home took and put together is not known here yet: the look would part it.
        """
        early = asked_early(message, offered)
        if early:
            self._early.append(message)
        return early

    def acknowledged(self) -> None:
        """An acknowledgement came: what was kept is asked again (under the transfer lock)."""
        early, self._early = self._early, []
        for message in early:
            self._later(message)

    def forget_early(self) -> None:
        """Home greets anew (under the transfer lock): what it asked before has no asker."""
        self._early.clear()

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
