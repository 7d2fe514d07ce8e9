"""The kernel that runs a companion's cells, one request after the other.

It differs from ipykernel: cells are counted as home counts them, the transfer side and the
supervisor are notified when user code runs, what home wants collected travels with the request and
its reply, and nothing is published that home already has.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ipykernel.iostream import OutStream
from ipykernel.ipkernel import IPythonKernel

from gpulease.channel.pair import ChildEnd
from gpulease.companion.loopwork import user_code
from gpulease.protocol.control import EXECUTE_METADATA, ReplyMetadata
from gpulease.sides.magics import magics_of
from gpulease.sides.sources import learn
from gpulease.transfer.api import Away

_TICK_SECONDS = 0.1


class CellWatch:
    """Tells supervisor and transfer side when user code runs on the main thread."""

    def __init__(self, link: ChildEnd) -> None:
        self._link = link
        self._running = 0
        self.away: Away | None = None

    def begin(self, source: str) -> None:
        """A cell or callback starts."""
        self._running += 1
        self._tell()
        if self.away is not None:
            self.away.cell_started(source)

    def end(self, execution_count: int | None, result: Any) -> int | None:
        """The cell or callback ended; ``result`` is what the cell would display.

        Returns what goes home with its reply (``Away.cell_ended``).
        """
        told = None
        if self.away is not None:
            told = self.away.cell_ended(execution_count, result)
        self._running -= 1
        self._tell()
        return told

    def _tell(self) -> None:
        with suppress(OSError):  # the supervisor is gone: this process ends in a moment
            self._link.push({"type": "cells", "cells": self._running})


class NoShellThread:
    """Stands where ipykernel keeps the thread that it has between the shell channel and the cells.

    False, so that messages come to the main thread directly; but which thread that is, ipykernel
    asks of it where a cell awaits.
    """

    def __init__(self) -> None:
        self.parent_thread = threading.main_thread()

    def __bool__(self) -> bool:
        return False


class CompanionKernel(IPythonKernel):
    """An IPython kernel whose cells are counted and watched."""

    shell: Any
    _supports_kernel_subshells = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]
        # ipykernel waits here so that output comes before the reply; home waits for both anyway.
        self._execute_sleep = 0.0
        self.watch: CellWatch | None = None
        self._result: Any = None
        self._nothing_new: int | None = None
        self._magics = magics_of(self.shell)
        self.shell.events.register("post_run_cell", self._keep_result)
        self._show_error = self.shell.showtraceback
        self.shell.showtraceback = self._explain_error
        self._print_usage_error = self.shell.show_usage_error
        self.shell.show_usage_error = self._show_usage_error
        for name in ("comm_open", "comm_msg", "comm_close"):
            self.shell_handlers[name] = self._watched(self.shell_handlers[name])

    def _keep_result(self, result: Any) -> None:
        self._result = getattr(result, "result", None)

    def _explain_error(self, exc_tuple: Any = None, *args: Any, **kwargs: Any) -> None:
        error = exc_tuple[1] if exc_tuple else sys.exc_info()[1]
        if error is not None and self.watch is not None and self.watch.away is not None:
            sentence = self.watch.away.explain_error(error)
            if sentence:
                error.add_note(sentence)
        self._show_error(exc_tuple, *args, **kwargs)

    def _show_usage_error(self, error: Any) -> None:
        """Send IPython's complaint of a magic as the error that it is, without a traceback.

        Of a text home could not tell whether it is the cell's own error, which home shows itself.
        """
        if isinstance(sys.stderr, OutStream):
            self.shell._showtraceback(type(error), error, [])  # noqa: SLF001
        else:
            self._print_usage_error(error)

    def _watched(self, handler: Callable[..., Any]) -> Callable[..., Awaitable[None]]:
        async def watched(stream: Any, ident: Any, message: Any) -> None:
            assert self.watch is not None
            self.watch.begin("")
            try:
                with user_code():
                    found = handler(stream, ident, message)
                    if asyncio.iscoroutine(found):
                        await found
            finally:
                self.watch.end(None, None)

        return watched

    async def execute_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Run under home's execution count."""
        said = (parent.get("metadata") or {}).get(EXECUTE_METADATA) or {}
        count = said.get("execution_count")
        if isinstance(count, int) and count > 0:
            self.shell.execution_count = count
        for cell in said.get("cells") or ():
            learn(self.shell, cell["name"], cell["execution_count"], cell["text"])
        self._nothing_new = None
        if "expect" in said and self.watch is not None and self.watch.away is not None:
            self.watch.away.expect(said["expect"])
        await super().execute_request(stream, ident, parent)  # type: ignore[no-untyped-call]

    def finish_metadata(self, parent: Any, metadata: Any, reply_content: Any) -> Any:
        """Let the reply say what the cell's end answered already, and which magics it made."""
        said = ReplyMetadata()
        if self._nothing_new is not None:
            said["nothing_new"] = self._nothing_new
        before, self._magics = self._magics, magics_of(self.shell)
        new = [magic for magic, made in self._magics.items() if before.get(magic) is not made]
        if new and not parent["content"].get("silent"):  # else home has told of them itself
            said["magics"] = new
        if said:
            metadata[EXECUTE_METADATA] = said
        return super().finish_metadata(parent, metadata, reply_content)  # type: ignore[no-untyped-call]

    def _publish_execute_input(self, *_: Any) -> None:
        """Publish no input: it is home that front ends listen to."""

    def _publish_status(self, status: str, channel: str, parent: Any = None) -> None:
        """Publish when a request is done; that one has begun home knows."""
        if status != "busy":
            super()._publish_status(status, channel, parent)  # type: ignore[no-untyped-call]

    async def do_execute(
        self,
        code: str,
        silent: bool,
        store_history: bool = True,
        user_expressions: dict[str, str] | None = None,
        allow_stdin: bool = False,
        *,
        cell_meta: dict[str, Any] | None = None,
        cell_id: str | None = None,
    ) -> dict[str, Any]:
        """Run a cell, watched."""
        assert self.watch is not None
        self._result = None
        self.watch.begin(code)
        # An interrupt during `await` is noticed when the loop turns, so it is made to turn.
        ticker = asyncio.ensure_future(_tick())
        count = self.shell.execution_count
        try:
            with user_code():
                reply: dict[str, Any] = await super().do_execute(  # type: ignore[no-untyped-call]
                    code, silent, store_history, user_expressions, allow_stdin,
                    cell_meta=cell_meta, cell_id=cell_id,
                )  # fmt: skip
        finally:
            ticker.cancel()
            result, self._result = self._result, None
            with _past_interrupts():
                self._nothing_new = self.watch.end(count, result)
        return reply


@contextmanager
def _past_interrupts() -> Iterator[None]:
    """Drop an interrupt that comes when the cell has ended: it would take its reply away."""
    saved = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, saved)


async def _tick() -> None:
    while True:  # noqa: ASYNC110 - the turning of the loop is the purpose
        await asyncio.sleep(_TICK_SECONDS)
