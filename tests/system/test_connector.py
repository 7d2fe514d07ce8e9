"""A connection over TLS to somebody who never says good-bye, as a proxy that is busy or stopped."""

import asyncio
import base64
import contextlib
import gc
import hashlib
import socket
import ssl
from pathlib import Path

import aiohttp
import pytest

from gpulease.system.connector import Connector
from testcluster.pki import Authority
from tests.helpers import tcp_server

_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
#: The other side never answers, however long it is waited for.
_AT_ONCE = aiohttp.ClientWSTimeout(ws_close=0.01)


class Silent:
    """Opens websockets, and reads nothing that is said there."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        (key,) = (
            line.partition(b":")[2].strip()
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"sec-websocket-key")
        )
        accept = base64.b64encode(hashlib.sha1(key + _MAGIC).digest())
        writer.write(
            b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await self.lost.wait()
        writer.transport.abort()


def contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the server's side of TLS and the client's."""
    authority, pair = Authority.new(), folder / "pair.pem"
    pair.write_bytes(authority.server("127.0.0.1"))
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(pair)
    return server, ssl.create_default_context(cadata=authority.pem())


async def test_a_closed_websocket_is_ended_though_nobody_answers(tmp_path: Path) -> None:
    context, ours = contexts(tmp_path)
    silent = Silent()
    connector = Connector(ssl=ours)
    async with tcp_server(silent.serve, context) as port:
        async with aiohttp.ClientSession(connector=connector) as session:
            talk = await session.ws_connect(f"https://127.0.0.1:{port}/", timeout=_AT_ONCE)
            connection = talk.get_extra_info("socket")
            await talk.close()
        assert connection.fileno() >= 0, "the session has forgotten it, and it is open"
        await connector.end()
        assert connection.fileno() == -1
        silent.lost.set()


@pytest.mark.parametrize("turns", range(60))
async def test_a_call_that_is_cancelled_while_it_connects_leaves_nothing(
    tmp_path: Path, turns: int
) -> None:
    context, ours = contexts(tmp_path)
    opened: list[socket.socket] = []

    def open_socket(address: aiohttp.AddrInfoType) -> socket.socket:
        opened.append(socket.socket(*address[:3]))
        return opened[-1]

    silent = Silent()
    connector = Connector(ssl=ours, socket_factory=open_socket)
    async with tcp_server(silent.serve, context) as port:
        async with aiohttp.ClientSession(connector=connector) as session:
            call = asyncio.ensure_future(session.get(f"https://127.0.0.1:{port}/"))
            for _ in range(turns):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
        await connector.end()
        assert [each.fileno() for each in opened] == [-1] * len(opened)
        silent.lost.set()


def test_clients_of_many_loops_leave_no_descriptor_open() -> None:
    async def one_client() -> None:
        async with aiohttp.ClientSession(connector=Connector()) as session:
            with contextlib.suppress(aiohttp.ClientError):
                await session.get("http://localhost:9/")

    asyncio.run(one_client())
    gc.collect()  # what other tests have left closes now, or later in the middle of this one
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        asyncio.run(one_client())
    assert len(list(Path("/proc/self/fd").iterdir())) == before
