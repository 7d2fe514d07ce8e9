"""What user code left on the main thread's loop: tasks and timers that outlive their cell.

What is made while user code runs, or later by that, carries the mark of its context, so that it
differs from the kernel's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

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
    """Counts the user's living tasks and timers of one loop; any thread may ask."""

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
