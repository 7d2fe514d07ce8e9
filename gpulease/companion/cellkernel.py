"""The kernel that runs a companion's cells, one request after the other.

It differs from ipykernel: cells are counted as home counts them, the transfer side and the
supervisor are notified when user code runs, and nothing is published that home already has.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ipykernel.iostream import OutStream
from ipykernel.ipkernel import IPythonKernel

from gpulease.channel.pair import ChildEnd
from gpulease.companion.full_device import explain
from gpulease.errors import GPULeaseError
from gpulease.protocol.control import EXECUTE_METADATA, ReplyMetadata
from gpulease.sides.magics import magics_of
from gpulease.sides.names.variables import user_names
from gpulease.sides.sources import learn

if TYPE_CHECKING:
    from gpulease.transfer.away import AwaySide

_TICK_SECONDS = 0.1


class CellWatch:
    """Tells supervisor and transfer side when user code runs on the main thread."""

    def __init__(self, link: ChildEnd) -> None:
        self._link = link
        self._running = 0
        self.away: AwaySide | None = None

    def begin(self, source: str) -> None:
        """A cell or callback starts."""
        self._running += 1
        self._tell()
        if self.away is not None:
            self.away.cell_started(source)

    def end(self, execution_count: int | None, result: Any) -> None:
        """The cell or callback ended; ``result`` is what the cell would display."""
        if self.away is not None:
            self.away.cell_ended(execution_count, result)
        self._running -= 1
        self._tell()

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
        if error is not None:
            space = self.shell.user_ns
            names = user_names(space, self.shell.user_ns_hidden)
            if sentence := explain({name: space[name] for name in names}, error):
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
        await super().execute_request(stream, ident, parent)  # type: ignore[no-untyped-call]

    def finish_metadata(self, parent: Any, metadata: Any, reply_content: Any) -> Any:
        """Let the reply say which magics the cell made."""
        said = ReplyMetadata()
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
                self.watch.end(count, result)
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


_USERS: ContextVar[bool] = ContextVar("gpulease_user_code", default=False)


@contextmanager
def user_code() -> Iterator[None]:
    """Mark what is made within, and what that makes later, as the user's."""
    token = _USERS.set(True)
    try:
        yield
    finally:
        _USERS.reset(token)


class LoopWork:
    """Counts the tasks and timers that user code left on the main thread's loop; any thread asks.

    What is made while user code runs, or later by that, carries the mark of its context, so that it
    differs from the kernel's own.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Any = loop
        # Weak: a task that nobody holds vanishes here as it does in a plain kernel.
        self._tasks: WeakSet[asyncio.Future[Any]] = WeakSet()
        self._before: Any = loop.get_task_factory()
        loop.set_task_factory(self._make)

    @property
    def alive(self) -> int:
        """How many tasks of the user live; where there is none, how many timers wait."""
        return len(self._tasks) or self._timers()

    def _make(self, loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> Any:
        if self._before is not None:
            task = self._before(loop, work, **more)
        else:
            task = asyncio.Task(work, loop=loop, **more)
        context = more.get("context")
        if _USERS.get() if context is None else context.get(_USERS, False):
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return task

    def _timers(self) -> int:
        # asyncio tells of its timers nowhere else; another kind of loop has none to show.
        waiting = list(getattr(self._loop, "_scheduled", ()))
        return sum(1 for each in waiting if not each.cancelled() and _is_users(each))


def _is_users(handle: Any) -> bool:
    context = getattr(handle, "_context", None)
    return context is not None and bool(context.get(_USERS, False))


class AwayOut(dict[int, Any]):
    """IPython's ``Out`` of a companion, which has the results of its own cells.

    Those of the notebook come with a cell whose text names them: one by its number, else all.
    """

    def __init__(self, shell: Any) -> None:
        super().__init__(shell.user_ns["_oh"])
        self._shell = shell

    def __missing__(self, key: object) -> Any:
        """Say where the result of an earlier cell may be."""
        if not self._may_be_home(key):
            raise KeyError(key)
        raise GPULeaseError(
            "result_at_home",
            f"Out[{key}] is not on the GPU; if that cell had a result, it is in your notebook.",
            next_step=f"Write Out[{key}] with its number into the GPU cell itself, then it comes"
            " with it; or give the value a name where it is made.",
        )

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or (self._may_be_home(key) and self.__missing__(key))

    def get(self, key: int, default: Any = None) -> Any:
        """Return ``Out[key]`` or ``default``."""
        return self[key] if key in self else default  # noqa: SIM401 - that is what get is here

    def become(self, content: dict[int, Any]) -> None:
        """Hold what the notebook's ``Out`` holds, in its order."""
        self.clear()
        self.update(content)

    def _may_be_home(self, key: object) -> bool:
        return isinstance(key, int) and 0 < key < self._shell.execution_count


def install_out(shell: Any) -> None:
    """Give a companion's shell this ``Out``."""
    own = AwayOut(shell)
    for space in (shell.user_ns, shell.user_ns_hidden):
        space["_oh"] = space["Out"] = own
    shell.history_manager.output_hist = own


class QuietStream(OutStream):
    """The companion's stdout or stderr, for which flushing what was flushed already costs nothing.

    ipykernel flushes four times for each cell, and each time waits for another thread.
    """

    _written = False

    def write(self, string: str) -> Any:
        """Write; any thread, also those that copy what subprocesses write."""
        self._written = True
        return super().write(string)

    def flush(self) -> None:
        """Send what was written, in order with all else that is shown, and wait until it left."""
        if self._written:
            # First: what another thread writes meanwhile is for the next flush.
            self._written = False
            super().flush()  # type: ignore[no-untyped-call]
