"""A conversation that any thread may take part in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import Any

from gpulease.channel.conversation import Answered, Called, Conversation, Malformed, Message, Pushed
from gpulease.errors import GPULeaseError


class ThreadedEnd:
    """One end of a channel.  A carrier gives it what arrives, on a thread of its own.

    Args:
        send: sends one message; raises ``OSError`` where there is no connection.
        pushed: gets what the other end tells without being asked.
        gone: what calls fail with when the connection is lost.
        called: answers the other end's calls on the carrier's thread, at once or with a future; a
            ``GPULeaseError`` goes back as a problem.  None: this end answers no calls.
    """

    def __init__(
        self,
        send: Callable[[Message], None],
        pushed: Callable[[Message], None],
        gone: Callable[[], GPULeaseError],
        called: Callable[[str, Message], Any] | None = None,
    ) -> None:
        self._send = send
        self._pushed = pushed
        self._gone = gone
        self._called = called
        self._conversation: Conversation[Future[Any]] = Conversation()
        self._lock = threading.Lock()

    def start_call(self, name: str, args: Mapping[str, Any]) -> Future[Any]:
        """Send a call and return its future answer; cancelling it takes the call back."""
        future: Future[Any] = Future()
        with self._lock:
            number, message = self._conversation.call(name, dict(args), future)
        future.add_done_callback(partial(self._done, number))
        try:
            self._send(message)
        except OSError:
            _fail(future, self._gone())
        return future

    def notify(self, name: str, args: Mapping[str, Any]) -> None:
        """Tell something that needs no answer; lost when there is no connection."""
        with suppress(OSError):  # who reads the connection notices
            self._send({"call": name, "args": dict(args)})

    def push(self, message: Mapping[str, Any]) -> None:
        """Send a message that is no call; raises ``OSError`` when there is no connection."""
        self._send(dict(message))

    def received(self, message: Message) -> None:
        """Take what arrived."""
        with self._lock:
            event = self._conversation.received(message)
        if isinstance(event, Answered):
            if event.error is None:
                with suppress(InvalidStateError):  # cancelled in this very moment
                    event.waiter.set_result(event.value)
            else:
                _fail(event.waiter, event.error)
        elif isinstance(event, Pushed):
            self._pushed(event.message)
        elif isinstance(event, Called):
            self._answer(event)
        elif isinstance(event, Malformed):
            self._say(event.answer)

    def lost(self, error: GPULeaseError | None = None) -> None:
        """The connection broke: calls that wait fail."""
        with self._lock:
            waiting = self._conversation.lost()
        for future in waiting:
            _fail(future, error or self._gone())

    def _done(self, number: int, future: Future[Any]) -> None:
        with self._lock:
            waited = self._conversation.forget(number)
        if waited is not None and future.cancelled():
            self._say({"cancel": number})

    def _answer(self, call: Called) -> None:
        try:
            if self._called is None:
                raise GPULeaseError("malformed", f"This end knows no call {call.name!r}.")
            value = self._called(call.name, call.args)
        except GPULeaseError as error:
            self._refuse(call, error)
        else:
            if isinstance(value, Future):
                value.add_done_callback(partial(self._answer_later, call))
            else:
                self._give(call, value)

    def _answer_later(self, call: Called, future: Future[Any]) -> None:
        error = future.exception()
        if isinstance(error, GPULeaseError):
            self._refuse(call, error)
        elif error is None:
            self._give(call, future.result())
        else:
            self._refuse(call, GPULeaseError("internal", f"{type(error).__name__}: {error}"))

    def _give(self, call: Called, value: Any) -> None:
        with self._lock:
            answer = self._conversation.answer(call, value)
        self._say(answer)

    def _refuse(self, call: Called, error: GPULeaseError) -> None:
        with self._lock:
            answer = self._conversation.refuse(call, error)
        self._say(answer)

    def _say(self, message: Message | None) -> None:
        if message is not None:
            with suppress(OSError):
                self._send(message)


def _fail(future: Future[Any], error: BaseException) -> None:
    with suppress(InvalidStateError):  # whoever waited gave up already
        future.set_exception(error)
