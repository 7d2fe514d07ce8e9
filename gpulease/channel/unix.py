"""A Unix socket that only its owner's processes may open: one server, named clients.

A client says its name first (``{"hello": name}``) and comes back by itself when the connection
breaks.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gpulease.channel.asynchronous import AsynchronousEnd
from gpulease.channel.conversation import Message
from gpulease.channel.lines import BlockingLines, Lines
from gpulease.channel.threaded import ThreadedEnd
from gpulease.channel.timing import BackOff
from gpulease.errors import GPULeaseError

log = logging.getLogger("gpulease.channel")

_LINE = 2**20
_CREDENTIALS = struct.Struct("3i")  # a client's process, user and group
#: How long a call waits for a connection that is being made (seconds).
_CONNECT_SECONDS = 5.0


@dataclass
class _Process:
    """A process of clients: its descriptor (pidfd), and what they call themselves."""

    descriptor: int
    names: set[str] = field(default_factory=set)


@dataclass(eq=False)
class UnixServer:
    """The server's side, on an event loop.

    Args:
        path: of the socket; mode 0600, removed by ``close``.
        greeting: what a client is told first.
        called: answers calls: (client's name, call, arguments).
        failed: see ``AsynchronousEnd``.
        ended: called with the name of a client whose process has ended.
    """

    path: Path
    greeting: Callable[[], Iterable[Message]]
    called: Callable[[str, str, Message], Awaitable[Any]]
    failed: str
    ended: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        self._processes: dict[int, _Process] = {}  # clients', by their number
        self._server: asyncio.Server | None = None
        self._ends: dict[AsynchronousEnd, tuple[str, Lines]] = {}
        # Those of lost clients too, until they are done: asyncio itself holds no task.
        self._answering: set[AsynchronousEnd] = set()

    async def open(self) -> None:
        """Listen; only this user may connect."""
        self.path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(
                self._serve, path=str(self.path), limit=_LINE
            )
        finally:
            os.umask(before)

    async def close(self) -> None:
        """Hang up and remove the socket."""
        if self._server is not None:
            self._server.close()
        for _, lines in self._ends.values():
            lines.close()
        for end in list(self._answering):
            end.close()
        for pid in list(self._processes):
            self._forget(pid)
        self.path.unlink(missing_ok=True)

    @property
    def clients(self) -> set[str]:
        """Names of those that are connected."""
        return {name for name, _ in self._ends.values()}

    @property
    def living(self) -> set[str]:
        """Names of those that are connected, or may come back as their process lives."""
        return self.clients.union(*(process.names for process in self._processes.values()))

    def push(self, message: Mapping[str, Any]) -> None:
        """Tell every client."""
        for end in list(self._ends):
            end.push(message)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = Lines(reader, writer)
        end: AsynchronousEnd | None = None
        try:
            name = str((await lines.receive() or {}).get("hello") or "")
            if not name:
                return
            end = AsynchronousEnd(lines.send, called=partial(self.called, name), failed=self.failed)
            self._answering = {e for e in self._answering if e in self._ends or e.answering}
            self._answering.add(end)
            for message in self.greeting():
                end.push(message)
            self._ends[end] = name, lines
            self._watch_process(name, writer.get_extra_info("socket"))
            while (arrived := await lines.receive()) is not None:
                end.received(arrived)
        except ValueError as error:
            log.info("a client of %s is hung up on: %s", self.path.name, error)
        finally:
            if end is not None:
                self._ends.pop(end, None)
            with suppress(ConnectionError):
                lines.close()

    def _watch_process(self, name: str, connection: socket.socket) -> None:
        for process in self._processes.values():
            process.names.discard(name)
        pid, _, _ = _CREDENTIALS.unpack(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        if pid not in self._processes:
            try:
                descriptor = os.pidfd_open(pid)
            except OSError:  # the process has ended, or the system knows no such descriptor
                return
            self._processes[pid] = _Process(descriptor)
            # Readable once the process has ended.
            asyncio.get_running_loop().add_reader(descriptor, self._process_ended, pid)
        self._processes[pid].names.add(name)

    def _process_ended(self, pid: int) -> None:
        for name in self._forget(pid):
            self.ended(name)

    def _forget(self, pid: int) -> set[str]:
        process = self._processes.pop(pid)
        asyncio.get_running_loop().remove_reader(process.descriptor)
        os.close(process.descriptor)
        return process.names


class UnixClient(ThreadedEnd):
    """A client's side, on a thread of its own; it connects until ``close``.

    Args:
        path: of the server's socket.
        name: who this is.
        pushed: on the client's thread, gets what the server tells.
        lost: on the client's thread, called when a connection broke.
        gone: see ``ThreadedEnd``.
        late: what a call fails with that has no answer in time; as ``gone`` where it is left out.
        read: is given the text of each message before it is parsed.
    """

    def __init__(
        self,
        path: str,
        name: str,
        *,
        pushed: Callable[[Message], None],
        lost: Callable[[], None],
        gone: Callable[[], GPULeaseError],
        late: Callable[[], GPULeaseError] | None = None,
        read: Callable[[str], str] = str,
    ) -> None:
        super().__init__(self._write, pushed, gone)
        self._late = late or gone
        self._path = path
        self._name = name
        self._on_lost = lost
        self._read = read
        self._lines: BlockingLines | None = None
        self._connected = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpulease-unix", daemon=True)
        self._thread.start()

    def call(self, name: str, args: Mapping[str, Any], timeout: float = 30.0) -> Any:
        """Return the server's answer; one that takes longer than ``timeout`` seconds is taken back.

        Raises:
            GPULeaseError: its problem, or that of ``gone`` or ``late``.
        """
        self._connected.wait(min(timeout, _CONNECT_SECONDS))
        answer = self.start_call(name, args)
        try:
            return answer.result(timeout)
        except TimeoutError:
            answer.cancel()
            raise self._late() from None

    def close(self) -> None:
        """Close the connection for good."""
        self._closed.set()
        lines = self._lines
        if lines is not None:
            with suppress(OSError):
                lines.hang_up()

    def _write(self, message: Message) -> None:
        lines = self._lines
        if lines is None:
            raise ConnectionError("not connected")
        lines.send(message)

    def _run(self) -> None:
        pauses = BackOff(0.1, 3.0)
        while not self._closed.is_set():
            if self._serve_once():
                pauses.worked()
            self._closed.wait(pauses.pause())

    def _serve_once(self) -> bool:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        lines = BlockingLines(connection)
        try:
            connection.connect(self._path)
            lines.send({"hello": self._name})
        except OSError:
            lines.close()
            return False
        self._lines = lines
        self._connected.set()
        try:
            for message in lines.messages(self._read):
                self.received(message)
        except (OSError, ValueError) as error:
            log.info("the connection to %s broke off: %s", self._path, error)
        self._connected.clear()
        self._lines = None
        lines.close()
        self.lost()
        if not self._closed.is_set():
            self._on_lost()
        return True
