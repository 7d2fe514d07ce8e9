"""Which names code that ran on this side may have reached since its last look."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from gpulease.sides.names.analysis import ANYWHERE, cell_use

#: Whose tasks run no code of the notebook's besides cells and callbacks, of which we are told.
_KNOWN = frozenset(
    {"anyio", "ipykernel", "IPython", "tornado", "zmq", "jupyter_client", "gpulease"}
)


class Reached:
    """Names that cells read or wrote; None where that is not known.

    ``threads`` says whether one runs that may be the notebook's.
    """

    def __init__(self, threads: Callable[[], bool]) -> None:
        self._threads = threads
        self._names: set[str] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def cell_begins(self, source: str) -> None:
        """A cell runs (main thread); of a callback there is no source, and nothing is known."""
        self._find_loop()
        use = cell_use(source)
        if not source or use.unbounded or ANYWHERE & use.reads:
            self._names = None
        elif self._names is not None:
            self._names = self._names | use.touched

    def anything(self) -> None:
        """Code ran of which we are not told which it is (any thread)."""
        self._names = None

    def take(self) -> set[str] | None:
        """Return the names and begin again: what they lead to is looked at now."""
        self._find_loop()
        names, self._names = self._names, set()
        if self._threads() or any(map(_may_run, self._tasks())):
            self._names = names = None
        return names

    def _find_loop(self) -> None:
        with contextlib.suppress(RuntimeError):  # another thread, or code that runs without one
            self._loop = asyncio.get_running_loop()

    def _tasks(self) -> set[asyncio.Task[Any]]:
        loop = self._loop
        return set() if loop is None or loop.is_closed() else asyncio.all_tasks(loop)


def _may_run(task: asyncio.Task[Any]) -> bool:
    frame = getattr(task.get_coro(), "cr_frame", None)
    package = str(frame.f_globals.get("__name__", "")) if frame is not None else ""
    return package.partition(".")[0] not in _KNOWN
