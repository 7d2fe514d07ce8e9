"""Two ends of a wire as on two machines: no shared memory in reach, and somebody between them."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from gpulease.channel.curve import new_keys
from gpulease.wire import door, shortcut
from gpulease.wire.connection import Wire
from gpulease.wire.door import Proved, StreamKeys
from gpulease.wire.lane import PIECE
from gpulease.wire.message import Message
from gpulease.wire.seal import TAG
from gpulease.wire.stream import HELLO
from tests.helpers import wait_for

#: Pieces of a message, the last of them short.
PIECES = 9
NAME = 16
HEAD = struct.Struct(">BI")


def content(seed: int) -> bytearray:
    return bytearray(os.urandom(PIECE) * (PIECES - 1) + os.urandom(7 + seed))


def far_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no two ends meet in shared memory."""

    def nowhere() -> None:
        raise OSError("as on another machine")

    monkeypatch.setattr(shortcut, "Listening", nowhere)


class Ends:
    """A client and a server; ``by_first`` counts pieces that went by the first wire."""

    def __init__(self, port: int | None = 0, *, wait: bool = True) -> None:
        self.blob = content(1)
        self.taken: list[Message] = []
        self.by_first = 0
        self.server = Wire(self.handle)
        self.client = Wire(lambda _: None)
        self.home = new_keys()
        self.endpoint = self.server.listen(self.home.public, "127.0.0.1", second=port)
        for wire in (self.client, self.server):
            self.count(wire)
        self.client.connect(self.endpoint, self.home)
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until both have the streams and ask by them."""
        wait_for(lambda: self.way(self.server) and self.way(self.client), 30, "the second wire")

    def way(self, wire: Wire) -> bool:
        return wire._second.bulk is not None and wire._pulls._way is wire._second.bulk

    def count(self, wire: Wire) -> None:
        answer = wire._offers.answer

        def counted(head: dict) -> list:
            self.by_first += 1
            return answer(head)

        wire._offers.answer = counted  # type: ignore[method-assign]

    def handle(self, message: Message) -> None:
        self.taken.append(message)
        self.server.reply(message, {}, [self.blob] if message.kind == "bring" else [])

    def bring(self) -> bytearray:
        reply = self.client.request("bring", {}).wait(60)
        assert reply is not None
        return reply.blobs[0]

    def send(self, blob: bytearray) -> bytearray:
        assert self.client.request("put", {}, [blob]).wait(60) is not None
        return self.taken.pop().blobs[0]

    def close(self) -> None:
        self.client.close()
        self.server.close()


#: Gets each frame of one direction and gives what goes on; None hangs up.
Tamper = Callable[[bytes], bytes | None]


class Between:
    """Somebody on the network: passes on what both ends say, and tampers with what is returned."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tamper: Tamper) -> None:
        self._tamper = tamper
        self.heard: list[bytes] = []
        original = door.call

        def call(host: str, port: int, keys: list[StreamKeys]) -> list[Proved]:
            return original(host, self._listen(port), keys)

        monkeypatch.setattr(door, "call", call)

    def _listen(self, port: int) -> int:
        listening = socket.create_server(("127.0.0.1", 0))

        def serve() -> None:
            listening.settimeout(10)
            with listening, suppress(OSError):
                for _ in range(door.how_many()):
                    client = listening.accept()[0]
                    try:
                        server = socket.create_connection(("127.0.0.1", port))
                    except OSError:  # it has ended meanwhile
                        client.close()
                        raise
                    for work in (self._there, self._home):
                        threading.Thread(target=work, args=(client, server), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        return listening.getsockname()[1]

    def _there(self, client: socket.socket, server: socket.socket) -> None:
        with server, suppress(OSError):
            self.heard.append(exactly(client, NAME + HELLO))
            server.sendall(self.heard[-1])
            while data := client.recv(PIECE):
                server.sendall(data)
            server.shutdown(socket.SHUT_RDWR)

    def _home(self, client: socket.socket, server: socket.socket) -> None:
        with client, suppress(OSError):
            client.sendall(exactly(server, HELLO))
            for frame in frames(server):
                changed = self._tamper(frame)
                if changed is None:
                    break
                client.sendall(changed)
            client.shutdown(socket.SHUT_RDWR)
            server.shutdown(socket.SHUT_RDWR)


def exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("hung up")
        data += more
    return data


def frames(connection: socket.socket) -> Iterator[bytes]:
    while True:
        head = exactly(connection, HEAD.size)
        yield head + exactly(connection, HEAD.unpack(head)[1] + TAG)
