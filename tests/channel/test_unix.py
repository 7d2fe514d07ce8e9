"""Who may open the socket, what a wrong client costs, and what a stopped one may take."""

import asyncio
import gc
import json
import socket
import stat
import weakref
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gpulease.channel.lines import BACKLOG
from gpulease.channel.unix import UnixClient, UnixServer
from gpulease.errors import GPULeaseError
from tests.helpers import wait_for_async


@asynccontextmanager
async def serving(directory):
    async def called(client: str, name: str, args: dict[str, Any]) -> Any:
        return [client, name, args]

    server = UnixServer(directory / "s", lambda: [{"event": "hello"}], called, "It failed")
    await server.open()
    try:
        yield server
    finally:
        await server.close()


async def test_only_its_owner_may_open_it_and_it_is_removed(tmp_path) -> None:
    async with serving(tmp_path) as server:
        assert stat.S_IMODE(server.path.stat().st_mode) == 0o600
    assert not server.path.exists()


async def test_a_line_that_is_none_costs_the_connection_that_sent_it(tmp_path) -> None:
    async with serving(tmp_path) as server:
        for first in (b"{not json\n", b"[]\n", b'{"hello": ""}\n', b"[" * 100_000 + b"\n"):
            reader, writer = await asyncio.open_unix_connection(str(server.path))
            writer.write(first)
            assert await asyncio.wait_for(reader.read(), 30) == b""
            writer.close()
        assert server.clients == set()


async def test_a_client_that_stops_reading_is_hung_up_on(tmp_path) -> None:
    async with serving(tmp_path) as server:
        stopped = socket.socket(socket.AF_UNIX)
        stopped.connect(str(server.path))
        stopped.sendall(b'{"hello": "stopped"}\n')
        reader, writer = await asyncio.open_unix_connection(str(server.path), limit=2**20)
        writer.write(b'{"hello": "reads"}\n')
        await wait_for_async(lambda: len(server.clients) == 2, 30, "both clients")
        assert json.loads(await reader.readline()) == {"event": "hello"}
        sent, text = 0, "x" * 100_000
        while "stopped" in server.clients:
            server.push({"event": "tick", "text": text})
            sent += 1
            assert sent * len(text) < 2 * BACKLOG, "what nobody reads grows without bound"
            assert json.loads(await reader.readline())["event"] == "tick"
        assert server.clients == {"reads"}
        stopped.close()
        writer.close()


async def test_what_a_client_asked_is_done_though_it_has_gone(tmp_path) -> None:
    go_on: list[asyncio.Future[None]] = []
    done: list[str] = []

    async def called(client: str, name: str, args: dict[str, Any]) -> Any:
        # Nothing but the task itself knows what it waits for: a collector may take both.
        future = asyncio.get_running_loop().create_future()
        go_on.append(weakref.proxy(future))
        await future
        done.append(name)

    server = UnixServer(tmp_path / "s", list, called, "It failed")
    await server.open()
    _, writer = await asyncio.open_unix_connection(str(server.path))
    writer.write(b'{"hello": "k1"}\n{"id": 1, "call": "ask", "args": {}}\n')
    await wait_for_async(lambda: go_on, 30, "the call")
    writer.close()
    await wait_for_async(lambda: not server.clients, 30, "that it has gone")
    gc.collect()
    go_on[0].set_result(None)
    await wait_for_async(lambda: done == ["ask"], 30, "what was asked")
    await server.close()


async def test_a_call_that_is_late_says_so_and_is_taken_back(tmp_path) -> None:
    taken_back = asyncio.Event()

    async def called(client: str, name: str, args: dict[str, Any]) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            taken_back.set()

    server = UnixServer(tmp_path / "s", lambda: [{"event": "hello"}], called, "It failed")
    await server.open()
    client = UnixClient(
        str(server.path), "k1", pushed=lambda _: None, lost=lambda: None,
        gone=lambda: GPULeaseError("gone", "It is gone."),
        late=lambda: GPULeaseError("late", "It is late."),
    )  # fmt: skip
    await wait_for_async(lambda: server.clients == {"k1"}, 30, "the client")
    with pytest.raises(GPULeaseError, match="It is late"):
        await asyncio.to_thread(client.call, "ask", {}, 0.2)
    await asyncio.wait_for(taken_back.wait(), 30)
    client.close()
    await server.close()
