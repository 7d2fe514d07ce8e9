"""A wire between a client and the API server that a test can cut, freeze and repair."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit


class Relay:
    """Passes bytes on, both ways."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._writers: set[asyncio.StreamWriter] = set()
        self._served: set[asyncio.Task[None]] = set()
        self.away = False
        self.connections = 0

    def cut(self) -> None:
        """Break every connection now; new ones are taken."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def end(self) -> None:
        """Break every connection, and return once their transports have ended."""
        while self._served:
            self.cut()
            await asyncio.wait(self._served, timeout=0.1)  # one may just have been taken

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._served.add(task)
        task.add_done_callback(self._served.discard)
        async with self._held(writer):
            if self.away:
                writer.transport.abort()
                return
            self.connections += 1
            with suppress(OSError):
                far_reader, far_writer = await asyncio.open_connection(*self._target)
                async with self._held(far_writer):
                    await asyncio.gather(
                        self._pass(reader, far_writer), self._pass(far_reader, writer)
                    )

    @asynccontextmanager
    async def _held(self, writer: asyncio.StreamWriter) -> AsyncIterator[None]:
        """Let a connection be cut, and end it with the block."""
        self._writers.add(writer)
        try:
            yield
        finally:
            _close(writer)
            with suppress(OSError):
                await writer.wait_closed()
            self._writers.discard(writer)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        _close(writer)


def _close(writer: asyncio.StreamWriter) -> None:
    """Begin a connection's end, once: a TLS transport closed twice cannot be cut any more."""
    if not writer.is_closing():
        writer.close()


@asynccontextmanager
async def relayed(kubeconfig: Path, directory: Path) -> AsyncIterator[tuple[Relay, Path]]:
    """Yield a relay to the server of a kubeconfig, and a kubeconfig that goes through it."""
    relay = Relay(*_server_of(kubeconfig))
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield relay, _write(kubeconfig, directory / "relayed", f"https://127.0.0.1:{port}")
    finally:
        server.close()
        await relay.end()


def _server_of(kubeconfig: Path) -> tuple[str, int]:
    document = json.loads(kubeconfig.read_text(encoding="utf-8"))
    address = urlsplit(document["clusters"][0]["cluster"]["server"])
    assert address.hostname
    assert address.port
    return address.hostname, address.port


def _write(kubeconfig: Path, path: Path, server: str) -> Path:
    document = json.loads(kubeconfig.read_text(encoding="utf-8"))
    document["clusters"][0]["cluster"]["server"] = server
    path.write_text(json.dumps(document), encoding="utf-8")
    return path
