"""A few bytes on a socket that look like an API server: for faults that a real one never shows.

It answers with what a test scripted, cut into the pieces that the test wants.  Anything about
objects, rights or versions is tested against a real API server instead.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.helpers import tcp_server


@dataclass
class Script:
    """One answer: its status, its pieces, and whether the connection breaks afterwards."""

    status: int
    pieces: Sequence[bytes]
    broken: bool = False
    headers: dict[str, str] = field(default_factory=dict)


class Stream:
    """Plays scripts, one a request, and keeps what was asked."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts = list(scripts)
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *rest = head.strip().split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in rest)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.asked.append((first, headers, body))
        script = self.scripts.pop(0)
        lines = [f"HTTP/1.1 {script.status} Said", "Transfer-Encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in script.headers.items()]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        for piece in script.pieces:
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
        if not script.broken:
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        return not script.broken


def said(status: int, body: object, **headers: str) -> Script:
    return Script(status, [json.dumps(body).encode()], headers=headers)


@asynccontextmanager
async def playing(directory: Path, *scripts: Script) -> AsyncIterator[tuple[Stream, str]]:
    """Play scripts; yield the stream and the path of a kubeconfig that leads to it."""
    stream = Stream(*scripts)
    path = directory / "kubeconfig"
    async with tcp_server(stream.serve) as stream.port:
        write_config(path, stream.port, "first-token")
        yield stream, str(path)


def write_config(path: Path, port: int, token: str) -> None:
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}
    user = {"name": "u", "user": {"token": token}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [cluster], "users": [user], "contexts": [context],
    }  # fmt: skip
    path.write_text(json.dumps(config))
