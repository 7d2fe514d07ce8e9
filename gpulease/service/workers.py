"""Work whose size is up to the person who asks: away from the event loop, and bounded.

asyncio's own threads look up the hub's address for every request, so nothing of this runs there.
What may never end runs in a process, which is ended when it takes too long, and when nobody waits
for it any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import resource
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from gpulease.errors import GPULeaseError
from gpulease.texts import Text

P = ParamSpec("P")
R = TypeVar("R")

#: Threads and processes that work at once; the event loop and the planner need the rest.
_AT_ONCE: Final = 2
#: Of one person so many may wait, one of them at work: each holds what it was asked with.
WAITING_MAX: Final = 8
#: Bytes of addresses of one process, and how it gives way to others.
_MEMORY, NICE = 2**31, 5
#: How much longer than its processor time a process may take on a busy machine.
_PATIENCE: Final = 12
#: Bytes of one line of an answer.
_LINE: Final = 2**24


class Workers:
    """Threads and processes, shared so that nobody has more than one of them at work."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="worker")
        self._processes = asyncio.Semaphore(_AT_ONCE)
        self._waiting: Counter[str] = Counter()
        self._turns: dict[str, asyncio.Lock] = {}

    def close(self) -> None:
        """Let the threads end what they are at."""
        self._threads.shutdown(cancel_futures=True)

    async def thread(
        self, whose: str, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Return what a function gives; it cannot be ended, so its size must have a bound.

        Raises:
            GPULeaseError: ``too_many_requests`` (429): too much of theirs is waiting already.
        """
        async with self.turn(whose):
            return await self.in_turn(work, *args, **kwargs)

    async def in_turn(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return what a function gives, within the ``turn`` of whoever asks for it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(work, *args, **kwargs))

    async def process(self, whose: str, module: str, question: Any, *, limit: float) -> list[Any]:
        """Return the lines of JSON with which a module answered.

        The module is run as a program: the question stands on its standard input.  ``limit`` are
        seconds of processor time, so that a busy machine refuses nobody.

        Raises:
            GPULeaseError: ``too_many_requests`` (429): too much of theirs is waiting already.
        """
        async with self.turn(whose), self._processes:
            loop = asyncio.get_running_loop()
            written = await loop.run_in_executor(self._threads, json.dumps, question)
            return await _answers(module, written.encode(), limit)

    @asynccontextmanager
    async def turn(self, whose: str) -> AsyncIterator[None]:
        """Wait until nothing else of this person is at work.

        Raises:
            GPULeaseError: ``too_many_requests`` (429): too much of theirs is waiting already.
        """
        if self._waiting[whose] >= WAITING_MAX:
            raise GPULeaseError(
                "too_many_requests",
                Text("Several of your requests are still being worked on."),
                next_step=Text("Try again in {seconds} s.", seconds=5),
                numbers={"max": WAITING_MAX, "retry_after": 5},
            )
        self._waiting[whose] += 1
        try:
            async with self._turns.setdefault(whose, asyncio.Lock()):
                yield
        finally:
            self._waiting[whose] -= 1
            if not self._waiting[whose]:
                del self._waiting[whose], self._turns[whose]


async def _answers(module: str, question: bytes, limit: float) -> list[Any]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-m", module),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LINE,
        env={},  # it needs no secret
    )
    found: list[Any] = []
    try:
        _confine(process.pid, limit)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit * _PATIENCE):
                await _converse(process, question, found)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        code = await process.wait()
    if code not in (0, -signal.SIGKILL, -signal.SIGXCPU):
        raise RuntimeError(f"{module} ended with {code}")
    return found


def _confine(pid: int, limit: float) -> None:
    seconds = math.ceil(limit)
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.prlimit(pid, resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        os.setpriority(os.PRIO_PROCESS, pid, NICE)


async def _converse(process: asyncio.subprocess.Process, question: bytes, found: list[Any]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(question)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        await process.stdin.drain()
    process.stdin.close()
    async for line in process.stdout:
        found.append(json.loads(line))  # noqa: PERF401 - what came before a time-out counts
    await process.wait()
