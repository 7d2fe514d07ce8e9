"""How the streams of a second wire begin: their keys, the listening end and the calling end.

The server makes keys for this one meeting, two for each stream, and sends them over the encrypted
wire.  The caller names a stream and proves its keys, and the server proves them back; each name
counts once.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpulease.wire.seal import KEY, Opener, Sealer
from gpulease.wire.stream import HELLO, heard, hello

log = logging.getLogger(__name__)

_NAME = 16
#: Seconds that a connection may take, and the hello after it.
_PATIENCE = 5.0
#: Callers that have yet to prove themselves; the oldest makes room for another.
_CALLERS = 16
#: Streams of a meeting at most: one has no use beyond a core.
_MOST = 4

#: A connection, and the seals for what goes and what comes.
Proved = tuple[socket.socket, tuple[Sealer, Opener]]


@dataclass(frozen=True)
class StreamKeys:
    """A stream's name and its two keys; those are never shown."""

    name: bytes
    to_server: bytes = field(repr=False)
    to_client: bytes = field(repr=False)

    @classmethod
    def new(cls) -> StreamKeys:
        """Return keys that were never used."""
        return cls(*(secrets.token_bytes(size) for size in (_NAME, KEY, KEY)))

    def to_json(self) -> list[str]:
        """Return what travels over the encrypted wire."""
        return [self.name.hex(), self.to_server.hex(), self.to_client.hex()]

    @classmethod
    def from_json(cls, said: Sequence[str]) -> StreamKeys:
        """Return what ``to_json`` gave; raises ``ValueError``."""
        name, *keys = (bytes.fromhex(each) for each in said)
        if len(name) != _NAME or [len(key) for key in keys] != [KEY, KEY]:
            raise ValueError("no keys of a stream")
        return cls(name, *keys)


def how_many() -> int:
    """Return how many streams this machine has use for."""
    return min(_MOST, max(2, len(os.sched_getaffinity(0)) // 2))


class Listening:
    """The server's end: it has all streams, or is closed."""

    def __init__(self, host: str, port: int, number: int) -> None:
        """Listen on ``port`` (0: any); raises ``OSError``."""
        self.keys = [StreamKeys.new() for _ in range(number)]
        self._waited = {each.name: (index, each) for index, each in enumerate(self.keys)}
        self._proved: dict[int, Proved] = {}
        self._callers: dict[socket.socket, bytearray] = {}
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=_CALLERS)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]

    def fileno(self) -> int:
        """Return what to poll for callers."""
        return self._socket.fileno()

    def accept(self) -> tuple[socket.socket | None, socket.socket | None]:
        """Return a caller that has yet to prove itself, and one that was hung up on for it."""
        try:
            caller = self._socket.accept()[0]
        except OSError:
            return None, None
        caller.setblocking(False)
        oldest = next(iter(self._callers)) if len(self._callers) >= _CALLERS else None
        self._callers[caller] = bytearray()
        return caller, oldest

    def hear(self, caller: socket.socket) -> bool:
        """Take what a caller says; return whether it is done with, proved or to be dropped."""
        said = self._callers[caller]
        try:
            more = caller.recv(_NAME + HELLO - len(said))
        except BlockingIOError:
            return False
        except OSError:
            more = b""
        said += more
        if more and len(said) < _NAME + HELLO:
            return False
        if not more or not self._prove(caller, bytes(said)):
            log.info("transfer wire: a stranger at the second door was sent away")
            self.drop(caller)
        else:
            del self._callers[caller]
        return True

    def _prove(self, caller: socket.socket, said: bytes) -> bool:
        name = said[:_NAME]
        if name not in self._waited:
            return False
        index, keys = self._waited[name]
        opener, sealer = Opener(keys.to_server), Sealer(keys.to_client)
        if not heard(opener, name, said[_NAME:]):
            return False
        try:
            caller.send(hello(sealer, name))
        except OSError:
            return False
        del self._waited[name]
        self._proved[index] = caller, (sealer, opener)
        return True

    def drop(self, caller: socket.socket) -> None:
        """Hang up on a caller."""
        self._callers.pop(caller, None)
        caller.close()

    @property
    def complete(self) -> bool:
        """True once all streams are there."""
        return not self._waited

    @property
    def callers(self) -> list[socket.socket]:
        """Those that have yet to prove themselves."""
        return list(self._callers)

    def take(self) -> list[Proved]:
        """Return the streams in their order, and listen no longer."""
        proved, self._proved = self._proved, {}
        self.close()
        return [proved[index] for index in sorted(proved)]

    def close(self) -> None:
        """Listen no longer, and hang up."""
        self._socket.close()
        for caller in (*self._callers, *(one for one, _ in self._proved.values())):
            caller.close()
        self._callers.clear()
        self._proved.clear()


def call(host: str, port: int, keys: Sequence[StreamKeys]) -> list[Proved]:
    """Return the client's streams; blocks for as long as the network lets it wait.

    Raises:
        OSError: the server cannot be reached there, or who is there does not know the keys.
    """
    made: list[Proved] = []
    try:
        for each in keys:
            made += [_call(host, port, each)]
    except BaseException:
        for one, _ in made:
            one.close()
        raise
    return made


def _call(host: str, port: int, keys: StreamKeys) -> Proved:
    one = socket.create_connection((host, port), _PATIENCE)
    try:
        sealer, opener = Sealer(keys.to_server), Opener(keys.to_client)
        one.sendall(keys.name + hello(sealer, keys.name))
        said = b""
        while len(said) < HELLO:
            more = one.recv(HELLO - len(said))
            if not more:
                raise ConnectionError("the other end hung up")
            said += more
        if not heard(opener, keys.name, said):
            raise PermissionError("who answers there does not know the keys")
    except BaseException:
        one.close()
        raise
    return one, (sealer, opener)


def read_door(head: Mapping[str, Any]) -> tuple[int, list[StreamKeys]]:
    """Return the port and the keys that a ``door`` message says; raises ``ValueError``."""
    port, said = head["port"], head["keys"]
    if not 0 < port < 2**16 or not 0 < len(said) <= _MOST:
        raise ValueError("no door")
    return port, [StreamKeys.from_json(each) for each in said]
