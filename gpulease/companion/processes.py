"""The process of a companion, started ahead or on demand, and why it did not become a kernel."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpulease.channel.conversation import Message
from gpulease.channel.pair import ParentEnd
from gpulease.companion.ahead import MODULE, Spawned, spawn
from gpulease.errors import GPULeaseError

#: Importing ipykernel takes half a second; a machine under load may need much longer.
START_SECONDS = 60.0


class CompanionProcess:
    """A process of ``gpulease.companion.kernel``, prepared or running."""

    def __init__(self, spawned: Spawned) -> None:
        self.process = spawned.process
        self.executable = spawned.executable
        self.hash_seed = spawned.environ.get("PYTHONHASHSEED", "")
        self.python = ""
        self._early: list[Message] = []
        self._said: Callable[[Message], None] = self._early.append
        self.link: ParentEnd
        self._spawned = spawned

    @classmethod
    async def start(
        cls, executable: str, environ: Mapping[str, str], directory: Path
    ) -> CompanionProcess:
        """Start a process that imports ipykernel and then waits; returns before it has."""
        return await cls.over(spawn(executable, environ, directory))

    @classmethod
    async def over(cls, spawned: Spawned) -> CompanionProcess:
        """Take a process that was spawned before the event loop ran."""
        made = cls(spawned)
        made.link = await ParentEnd.over(spawned.line, made._take, _failed("its process ended"))
        return made

    def fits(self, executable: str, hash_seed: str) -> bool:
        """Tell whether this process can become the companion of such a home kernel."""
        same = same_interpreter(self.executable, executable) and self.hash_seed == hash_seed
        return same and self.process.poll() is None

    async def prepared(self) -> str:
        """Wait until it has imported all it needs; return its Python version."""
        if not self.python:
            try:
                self.python = str(await self._call("prepare", {}))
            except GPULeaseError:
                if not self.link.gone.is_set():
                    raise
                raise await _why_not(self._spawned) from None
        return self.python

    async def begin(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Make it a kernel; return what it says when it is ready."""
        ready: dict[str, Any] = await self._call("start", order)
        return ready

    def listen(self, said: Callable[[Message], None]) -> None:
        """Give ``said`` all that it told and tells without being asked."""
        for message in self._early:
            said(message)
        self._said = said

    def _take(self, message: Message) -> None:
        self._said(message)

    async def _call(self, name: str, args: Mapping[str, Any]) -> Any:
        try:
            async with asyncio.timeout(START_SECONDS):
                return await self.link.call(name, args)
        except TimeoutError:
            raise _failed(f"no answer in {START_SECONDS:g} s") from None


def _failed(detail: str) -> GPULeaseError:
    return GPULeaseError(
        "companion_failed", f"The companion could not start: {detail}.", status=500
    )


async def _why_not(spawned: Spawned) -> GPULeaseError:
    """Find out why a process ended before it was prepared: its import is tried once more."""
    executable = spawned.executable
    trial = await asyncio.create_subprocess_exec(
        *(executable, "-P", "-c", f"import {MODULE}"),
        env=dict(spawned.environ),
        cwd=spawned.directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(START_SECONDS):
            _, said = await trial.communicate()
    except TimeoutError:
        trial.kill()
        await trial.wait()
        said = b"the import did not end"
    if trial.returncode == 0:  # nothing is wrong with it: somebody ended that process
        return GPULeaseError(
            "companion_failed",
            "The companion was ended while it started.",
            next_step="Run the cell again. If it ends each time, its place may lack memory.",
            status=500,
        )
    lines = said.decode(errors="replace").strip().splitlines()
    cause = lines[-1].strip() if lines else "its process ended"
    if "No module named 'gpulease" in cause:
        return GPULeaseError(
            "gpulease_missing",
            f"gpulease is not installed for {executable}.",
            next_step="Install gpulease in this environment.",
        )
    return GPULeaseError(
        "companion_failed",
        f"The companion cannot start with {executable}: {cause[:300]}.",
        next_step="Repair this environment: `python -m gpulease.companion.kernel --help` there "
        "shows the whole error.",
        status=500,
    )


def same_interpreter(one: str, other: str) -> bool:
    """Tell whether two paths are one environment's Python (``python`` and ``python3``).

    The directory counts too: every virtual environment links to the same file.
    """
    first, second = Path(one), Path(other)
    return first.parent == second.parent and first.resolve() == second.resolve()
