"""A run's own notebook server: takes the run from the lease service, executes it, reports.

A service that is away is waited for: the notebook keeps running, and what became of it is reported
when the service is back.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shlex
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import NoSuchKernel

from gpulease.channel.timing import BackOff
from gpulease.client import ServiceClient
from gpulease.errors import GPULeaseError
from gpulease.lab import notebook_run
from gpulease.lab.notebook_run import (
    DeadKernelError,
    NotebookError,
    NotStartedError,
    UnreadableError,
)
from gpulease.protocol.names import ENV_CELL_OPTIONS
from gpulease.runs.submission import INDEX

log = logging.getLogger("gpulease.lab")

#: A GPU cell of a run waits for its GPU as long as it takes.
_WAIT = "--wait 365d"
#: Starts of a kernel: another program may take one of its ports before it has bound it.
_KERNEL_STARTS = 3
#: Seconds between two reports at least.
_PAUSE = 1.0
#: How the kernel names a cell's end that is no fault of the notebook's (``kernel.unattended``).
_ENDS = {
    "GPUReclaimed": "interrupted", "GPUTimeOver": "gpu_time_over", "GPULost": "gpu_lost",
    "CompanionDied": "kernel_died",
}  # fmt: skip
#: Refusals that mean: this run is no longer this server's.
_OVER = frozenset({"no_such_run", "not_yours", "not_possible_now"})


class RunWorker:
    """Executes one run.

    Args:
        run_id: the run.
        client: the lease service, with this server's own token.
        kernels: this server's kernels: the run's is one of them, so a person can look in.
        root: what relative paths of notebooks begin at.
        every: seconds between two reports while nothing is done.
    """

    def __init__(
        self, run_id: str, client: ServiceClient, kernels: Any, root: Path, *, every: float = 30.0
    ) -> None:
        self._path = f"runs/{run_id}/reports"
        self._client = client
        self._kernels = kernels
        self._root = root
        self._every = every
        self._boot = secrets.token_hex(8)
        self._cells = self._done = 0
        self._opens = ""  # the output, below what this server shows
        self._told = asyncio.Event()

    async def run(self) -> None:
        """Take the run up, execute it, say how it ended.

        Returns as well where the service says that the run is not, or no longer, this server's.
        """
        try:
            task = await self._tell("running")
            state, note = await self._outcome(task)
            await self._tell(state, note)
        except GPULeaseError as error:
            log.warning("this run goes no further: %s", error.sentence)

    async def _outcome(self, task: dict[str, Any]) -> tuple[str, str]:
        """Execute a run; return how it ended, in a word and in a sentence."""
        following = asyncio.create_task(self._follow())
        executing = asyncio.create_task(self._execute(task))
        try:
            await asyncio.wait({following, executing}, return_when=asyncio.FIRST_COMPLETED)
            if executing.done():
                executing.result()
                return "succeeded", ""
            following.result()  # why this run is over
            raise AssertionError("reports end by a refusal only")
        except NotebookError as error:
            return _ENDS.get(error.name, "notebook_error"), str(error)[:2000]
        except DeadKernelError:
            return "kernel_died", f"After cell {self._done} of {self._cells}."
        except (UnreadableError, NoSuchKernel) as error:
            return "unreadable", str(error)[:2000]
        except NotStartedError as error:
            return "kernel_died", f"It did not start: {error}"[:2000]
        except GPULeaseError:
            raise
        except Exception as error:
            # A border: a run that nobody ends would be shown as running for ever.
            log.exception("the run could not go on")
            return "kernel_died", f"Its server could not go on: {type(error).__name__}."
        finally:
            for each in (following, executing):
                each.cancel()
            await asyncio.gather(following, executing, return_exceptions=True)

    async def _execute(self, task: dict[str, Any]) -> None:
        source, result = self._root / task["notebook"], self._root / task["result"]
        notebook = notebook_run.read(source)
        index = {} if task["index"] is None else {INDEX: task["index"]}
        notebook_run.set_parameters(notebook, {**task["parameters"], **index})
        self._cells = notebook_run.cells_of(notebook)
        self._opens = _below(result, self._root)
        notebook.metadata["gpulease"] = {"run": task["id"], "attempt": task["attempt"]}
        os.environ[ENV_CELL_OPTIONS] = _cell_options(task)  # kernels inherit it
        name = notebook.metadata.get("kernelspec", {}).get("name") or None
        for left in reversed(range(_KERNEL_STARTS)):
            try:
                await self._in_kernel(notebook, name, source.parent, result)
            except NotStartedError as error:
                if not left:
                    raise
                log.warning("the run's kernel is started again: %s", error)
            else:
                return

    async def _in_kernel(self, notebook: Any, name: str | None, folder: Path, result: Path) -> None:
        kernel_id = await self._kernels.start_kernel(kernel_name=name, cwd=str(folder))
        try:
            manager = self._kernels.get_kernel(kernel_id)
            # A kernel that was started anew would know nothing of the cells before.
            manager.stop_restarter()
            client = await notebook_run.begin(notebook, manager)
            await notebook_run.execute(client, result, self._progress)
        finally:
            if kernel_id in self._kernels:
                with suppress(RuntimeError):  # it is dead
                    await self._kernels.shutdown_kernel(kernel_id, now=True)

    def _progress(self, done: int) -> None:
        self._done = done
        self._told.set()

    async def _follow(self) -> None:
        """Report how far it is, now and then; raises when the run is no longer this server's."""
        while True:
            await self._tell("running")
            self._told.clear()
            await asyncio.sleep(_PAUSE)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await self._told.wait()

    async def _tell(self, state: str, note: str = "") -> dict[str, Any]:
        """Report, and wait for a service that is away.

        Raises:
            GPULeaseError: what it refuses with; the reasons in ``_OVER`` mean that
                the run is over.
        """
        body = {
            "boot": self._boot, "state": state, "cells": self._cells, "done": self._done,
            "note": note, "opens": self._opens,
        }  # fmt: skip
        pauses = BackOff()
        while True:
            try:
                told: dict[str, Any] = await self._client.call("POST", self._path, body)
            except GPULeaseError as error:
                if error.reason in _OVER or not _passes(error):
                    raise
                log.info("the run cannot be reported now: %s", error.sentence)
                await asyncio.sleep(pauses.pause())
            else:
                return told


def _passes(error: GPULeaseError) -> bool:
    """Whether the same report may be taken a little later."""
    # Just started, the hub may not call this server ready yet: then it proves nothing.
    return (
        error.status >= 500
        or error.status == HTTPStatus.TOO_MANY_REQUESTS
        or (error.reason == "no_server")
    )


def _below(path: Path, root: Path) -> str:
    """Return a path as this server's pages name it, "" for one that they do not show."""
    whole, top = path.resolve(), root.resolve()
    return whole.relative_to(top).as_posix() if whole.is_relative_to(top) else ""


def _cell_options(task: dict[str, Any]) -> str:
    """Return what GPU cells ask for where they say nothing, as it stands behind ``%%gpu``."""
    given = {
        "--class": task["gpu_class"],
        "--count": None if task["count"] == 1 else task["count"],
        "--min-count": task["min_count"],
        "--at-least": task["at_least"],
        "--nodes": None if task["nodes"] == 1 else task["nodes"],
        "--for": None if task["seconds"] is None else f"{task['seconds']:.0f}s",
        "--project": task["project"],
    }
    words = [shlex.quote(f"{name}={value}") for name, value in given.items() if value is not None]
    return " ".join([*words, _WAIT])
