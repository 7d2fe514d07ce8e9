"""One loop for what looks at the world again and again: the hub's servers, runs, reservations."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from logging import Logger

from gpulease.errors import GPULeaseError
from gpulease.service.hubapi import HubUnreachableError


async def keep_looking(
    look: Callable[[], Awaitable[None]],
    wanted: asyncio.Event,
    *,
    every: float,
    log: Logger,
    failed: str,
) -> None:
    """Look now, when ``wanted`` is set and each ``every`` seconds, until cancelled.

    A look that fails says ``failed`` in the log, and the next one tries again.  A fault of ours
    counts too: a loop that ended with it would leave leases and runs standing for ever.
    """
    while True:
        try:
            await look()
        except HubUnreachableError as error:
            log.warning("%s: %s", failed, error)
        except GPULeaseError as error:
            log.warning("%s: %s", failed, error.sentence)
        except Exception:
            log.exception("%s", failed)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(every):
                await wanted.wait()
        wanted.clear()
