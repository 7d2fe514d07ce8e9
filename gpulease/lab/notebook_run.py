"""Executes one notebook in a kernel of this server, cell by cell, and writes its output beside it.

Parameters are set by papermill's convention (a cell after the one with the tag ``parameters``).
The copy with the output is written whole after every cell, so that what was interrupted can be
opened and read.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError

from gpulease.errors import copied
from gpulease.system.private_files import whole_file

#: The tags of papermill's: https://papermill.readthedocs.io/en/latest/usage-parameterize.html
_TAG, _INJECTED = "parameters", "injected-parameters"
#: Seconds between two writes while one cell runs.
_EVERY = 30.0
#: Seconds until a kernel answers at most; a busy machine takes its time.
_START = 300


class UnreadableError(Exception):
    """The notebook cannot be read, or its output cannot be written; the message says why."""


class NotStartedError(Exception):
    """The kernel did not start; the message says why."""


class NotebookError(Exception):
    """A cell of the notebook failed; the message names it.

    ``name`` is the exception's name, as the kernel gave it.
    """

    def __init__(self, sentence: str, name: str) -> None:
        super().__init__(sentence)
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        return copied, (type(self), self.args, self.__dict__)


def read(path: Path) -> Any:
    """Return a notebook.

    Raises:
        UnreadableError: there is none, or it is none.
    """
    try:
        return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    except FileNotFoundError:
        raise UnreadableError(f"There is no notebook {path}.") from None
    except (OSError, ValueError, nbformat.ValidationError, AttributeError) as error:
        why = getattr(error, "strerror", None) or "it is no notebook"
        raise UnreadableError(f"{path} cannot be read: {why}.") from error


def set_parameters(notebook: Any, values: Mapping[str, object]) -> None:
    """Put a cell with the values after the one that has their defaults, else at the beginning."""
    cells = notebook.cells
    cells[:] = [cell for cell in cells if _INJECTED not in _tags(cell)]
    if not values:
        return
    lines = ["# Parameters", *(f"{name} = {value!r}" for name, value in values.items())]
    cell = nbformat.v4.new_code_cell("\n".join(lines))  # type: ignore[no-untyped-call]
    cell.metadata["tags"] = [_INJECTED]
    if (notebook.nbformat, notebook.nbformat_minor) < (4, 5):
        del cell["id"]  # older notebooks have none
    after = next((n + 1 for n, each in enumerate(cells) if _TAG in _tags(each)), 0)
    cells.insert(after, cell)


def cells_of(notebook: Any) -> int:
    """Return how many cells there are to run."""
    return sum(_runs(cell) for cell in notebook.cells)


def write(notebook: Any, path: Path) -> None:
    """Write a notebook whole or not at all.

    Raises:
        UnreadableError: it cannot be written.
    """
    text = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
    try:
        with whole_file(path, replace=True) as file:
            file.write(text.encode())
            os.fchmod(file.fileno(), 0o644)
    except OSError as error:
        raise UnreadableError(f"{path} cannot be written: {error.strerror}.") from error


async def begin(notebook: Any, manager: Any) -> NotebookClient:
    """Return what executes a notebook, once its kernel answers; nothing of it has run.

    Args:
        notebook: as read, parameters set; its outputs are those of this run from now on.
        manager: the kernel's manager, the kernel running and never restarted by itself.

    Raises:
        NotStartedError: the kernel ended, or did not answer in time.
    """
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        notebook, km=manager, timeout=None, iopub_timeout=60, startup_timeout=_START
    )
    client.reset_execution_trackers()
    try:
        # Not ``async_execute``: it takes this server's signal handlers.
        await client.async_start_new_kernel_client()
    except RuntimeError as error:
        raise NotStartedError(str(error)) from error
    return client


async def execute(client: NotebookClient, result: Path, progress: Callable[[int], None]) -> None:
    """Run every cell; ``progress`` is told how many are done.

    Args:
        client: of ``begin``.
        result: where the notebook with its output is written.
        progress: called after each cell.

    Raises:
        NotebookError: a cell failed.
        DeadKernelError: the kernel died.
        UnreadableError: the output cannot be written.
    """
    notebook = client.nb
    write(notebook, result)
    writing = asyncio.create_task(_write_now_and_then(notebook, result))
    done = 0
    try:
        for index, cell in enumerate(notebook.cells):
            if _runs(cell):
                await _execute_cell(client, cell, index, done + 1)
                done += 1
                write(notebook, result)
                progress(done)
        client.set_widgets_metadata()
    finally:
        writing.cancel()
        write(notebook, result)
        if client.kc is not None:
            client.kc.stop_channels()


async def _execute_cell(client: NotebookClient, cell: Any, index: int, number: int) -> None:
    try:
        await client.async_execute_cell(cell, index)
    except CellExecutionError as error:
        said = f"Cell {number}: {error.ename}: {error.evalue}"
        stop = "" if said.endswith((".", "!", "?")) else "."
        raise NotebookError(said + stop, error.ename) from None


async def _write_now_and_then(notebook: Any, path: Path) -> None:
    """Let a long cell's output be read while it runs."""
    while True:
        await asyncio.sleep(_EVERY)
        write(notebook, path)


def _runs(cell: Any) -> bool:
    return cell.cell_type == "code" and bool(cell.source.strip())


def _tags(cell: Any) -> list[str]:
    return list(cell.get("metadata", {}).get("tags", ()))


__all__ = [
    "DeadKernelError", "NotStartedError", "NotebookError", "UnreadableError", "begin", "cells_of",
    "execute", "read", "set_parameters", "write",
]  # fmt: skip
