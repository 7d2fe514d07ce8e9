"""A conversation on an event loop."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from gpulease.channel.conversation import (
    Answered,
    Called,
    Cancelled,
    Conversation,
    Malformed,
    Message,
    Pushed,
)
from gpulease.errors import GPULeaseError

#: Answers a call: (name, arguments).  A ``GPULeaseError`` goes back as a problem.
Handler = Callable[[str, Message], Awaitable[Any]]

log = logging.getLogger("gpulease.channel")


class AsynchronousEnd:
    """One end of a channel.  A carrier gives it what arrives, on the event loop.

    Args:
        send: sends one message without waiting; what cannot be sent any more is dropped, as the
            carrier tells that the connection is lost.
        pushed: gets what the other end tells without being asked.
        called: answers calls, each in a task of its own; a call that is taken back is cancelled.
        failed: what the other end's person reads where answering fails, such as "The notebook
            server failed"; the rest goes to the log, under a reference that both have.
    """

    def __init__(
        self,
        send: Callable[[Message], None],
        *,
        called: Handler | None = None,
        pushed: Callable[[Message], Any] = lambda _: None,
        failed: str = "The other process failed",
    ) -> None:
        self._send = send
        self._pushed = pushed
        self._called = called
        self._failed = failed
        self._conversation: Conversation[asyncio.Future[Any]] = Conversation()
        self._tasks: dict[asyncio.Task[None], Called] = {}
        self._gone: GPULeaseError | None = None

    async def call(self, name: str, args: Mapping[str, Any]) -> Any:
        """Return the other end's answer; a caller that is cancelled takes the call back.

        Raises:
            GPULeaseError: its problem, or what ``lost`` was given.
        """
        if self._gone is not None:
            raise self._gone
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        number, message = self._conversation.call(name, dict(args), future)
        self._send(message)
        try:
            return await future
        except asyncio.CancelledError:
            self._send({"cancel": number})
            raise
        finally:
            self._conversation.forget(number)

    def notify(self, name: str, args: Mapping[str, Any]) -> None:
        """Tell something that needs no answer."""
        self._send({"call": name, "args": dict(args)})

    def push(self, message: Mapping[str, Any]) -> None:
        """Send a message that is no call."""
        self._send(dict(message))

    def received(self, message: Message) -> Any:
        """Take what arrived; return what ``pushed`` did, where that was asked."""
        event = self._conversation.received(message)
        if isinstance(event, Answered):
            if event.error is None and not event.waiter.done():
                event.waiter.set_result(event.value)
            elif event.error is not None and not event.waiter.done():
                event.waiter.set_exception(event.error)
        elif isinstance(event, Pushed):
            return self._pushed(event.message)
        elif isinstance(event, Called):
            task = asyncio.ensure_future(self._answer(event))
            self._tasks[task] = event
            task.add_done_callback(self._tasks.pop)
        elif isinstance(event, Cancelled):
            for task, call in self._tasks.items():
                if call is event.call:
                    task.cancel()
        elif isinstance(event, Malformed):
            self._send(event.answer)
        return None

    def found(self) -> None:
        """There is a connection again."""
        self._gone = None

    def lost(self, error: GPULeaseError) -> None:
        """The connection broke: calls fail until ``found``.

        What is being answered is done, and nobody hears of it.
        """
        self._gone = error
        for future in self._conversation.lost():
            if not future.done():
                future.set_exception(error)

    @property
    def answering(self) -> bool:
        """Whether a call of the other end's is being answered."""
        return bool(self._tasks)

    def close(self) -> None:
        """Answer nothing any more."""
        for task in list(self._tasks):
            task.cancel()

    async def _answer(self, call: Called) -> None:
        try:
            if self._called is None:
                raise GPULeaseError("malformed", f"This end knows no call {call.name!r}.")
            answer = self._conversation.answer(call, await self._called(call.name, call.args))
        except GPULeaseError as error:
            answer = self._conversation.refuse(call, error)
        except Exception:  # a border: the caller gets an answer, the log the failure, never a hang
            reference = secrets.token_hex(4)
            log.exception("the call %s failed, reference %s", call.name, reference)
            answer = self._conversation.refuse(call, self._internal(reference))
        if answer is not None:
            self._send(answer)

    def _internal(self, reference: str) -> GPULeaseError:
        return GPULeaseError(
            "internal",
            f"{self._failed} (reference {reference}).",
            next_step="Try again; if it stays, tell your admin the reference.",
            numbers={"reference": reference},
            status=500,
        )
