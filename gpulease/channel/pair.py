"""A socket pair between a process and its child; nobody else can reach it."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

from gpulease.channel.asynchronous import AsynchronousEnd, Handler
from gpulease.channel.conversation import Message
from gpulease.channel.lines import BlockingLines, Lines
from gpulease.channel.threaded import ThreadedEnd
from gpulease.errors import GPULeaseError

log = logging.getLogger("gpulease.channel")

_LINE = 16 * 2**20  # a sys.path and an environment are far below this


class ParentEnd(AsynchronousEnd):
    """The parent's side, on its event loop; made by ``over``.

    Attributes:
        gone: set when the child has ended.
    """

    def __init__(
        self,
        lines: Lines,
        pushed: Callable[[Message], None],
        error: GPULeaseError,
        called: Handler | None,
    ) -> None:
        super().__init__(lines.send, called=called, pushed=pushed)
        self.gone = asyncio.Event()
        self._lines = lines
        self._reader = asyncio.ensure_future(self._read(error))

    @classmethod
    async def over(
        cls,
        mine: socket.socket,
        pushed: Callable[[Message], None],
        gone: GPULeaseError,
        *,
        called: Handler | None = None,
    ) -> ParentEnd:
        """Wrap this side of a socket pair; ``gone`` is what calls to a child that ended get."""
        reader, writer = await asyncio.open_unix_connection(sock=mine, limit=_LINE)
        return cls(Lines(reader, writer), pushed, gone, called)

    def close(self) -> None:
        """Close this end; the child ends itself when it sees that."""
        super().close()
        self._lines.close()

    async def _read(self, error: GPULeaseError) -> None:
        try:
            while (message := await self._lines.receive()) is not None:
                self.received(message)
        except ValueError:
            log.exception("a child process sent what is no message: its line is closed")
            self._lines.close()
        finally:
            self.lost(error)
            self.gone.set()


class ChildEnd(ThreadedEnd):
    """The child's side.

    Args:
        fd: the inherited descriptor.
        called: see ``ThreadedEnd``.
    """

    def __init__(self, fd: int, called: Callable[[str, Message], Any]) -> None:
        connection = socket.socket(fileno=fd)
        connection.set_inheritable(False)
        self._lines = BlockingLines(connection)
        super().__init__(self._lines.send, lambda _: None, _parent_gone, called)

    def serve(self) -> None:
        """Take what the parent says until it is gone."""
        try:
            for message in self._lines.messages():
                self.received(message)
        except ConnectionError:
            log.info("the parent process is gone")
        self._lines.close()
        self.lost()


def _parent_gone() -> GPULeaseError:
    return GPULeaseError("parent_gone", "The parent process is gone.")
