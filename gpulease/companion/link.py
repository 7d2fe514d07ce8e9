"""The private line between a supervisor and one companion process: JSON, one object a line.

Owns framing over a socket pair that the companion inherits; nobody else can reach it.  Knows
nothing of what is said.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Mapping
from typing import Any

_LIMIT = 16 * 2**20  # a sys.path and an environment are far below this


class LinkEnd:
    """The companion's end: blocking, for threads; ``send`` may be called from any of them."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)
        self._reader = self._socket.makefile("rb")
        self._lock = threading.Lock()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one object; raises ``OSError`` when the supervisor is gone."""
        line = json.dumps(message).encode() + b"\n"
        with self._lock:
            self._socket.sendall(line)

    def receive(self) -> dict[str, Any] | None:
        """Wait for one object; None when the supervisor is gone."""
        line = self._reader.readline(_LIMIT)
        if not line.endswith(b"\n"):
            return None
        found: dict[str, Any] = json.loads(line)
        return found


class Link:
    """The supervisor's end, on its event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, mine: socket.socket) -> Link:
        """Wrap this side of a socket pair."""
        reader, writer = await asyncio.open_unix_connection(sock=mine, limit=_LIMIT)
        return cls(reader, writer)

    def send(self, message: Mapping[str, Any]) -> None:
        """Queue one object; silently lost when the companion is gone, as its end is watched."""
        if not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")

    async def receive(self) -> dict[str, Any] | None:
        """Wait for one object; None when the companion is gone."""
        try:
            line = await self._reader.readline()
        except ConnectionError:
            return None
        if not line.endswith(b"\n"):
            return None
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """Close this end; the companion ends itself when it sees that."""
        self._writer.close()
