"""Work that runs beside its owner: asyncio tasks that nobody awaits, and loops that poll.

Such a task is held until it ends, and its failure is logged.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from logging import Logger
from typing import Any

from gpulease.errors import GPULeaseError


class BackgroundTasks:
    """The tasks of one owner; ``failed`` is what the log says of one that fails."""

    def __init__(self, log: Logger, failed: str) -> None:
        self._log = log
        self._failed = failed
        self._tasks: set[asyncio.Future[Any]] = set()

    def keep(self, work: Awaitable[Any]) -> asyncio.Future[Any]:
        """Run ``work`` on the running loop; return its task."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

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


async def keep_polling(
    look: Callable[[], Awaitable[None]],
    wanted: asyncio.Event | None = None,
    *,
    every: float | Callable[[], float],
    log: Logger,
    failed: str,
    away: tuple[type[Exception], ...] = (),
) -> None:
    """Look now, when ``wanted`` is set and each ``every`` seconds, until cancelled.

    A look that fails says ``failed`` in the log, and the next one tries again.  A fault of ours
    counts too: a loop that ended with it would leave leases and runs standing for ever.

    Args:
        away: raised while what is looked at does not answer; logged by its text alone.
    """
    wanted = wanted or asyncio.Event()
    while True:
        wanted.clear()
        try:
            await look()
        except away as error:
            log.warning("%s: %s", failed, error)
        except GPULeaseError as error:
            log.warning("%s: %s", failed, error.sentence)
        except Exception:  # a fault of ours: see above
            log.exception("%s", failed)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(every() if callable(every) else every):
                await wanted.wait()
