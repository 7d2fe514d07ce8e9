"""Work that goes on beside its owner: asyncio tasks that nobody awaits.

Owns that such a task is held until it ends and that its failure is logged.  Refuses to know what
the work is, and what follows from its failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from logging import Logger
from typing import Any


class KeptTasks:
    """The tasks of one owner; ``failed`` is what the log says of one that fails."""

    def __init__(self, log: Logger, failed: str) -> None:
        self._log = log
        self._failed = failed
        self._tasks: set[asyncio.Future[Any]] = set()

    def keep(self, work: Awaitable[Any]) -> None:
        """Run ``work`` on the running loop."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def cancel(self) -> None:
        """Cancel what still runs."""
        for task in list(self._tasks):
            task.cancel()

    async def end(self) -> None:
        """Cancel what still runs, and wait until it has ended."""
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _finished(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._log.error(self._failed, exc_info=task.exception())
