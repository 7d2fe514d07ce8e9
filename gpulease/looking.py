"""One loop for what looks at the world again and again: the hub's servers, runs, the cluster."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from logging import Logger

from gpulease.errors import GPULeaseError


async def keep_looking(
    look: Callable[[], Awaitable[None]],
    wanted: asyncio.Event,
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
    while True:
        wanted.clear()
        try:
            await look()
        except GPULeaseError as error:
            log.warning("%s: %s", failed, error.sentence)
        except away as error:
            log.warning("%s: %s", failed, error)
        except Exception:  # a fault of ours: see above
            log.exception("%s", failed)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(every() if callable(every) else every):
                await wanted.wait()
