"""Processes that another node of the lease has started here, each with what it shows.

A process ends with all of its group, by itself or when the node that launched it is silent.  Its
output waits here until that node reads it: a slow reader slows the process down, as a pipe does.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpulease.channel.timing import LOST_AFTER, Heartbeat
from gpulease.errors import GPULeaseError

if TYPE_CHECKING:  # `gpulease --help` loads no zmq
    from gpulease.channel.curve import Client

#: From SIGTERM to SIGKILL (seconds).
GRACE = 5.0
#: How long it may take from one look for silent clients to the next (seconds).
LOOKS_EVERY = 2.0
#: Shown in pieces of this size (bytes).
PIECE = 2**16


async def start(
    words: Sequence[str], environment: Mapping[str, str], cwd: str | None, umask: int = -1
) -> Process:
    """Start a process whose streams are read, in a group of its own; ``umask`` -1: as here.

    Raises:
        OSError: it cannot be started.
    """
    return await asyncio.create_subprocess_exec(
        *words, env=environment, cwd=cwd, stdin=DEVNULL, stdout=PIPE, stderr=PIPE,
        start_new_session=True, umask=umask,
    )  # fmt: skip


async def end(process: Process) -> None:
    """End a process with all of its group; nothing where it has ended."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await process.wait()


@dataclass
class _Job:
    process: Process
    client: Client
    heart: Heartbeat


class Jobs:
    """What runs here for others."""

    def __init__(self) -> None:
        self._jobs: dict[int, _Job] = {}
        self._numbers = itertools.count(1)
        self._starting = 0
        self._ending: set[int] = set()  # pids

    def heard(self, client: Client) -> None:
        """Note that the launching node is there."""
        for job in self._jobs.values():
            if job.client is client:
                job.heart.heard(time.monotonic())

    async def run(
        self,
        client: Client,
        words: Sequence[str],
        environment: Mapping[str, str],
        cwd: str,
        umask: int = -1,
    ) -> int:
        """Start a process; return its number.

        Raises:
            GPULeaseError: ``not_launched``, with the reason.
        """
        self._starting += 1
        try:
            process = await start(words, environment, cwd, umask)
        except OSError as error:
            raise GPULeaseError(
                "not_launched", f"{words[0]} could not be started in {cwd}: {error.strerror}."
            ) from None
        finally:
            self._starting -= 1
        number = next(self._numbers)
        heart = Heartbeat(time.monotonic(), LOST_AFTER, LOST_AFTER, LOOKS_EVERY)
        self._jobs[number] = _Job(process, client, heart)
        return number

    async def read(self, number: int, stream: str) -> str:
        """Return what a process showed next, each byte as one character; "" when that is all."""
        process = self._of(number)
        reader = process.stderr if stream == "stderr" else process.stdout
        assert reader is not None
        return (await reader.read(PIECE)).decode("latin-1")

    async def wait(self, number: int) -> int:
        """Return a process's status once it has ended."""
        return await self._of(number).wait()

    async def end(self, number: int) -> None:
        """End a process with all of its group, and forget it."""
        job = self._jobs.pop(number, None)
        if job is None:
            return
        self._ending.add(job.process.pid)
        try:
            await end(job.process)
        finally:
            self._ending.discard(job.process.pid)

    async def end_silent(self) -> None:
        """End what was launched by somebody who has not been heard of while this was looked at."""
        now = time.monotonic()
        silent = [number for number, job in self._jobs.items() if job.heart.just_lost(now)]
        await asyncio.gather(*(self.end(number) for number in silent))

    async def end_all(self) -> None:
        """End everything."""
        await asyncio.gather(*(self.end(number) for number in list(self._jobs)))

    @property
    def pids(self) -> set[int] | None:
        """Of the processes that are waited for here; None while one starts whose is not known."""
        if self._starting:
            return None
        return self._ending | {job.process.pid for job in self._jobs.values()}

    def _of(self, number: int) -> Process:
        job = self._jobs.get(number)
        if job is None:
            raise GPULeaseError("not_launched", "There is no such process any more.", status=404)
        return job.process
