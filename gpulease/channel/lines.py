"""JSON objects, one a line, over a stream socket: what the Unix socket and the pair share."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator

from gpulease.channel.conversation import Message

log = logging.getLogger("gpulease.channel")

#: Bytes that wait for an end that does not read before it is hung up on.
BACKLOG = 4 * 2**20


class Lines:
    """A stream on an event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, message: Message) -> None:
        """Send without waiting; an end that has stopped reading is hung up on."""
        if self._writer.is_closing():
            return
        transport = self._writer.transport
        if transport.get_write_buffer_size() > BACKLOG:
            log.info("the other end of a socket has stopped reading: it is hung up on")
            transport.abort()
            return
        self._writer.write(encoded(message))

    async def receive(self) -> Message | None:
        """Return the next message; None when the other end is gone.

        Raises:
            ValueError: it sent what is no message, or too long a line.
        """
        try:
            line = await self._reader.readline()
        except ConnectionError:
            return None
        return decoded(line) if line.endswith(b"\n") else None

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


class BlockingLines:
    """A stream for threads: one reads, any of them sends."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._reader = connection.makefile("rb")
        self._lock = threading.Lock()

    def send(self, message: Message) -> None:
        """Send; raises ``OSError`` when the other end is gone."""
        line = encoded(message)
        with self._lock:
            self._socket.sendall(line)

    def messages(self, read: Callable[[str], str] = str) -> Iterator[Message]:
        """Yield what arrives until the other end is gone; ``read`` is given each line's text.

        Raises:
            ValueError: it sent what is no message.
        """
        for line in self._reader:
            if not line.endswith(b"\n"):
                return
            yield decoded(read(line.decode()))

    def hang_up(self) -> None:
        """End the reader's wait, from any thread."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        self._reader.close()
        self._socket.close()


#: Taken when this is imported: a notebook may replace ``json.dumps``.
to_json = json.JSONEncoder().encode


def encoded(message: Message) -> bytes:
    """Return a message as a line."""
    return to_json(message).encode() + b"\n"


def decoded(text: str | bytes) -> Message:
    """Return the message that a text is.

    Raises:
        ValueError: it is none.
    """
    try:
        found = json.loads(text)
    except RecursionError:
        found = None
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - as JSON that does not parse
    return found
