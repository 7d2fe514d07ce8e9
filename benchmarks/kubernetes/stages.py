"""One stage of a long round: it is bounded, tells where it stands, and says what it waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from benchmarks.measure import progress

#: Seconds between two looks, and between two words on stderr.
_LOOK, _WORD = 0.1, 10.0


class LateError(Exception):
    """A stage was not over in its time; the text says which, and how far it came."""


async def stage(
    what: str, seconds: float, over: Callable[[], bool], seen: Callable[[], str]
) -> float:
    """Wait until a stage is over; return how many seconds it took.

    Args:
        what: its name.
        seconds: it may take.
        seen: says where it stands.

    Raises:
        LateError: it took longer.
    """
    began = word = time.monotonic()
    while not over():
        now = time.monotonic()
        if now - began > seconds:
            raise LateError(f"{what}: not in {seconds:.0f} s; {seen()}")
        if now - word >= _WORD:
            word = now
            progress(f"  {what}: {now - began:.0f} s of at most {seconds:.0f} s; {seen()}")
        await asyncio.sleep(_LOOK)
    took = time.monotonic() - began
    progress(f"  {what}: {took:.1f} s")
    return took


async def done(
    what: str, seconds: float, task: asyncio.Future[Any], seen: Callable[[], str]
) -> float:
    """Wait for work as for a stage; it is cancelled when it is late, and what it raises is raised.

    Raises:
        LateError: it took longer.
    """
    try:
        took = await stage(what, seconds, task.done, seen)
    except LateError:
        task.cancel()
        raise
    await task
    return took
