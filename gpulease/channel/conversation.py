"""One end of a channel, without I/O: which calls wait for an answer, and which are being answered.

Not thread-safe and without a clock: a driver has those.  Whatever the other end sends (answers out
of order, twice, late or to nobody), each call ends exactly once.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gpulease.errors import GPULeaseError

Message = dict[str, Any]
W = TypeVar("W")


@dataclass(frozen=True, eq=False)
class Called:
    """The other end asks; without a number it wants no answer.

    Compared by identity: after a loss the other end may use the same number for another call.
    """

    number: int | None
    name: str
    args: dict[str, Any]


@dataclass(frozen=True)
class Cancelled:
    """The other end takes back a call that is being answered."""

    call: Called


@dataclass(frozen=True)
class Pushed:
    """The other end tells something."""

    message: Message


@dataclass(frozen=True)
class Answered(Generic[W]):
    """The answer to a call of this end, for whoever waits for it."""

    waiter: W
    value: Any
    error: GPULeaseError | None


@dataclass(frozen=True)
class Malformed:
    """The other end called in a way that nobody understands; ``answer`` says so."""

    answer: Message


class Conversation(Generic[W]):
    """The state of one end; ``W`` is what a driver keeps for whoever waits for an answer."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[int, W] = {}
        self._answering: dict[int, Called] = {}

    def call(self, name: str, args: Message, waiter: W) -> tuple[int, Message]:
        """Return the number of a new call, and the message to send."""
        number = next(self._numbers)
        self._waiting[number] = waiter
        return number, {"id": number, "call": name, "args": args}

    def forget(self, number: int) -> W | None:
        """Wait no longer; None where the call has ended already."""
        return self._waiting.pop(number, None)

    def received(
        self, message: Message
    ) -> Called | Cancelled | Pushed | Answered[W] | Malformed | None:
        """Take a message; None where it changes nothing (an answer to nobody, a repeated call)."""
        if "call" in message:
            return self._called(message)
        if "cancel" in message:
            number = message["cancel"]
            call = self._answering.pop(number, None) if isinstance(number, int) else None
            return None if call is None else Cancelled(call)
        if "id" in message and ("ok" in message or "problem" in message):
            return self._answered(message)
        return Pushed(message)

    def answer(self, call: Called, value: Any) -> Message | None:
        """Return the answer to send; None where nobody waits for it (any more)."""
        return self._finish(call, "ok", value)

    def refuse(self, call: Called, error: GPULeaseError) -> Message | None:
        """Return the refusal to send; None where nobody waits for it (any more)."""
        return self._finish(call, "problem", error.to_problem())

    def lost(self) -> list[W]:
        """The connection broke: return everyone who waited, and owe no answer any more."""
        waiting, self._waiting = list(self._waiting.values()), {}
        self._answering.clear()
        return waiting

    def _called(self, message: Message) -> Called | Malformed | None:
        number, args = message.get("id"), message.get("args") or {}
        numbered = number is None or (isinstance(number, int) and not isinstance(number, bool))
        if not numbered or not isinstance(message["call"], str) or not isinstance(args, dict):
            error = GPULeaseError("malformed", "A call needs a number, a name and its arguments.")
            return Malformed({"id": number, "problem": error.to_problem()})
        if number in self._answering:
            return None
        call = Called(number, message["call"], args)
        if number is not None:
            self._answering[number] = call
        return call

    def _answered(self, message: Message) -> Answered[W] | None:
        number = message["id"]
        waiter = self._waiting.pop(number, None) if isinstance(number, int) else None
        if waiter is None:
            return None
        if "problem" not in message:
            return Answered(waiter, message["ok"], None)
        problem = message["problem"]
        error = GPULeaseError.from_problem(problem if isinstance(problem, dict) else {})
        return Answered(waiter, None, error)

    def _finish(self, call: Called, outcome: str, value: Any) -> Message | None:
        if call.number is None or self._answering.get(call.number) is not call:
            return None
        del self._answering[call.number]
        return {"id": call.number, outcome: value}
