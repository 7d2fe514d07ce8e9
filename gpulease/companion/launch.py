"""``gpulease launch``: one command on every node of a lease, all of them or none.

Owns the processes: that one's failure ends the others, that all that is shown comes back with the
rank before it, and the exit status.  They are below the companion whose cell launched them, so they
are that lease's own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import BinaryIO

from gpulease.companion import nodes
from gpulease.errors import GPULeaseError
from gpulease.protocol import ENV_NODES

#: From SIGTERM to SIGKILL (seconds), for those that end because another one failed.
_GRACE = 5.0
#: What is shown by processes that a command left behind is waited for so long (seconds).
_LAST_WORDS = 1.0
#: Shown in pieces of this size where there are no lines.
_PIECE = 2**16
_INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to a parser."""
    number = parser.add_mutually_exclusive_group()
    number.add_argument(
        "--per-gpu", action="store_true", help="a process for each GPU; by default for each node"
    )
    number.add_argument("--procs", type=int, metavar="N", help="so many processes on each node")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND ...", help="to be run")


def run(arguments: argparse.Namespace) -> int:
    """Run a command on all nodes; return the status of the first one that failed, else 0.

    Raises:
        GPULeaseError: ``not_on_gpu``, ``bad_option``, ``no_such_command``.
    """
    words = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
    text = os.environ.get(ENV_NODES)
    if text is None:
        raise GPULeaseError(
            "not_on_gpu",
            "There is no GPU here: `gpulease launch` runs in a GPU cell.",
            next_step="Write %%gpu, and below it: !gpulease launch torchrun train.py",
            status=409,
        )
    found = nodes.from_text(text)
    each = _processes_on_each(arguments, found[0])
    if not words:
        raise _bad("Say what is to be run.")
    program = shutil.which(words[0])
    if program is None:
        raise GPULeaseError(
            "no_such_command",
            f"There is no program {words[0]!r} where this runs.",
            next_step="Install it in this environment, or name its path.",
            status=404,
        )
    places = list(nodes.environments(found, each, _port()))
    return asyncio.run(_all(places, [program, *words[1:]]))


def _processes_on_each(arguments: argparse.Namespace, node: nodes.Node) -> int:
    if arguments.procs is not None and arguments.procs < 1:
        raise _bad("--procs takes a whole number from 1.")
    if not arguments.per_gpu:
        return arguments.procs or 1
    if node.gpus:
        return node.gpus
    from gpulease.companion.standalone import visible_devices  # as the container shows them

    shown = len(visible_devices())
    if not shown:
        raise _bad("How many GPUs there are is not known here: say --procs N.")
    return shown


async def _all(places: Sequence[Mapping[str, str]], words: Sequence[str]) -> int:
    """Run a process at each place until all have ended, or one has failed."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    processes: list[Process] = []
    showing: list[asyncio.Task[None]] = []
    try:
        for place in places:
            process = await _start(words, place, alone=len(places) == 1)
            processes.append(process)
            showing += _show(process, place["RANK"])
        return await _ended(processes, stop)
    finally:
        await asyncio.gather(*(_end(process) for process in processes))
        if showing:
            _, late = await asyncio.wait(showing, timeout=_LAST_WORDS)
            for task in late:
                task.cancel()


async def _start(words: Sequence[str], place: Mapping[str, str], *, alone: bool) -> Process:
    # A group of its own: what it starts (torchrun's workers) ends with it.
    return await asyncio.create_subprocess_exec(
        *words,
        env={"PYTHONUNBUFFERED": "1", **os.environ, **place},
        stdin=DEVNULL,
        stdout=None if alone else PIPE,
        stderr=None if alone else PIPE,
        start_new_session=True,
    )


async def _ended(processes: Sequence[Process], stop: asyncio.Event) -> int:
    """Wait for the first failure, for an interrupt, or for all; return the status."""
    stopped = asyncio.ensure_future(stop.wait())
    ranks = {asyncio.ensure_future(each.wait()): rank for rank, each in enumerate(processes)}
    left = set(ranks)
    try:
        while left:
            done, _ = await asyncio.wait({stopped, *left}, return_when=asyncio.FIRST_COMPLETED)
            if stopped in done:
                return _INTERRUPTED
            left -= done
            failed = sorted((ranks[each], each.result()) for each in done if each.result())
            if failed:
                rank, status = failed[0]
                how = f"ended by {signal.Signals(-status).name}" if status < 0 else f"{status=}"
                others = "; the others are ended" if left else ""
                sys.stderr.write(f"gpulease launch: rank {rank} failed ({how}){others}.\n")
                sys.stderr.flush()
                return status if status > 0 else 128 - status
        return 0
    finally:
        for task in (stopped, *left):
            task.cancel()


async def _end(process: Process) -> None:
    """End a process with all of its group; nothing where it has ended."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                await process.wait()


def _show(process: Process, rank: str) -> list[asyncio.Task[None]]:
    streams = ((process.stdout, sys.stdout.buffer), (process.stderr, sys.stderr.buffer))
    return [
        asyncio.create_task(_pass_on(stream, f"[{rank}] ".encode(), out))
        for stream, out in streams
        if stream is not None
    ]


async def _pass_on(stream: asyncio.StreamReader, prefix: bytes, out: BinaryIO) -> None:
    """Write lines on with their rank; a progress bar's steps are lines, too."""
    rest = b""
    while chunk := await stream.read(_PIECE):
        lines = (rest + chunk).splitlines(keepends=True)
        rest = b"" if lines[-1].endswith((b"\n", b"\r")) or len(lines[-1]) > _PIECE else lines.pop()
        out.write(b"".join(prefix + line for line in lines))
        out.flush()
    if rest:
        out.write(prefix + rest + b"\n")
        out.flush()


def _port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
    return port


def _bad(sentence: str) -> GPULeaseError:
    return GPULeaseError(
        "bad_option",
        sentence,
        next_step="For example: gpulease launch torchrun train.py",
        status=422,
    )
