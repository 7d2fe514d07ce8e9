"""The supervisor's process: from its command line to its exit status.

A notebook server starts it and writes one JSON line to stdin (at once, or later when the supervisor
is started ahead); a person or a home kernel starts it with a connection file, without a hub.  A
lease pod's process is ``pod_process``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpulease.companion import pod_process, tree
from gpulease.companion.config import SupervisorConfig
from gpulease.companion.kernels import Companions
from gpulease.companion.pod_process import LOG_FORMAT
from gpulease.companion.standalone import removed_at_end, standalone_config, write_connection
from gpulease.companion.supervisor import Supervisor
from gpulease.errors import GPULeaseError
from gpulease.private_files import process_folder
from gpulease.protocol.names import ENV_LEASE
from gpulease.sides.environment import take_mark

log = logging.getLogger("gpulease.companion")
_LINE = 2**20


def main(argv: Sequence[str] | None = None, *, watch_parent: bool = True) -> int:
    """Run a supervisor until its lease ends; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="gpulease companion", description="Run GPU cells for notebooks elsewhere."
    )
    add_arguments(parser)
    return run(parser.parse_args(argv), watch_parent=watch_parent)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the supervisor's options to a parser."""
    parser.add_argument(
        "--connection-file",
        type=Path,
        metavar="FILE",
        help="no hub: write here what `%%gpu connect FILE` needs (removed at the end)",
    )
    parser.add_argument("--ip", default="127.0.0.1", help="address of this machine to listen on")
    parser.add_argument(
        "--standby",
        action="store_true",
        help="started ahead by a notebook server, which says on stdin for whom",
    )
    parser.add_argument("--park-dir", default="", help="no hub: where values may be parked")
    parser.add_argument(
        "--pod", action="store_true", help="the process of a lease pod; its manifest says the rest"
    )


def run(arguments: argparse.Namespace, *, watch_parent: bool = True) -> int:
    """Run what the arguments say."""
    if arguments.pod:
        return pod_process.run()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=LOG_FORMAT)
    parent = os.getppid() if watch_parent else None
    os.umask(0o077)
    directory = process_folder()  # for connection files
    try:
        return asyncio.run(_run(arguments, parent, directory))
    except GPULeaseError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _companions(directory: Path, mark: str, holder: list[Supervisor]) -> Companions:
    """Return the companions of the supervisor that ``holder`` will hold."""

    async def died(kernel_id: str, detail: str) -> None:
        await holder[0].companion_died(kernel_id, detail)

    return Companions(directory, mark, died)


async def _run(arguments: argparse.Namespace, parent: int | None, directory: Path) -> int:
    tree.become_subreaper()
    first_mark = os.environ.get(ENV_LEASE, "").strip()
    if not first_mark:
        first_mark = f"starting-{secrets.token_hex(8)}"
        take_mark(first_mark)
    holder: list[Supervisor] = []
    companions = _companions(directory, first_mark, holder)
    await companions.prepare()
    gone = asyncio.Event()
    if parent is not None:
        _watch_parent(parent, gone.set)
    stdin = None
    if arguments.connection_file is None:
        stdin = await _stdin()
        config = await _told(stdin, gone)
        if config is None:
            await tree.end_tree({first_mark}, os.getpid(), grace=0.5)
            await companions.clean_up()
            return 0
    else:
        config = standalone_config(arguments.ip, arguments.park_dir)
    take_mark(config.lease_id)
    marks = {first_mark, config.lease_id}
    opened = (lambda: _say({"type": "opened"})) if stdin is not None else lambda: None
    supervisor = Supervisor(config, companions, marks, opened)
    holder.append(supervisor)
    supervisor.spawn(_until(gone, supervisor.parent_gone))
    if stdin is not None:
        supervisor.spawn(_obey(stdin, supervisor))
        _say({"type": "ready", "pid": os.getpid()})
        return _status(await supervisor.run())
    written = write_connection(arguments.connection_file, supervisor)
    with removed_at_end(written):
        log.info("ready. In a notebook: %%gpu connect %s  Ctrl-C here ends it.", written.resolve())
        return _status(await supervisor.run())


def _say(message: dict[str, Any]) -> None:
    """Tell the notebook server something; its end of stdout may be gone."""
    with suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def _status(reason: str) -> int:
    log.info("the lease ended: %s", reason)
    return 0


async def _until(event: asyncio.Event, then: Callable[[], None]) -> None:
    await event.wait()
    then()


async def _told(stdin: asyncio.StreamReader, gone: asyncio.Event) -> SupervisorConfig | None:
    """Wait to be told for whom this is; None when the notebook server is gone."""
    line = asyncio.ensure_future(stdin.readline())
    orphaned = asyncio.ensure_future(gone.wait())
    await asyncio.wait((line, orphaned), return_when=asyncio.FIRST_COMPLETED)
    orphaned.cancel()
    if not line.done() or not line.result().endswith(b"\n"):
        line.cancel()
        return None
    try:
        found = json.loads(line.result())
    except ValueError as error:
        raise GPULeaseError("malformed", "The supervisor was told something not JSON.") from error
    return SupervisorConfig.from_json(found)


async def _obey(stdin: asyncio.StreamReader, supervisor: Supervisor) -> None:
    while line := await stdin.readline():
        try:
            await supervisor.on_order(json.loads(line))
        except (ValueError, KeyError, AttributeError):
            log.exception("an order of the notebook server could not be followed")
    supervisor.parent_gone()


async def _stdin() -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


def _watch_parent(parent: int, gone: Callable[[], None]) -> None:
    """Call ``gone`` once the process ``parent`` has ended."""
    loop = asyncio.get_running_loop()
    try:
        fd = os.pidfd_open(parent)
    except ProcessLookupError:
        gone()
        return
    if os.getppid() != parent:  # it ended before it was watched, and the number may be another's
        os.close(fd)
        gone()
        return

    def ended() -> None:
        loop.remove_reader(fd)
        with suppress(OSError):
            os.close(fd)
        gone()

    loop.add_reader(fd, ended)
