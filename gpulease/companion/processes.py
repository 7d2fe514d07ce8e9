"""The process of a companion: started ahead or on demand, spoken to over its private line.

Owns what it says before it is a kernel, and why it did not become one.  Knows nothing of kernel
managers, desks or leases.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpulease.companion.ahead import MODULE, Spawned, spawn
from gpulease.companion.link import Link
from gpulease.errors import GPULeaseError

#: Importing ipykernel takes half a second; a machine under load may need much longer.
START_SECONDS = 60.0


class CompanionProcess:
    """A process of ``gpulease.companion.kernel``, prepared or running."""

    def __init__(
        self, process: subprocess.Popen[bytes], link: Link, executable: str, hash_seed: str
    ) -> None:
        self.process = process
        self.link = link
        self.executable = executable
        self.hash_seed = hash_seed
        self.python = ""
        self._started_with: tuple[Mapping[str, str], Path] = ({}, Path())

    @classmethod
    async def start(
        cls, executable: str, environ: Mapping[str, str], directory: Path
    ) -> CompanionProcess:
        """Start a process that imports ipykernel and then waits; returns before it has."""
        return await cls.over(spawn(executable, environ, directory))

    @classmethod
    async def over(cls, spawned: Spawned) -> CompanionProcess:
        """Take a process that was spawned before the event loop ran."""
        link = await Link.over(spawned.line)
        hash_seed = spawned.environ.get("PYTHONHASHSEED", "")
        made = cls(spawned.process, link, spawned.executable, hash_seed)
        made._started_with = (spawned.environ, spawned.directory)
        return made

    def fits(self, executable: str, hash_seed: str) -> bool:
        """Tell whether this process can become the companion of such a home kernel."""
        same = same_interpreter(self.executable, executable) and self.hash_seed == hash_seed
        return same and self.process.poll() is None

    async def prepared(self) -> str:
        """Wait until it has imported all it needs; return its Python version."""
        if not self.python:
            said = await self._next("prepared")
            self.python = said["python"]
        return self.python

    async def begin(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Make it a kernel; return what it said when it was ready."""
        self.link.send({"type": "start", **order})
        return await self._next("ready")

    async def _next(self, wanted: str) -> dict[str, Any]:
        try:
            async with asyncio.timeout(START_SECONDS):
                said = await self.link.receive()
        except TimeoutError:
            said = {"type": "failed", "detail": f"no answer in {START_SECONDS:g} s"}
        if said is not None and said["type"] == wanted:
            return said
        if said is None and wanted == "prepared":
            raise await _why_not(self.executable, *self._started_with)
        detail = said.get("detail", "") if said else "its process ended"
        raise GPULeaseError(
            "companion_failed", f"The companion could not start: {detail}.", status=500
        )


async def _why_not(executable: str, environ: Mapping[str, str], directory: Path) -> GPULeaseError:
    """Find out why a process ended before it was prepared: its import is tried once more."""
    trial = await asyncio.create_subprocess_exec(
        *(executable, "-P", "-c", f"import {MODULE}"),
        env=dict(environ),
        cwd=directory,
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
            status=409,
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
