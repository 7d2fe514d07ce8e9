"""``gpulease launch``: one command on every node of a lease, all of them or none.

One process's failure ends the others.  Output comes back with the rank before it, then the exit
status.  The processes are below the companion whose cell launched them, so they belong to that
lease.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from gpulease.companion import jobs, nodes
from gpulease.companion.nodes import MPI, called
from gpulease.errors import GPULeaseError
from gpulease.protocol.names import ENV_LAUNCH_KEYS, ENV_NODES

if TYPE_CHECKING:
    from gpulease.companion.far import FarNodes


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``companion`` and ``launch``; nothing heavy is imported until one runs."""
    parser = commands.add_parser(
        "companion",
        help="run GPU cells for a notebook elsewhere, without a hub",
        description=(
            "Starts companions on this machine for notebooks that run `%gpu connect FILE`. FILE"
            " holds a key: keep it private. Ctrl-C ends every process that it started."
        ),
    )
    parser.add_argument(
        "--connection-file",
        type=Path,
        required=True,
        metavar="FILE",
        help="write here what `%%gpu connect FILE` needs; removed at the end",
    )
    parser.add_argument("--ip", default="127.0.0.1", help="address of this machine to listen on")
    parser.add_argument("--park-dir", default="", help="where values may be parked at the end")
    parser.set_defaults(run=_run_companion)
    launcher = commands.add_parser(
        "launch",
        help="in a GPU cell: run one command on every node of the lease",
        description="Runs a command once for each node of this GPU cell's lease, with the variables"
        " that torchrun sets (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, ...) and"
        " torchrun's own options (PET_*), so that `gpulease launch torchrun train.py` needs none."
        " When one process fails, the others get SIGTERM and five seconds later SIGKILL; the exit"
        " status is its own (128 and the signal's number where one ended it).",
    )
    _add_arguments(launcher)
    launcher.set_defaults(run=run)


def _run_companion(arguments: argparse.Namespace) -> int:
    from gpulease.companion.run import check_paths
    from gpulease.companion.run import run as supervise

    check_paths(arguments.connection_file, arguments.park_dir)
    return supervise(arguments, watch_parent=False)


#: What is shown by processes that a command left behind is waited for so long (seconds).
_LAST_WORDS = 1.0
_INTERRUPTED = 130


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to a parser."""
    number = parser.add_mutually_exclusive_group()
    number.add_argument(
        "--per-gpu", action="store_true", help="a process for each GPU; by default for each node"
    )
    number.add_argument("--procs", type=int, metavar="N", help="number of processes on each node")
    once = parser.add_mutually_exclusive_group()
    once.add_argument(
        "--mpi",
        action="store_true",
        help="COMMAND is mpirun or mpiexec: run it once, on the first node, with all nodes as its"
        " hosts; needs no ssh",
    )
    once.add_argument("--agent", action="store_true", help=argparse.SUPPRESS)  # as MPI calls ssh
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
        )
    found = nodes.from_text(text)
    if arguments.agent:
        return asyncio.run(_all(_at(found, words)))
    arguments.per_gpu |= arguments.mpi and arguments.procs is None
    each = _processes_on_each(arguments, found[0])
    if not words:
        raise _bad("Say what is to be run.")
    program = shutil.which(words[0])
    if program is None:
        raise GPULeaseError(
            "no_such_command",
            f"There is no program {words[0]!r} where this runs.",
            next_step="Install it in this environment, or name its path.",
        )
    command = [program, *words[1:]]
    if arguments.mpi:
        with MPI(found, each) as told:
            return asyncio.run(_all(_Launch([(found[0], told)], command, found, plain=True)))
    ranks = enumerate(nodes.environments(found, each, _port()))
    places = [(found[rank // each], place) for rank, place in ranks]
    return asyncio.run(_all(_Launch(places, command, found)))


@dataclass(frozen=True)
class _Launch:
    """What is run where.

    Attributes:
        places: of each process: its node, and what it is told.
        words: the command.
        files: the nodes that shall have this directory's files.
        plain: whether it speaks for itself: what it shows is passed on as it is.
    """

    places: Sequence[tuple[nodes.Node, Mapping[str, str]]]
    words: Sequence[str]
    files: Sequence[nodes.Node] = ()
    plain: bool = False


def _at(found: Sequence[nodes.Node], words: Sequence[str]) -> _Launch:
    """Return what an MPI's launcher wants to have run on one of the nodes."""
    host, command = called(words)
    node = next((each for each in found if each.address == host), None)
    if node is None:
        raise _bad(f"{host!r} is none of this lease's nodes.")
    return _Launch([(node, {})], command, plain=True)


def _processes_on_each(arguments: argparse.Namespace, node: nodes.Node) -> int:
    if arguments.procs is not None and arguments.procs < 1:
        raise _bad("--procs takes a whole number from 1.")
    if not arguments.per_gpu:
        return arguments.procs or 1
    if node.gpus:
        return node.gpus
    from gpulease.companion.run import visible_devices  # as the container shows them

    shown = len(visible_devices())
    if not shown:
        raise _bad("How many GPUs there are is not known here: say --procs N.")
    return shown


class _Shown(Protocol):
    """A stream of a process."""

    async def read(self, most: int, /) -> bytes:
        """Return what is shown next, nothing at the end."""


class _Running(Protocol):
    """A process, here or on another node."""

    @property
    def stdout(self) -> _Shown | None:
        """What it shows."""

    @property
    def stderr(self) -> _Shown | None:
        """What it complains of."""

    async def wait(self) -> int:
        """Return its status once it has ended."""

    async def end(self) -> None:
        """End it with all of its group; nothing where it has ended."""


class _NearProcess:
    """A process on this node."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.stdout, self.stderr = process.stdout, process.stderr

    async def wait(self) -> int:
        return await self._process.wait()

    async def end(self) -> None:
        await jobs.end(self._process)


class _Starter:
    """Starts processes, here and on the lease's other machines."""

    def __init__(self, words: Sequence[str], *, alone: bool) -> None:
        self._words = words
        self._alone = alone
        self._far: FarNodes | None = None

    async def prepare(self, found: Sequence[nodes.Node]) -> None:
        """Have the files of this directory on the lease's other machines."""
        others = list({node.supervisor: node for node in found if node.supervisor}.values())
        if others:
            await self._others().prepare(others)

    async def start(self, node: nodes.Node, place: Mapping[str, str]) -> _Running:
        if node.supervisor:
            told = {"PYTHONUNBUFFERED": "1", **place}
            return await self._others().start(node, self._words, told)
        environment = {"PYTHONUNBUFFERED": "1", **os.environ, **place}
        if self._alone:  # its streams are this process's own
            return _NearProcess(
                await asyncio.create_subprocess_exec(
                    *self._words, env=environment, stdin=DEVNULL, start_new_session=True
                )
            )
        return _NearProcess(await jobs.start(self._words, environment, None))

    async def close(self) -> None:
        if self._far is not None:
            await self._far.finish()
            self._far.close()

    def _others(self) -> FarNodes:
        if self._far is None:
            from gpulease.companion.far import FarNodes
            from gpulease.companion.nodes import read_keys

            self._far = FarNodes(read_keys(os.environ[ENV_LAUNCH_KEYS]))
        return self._far


async def _all(launch: _Launch) -> int:
    """Run a process at each place until all have ended, or one has failed."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    processes: list[_Running] = []
    showing: list[asyncio.Task[None]] = []
    starter = _Starter(launch.words, alone=len(launch.places) == 1)
    try:
        await starter.prepare(launch.files)
        for rank, (node, place) in enumerate(launch.places):
            process = await starter.start(node, place)
            processes.append(process)
            showing += _show(process, b"" if launch.plain else f"[{rank}] ".encode())
        return await _ended(processes, stop, quiet=launch.plain)
    finally:
        await asyncio.gather(*(process.end() for process in processes))
        if showing:
            _, late = await asyncio.wait(showing, timeout=_LAST_WORDS)
            for task in late:
                task.cancel()
        await starter.close()


async def _ended(processes: Sequence[_Running], stop: asyncio.Event, *, quiet: bool) -> int:
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
                if not quiet:
                    sys.stderr.write(f"gpulease launch: rank {rank} failed ({how}){others}.\n")
                    sys.stderr.flush()
                return status if status > 0 else 128 - status
        return 0
    finally:
        for task in (stopped, *left):
            task.cancel()


def _show(process: _Running, prefix: bytes) -> list[asyncio.Task[None]]:
    streams = ((process.stdout, sys.stdout.buffer), (process.stderr, sys.stderr.buffer))
    return [
        asyncio.create_task(_pass_on(stream, prefix, out))
        for stream, out in streams
        if stream is not None
    ]


async def _pass_on(stream: _Shown, prefix: bytes, out: BinaryIO) -> None:
    """Write lines on with their rank; a progress bar's steps are lines, too."""
    rest = b""
    while chunk := await stream.read(jobs.PIECE):
        lines = (rest + chunk).splitlines(keepends=True)
        whole = lines[-1].endswith((b"\n", b"\r")) or len(lines[-1]) > jobs.PIECE
        rest = b"" if whole else lines.pop()
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
