"""The bus: a Unix socket on which this server's kernels ask and learn about leases.

Owns the socket, its framing (JSON, one object a line) and who is connected.  Refuses to know what
a call does: a handler answers it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpulease.errors import GPULeaseError

log = logging.getLogger("gpulease.lab")

#: Answers a call: (kernel id, name, arguments).
Handler = Callable[[str, str, dict[str, Any]], Awaitable[Any]]
Greeting = Callable[[], list[dict[str, Any]]]
_LINE = 2**20
_OWN_DIRECTORY = "gpulease-bus-"
_PATH_MAX = 100  # a socket address holds 108 bytes


class Bus:
    """The server's end of the bus.

    Args:
        path: of the socket; mode 0600, removed by ``close``.
        greeting: the events that a kernel gets first.
        handler: answers calls; a ``GPULeaseError`` goes back as a problem.
    """

    def __init__(self, path: Path, greeting: Greeting, handler: Handler) -> None:
        self.path = path
        self._greeting = greeting
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._kernels: dict[asyncio.StreamWriter, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()

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
        for writer in list(self._kernels):
            writer.close()
        for task in list(self._tasks):
            task.cancel()
        self.path.unlink(missing_ok=True)
        if self.path.parent.name.startswith(_OWN_DIRECTORY):
            with suppress(OSError):
                self.path.parent.rmdir()

    @property
    def kernels(self) -> set[str]:
        """Ids of the kernels that are connected."""
        return set(self._kernels.values())

    def tell(self, event: Mapping[str, Any]) -> None:
        """Send an event to every kernel."""
        for writer in self._kernels:
            _write(writer, event)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            hello = await _read(reader)
            kernel_id = str((hello or {}).get("hello") or "")
            if not kernel_id:
                return
            for event in self._greeting():
                _write(writer, event)
            self._kernels[writer] = kernel_id
            while (message := await _read(reader)) is not None:
                self._begin(writer, kernel_id, message)
        except (ConnectionError, ValueError) as error:
            log.info("a kernel's connection to the bus broke off: %s", error)
        finally:
            self._kernels.pop(writer, None)
            with suppress(ConnectionError):
                writer.close()

    def _begin(self, writer: asyncio.StreamWriter, kernel_id: str, message: dict[str, Any]) -> None:
        task = asyncio.ensure_future(self._answer(writer, kernel_id, message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(
        self, writer: asyncio.StreamWriter, kernel_id: str, message: dict[str, Any]
    ) -> None:
        number = message.get("id")
        try:
            args = message.get("args") or {}
            if not isinstance(message.get("call"), str) or not isinstance(args, dict):
                raise GPULeaseError("malformed", "A call on the bus needs id, call and args.")
            found = await self._handler(kernel_id, message["call"], args)
            answer = {"id": number, "ok": found}
        except GPULeaseError as error:
            answer = {"id": number, "problem": error.to_problem()}
        except Exception:  # a border: the kernel gets an answer, the log the failure, never a hang
            reference = secrets.token_hex(4)
            log.exception("a call on the bus failed, reference %s", reference)
            problem = GPULeaseError(
                "internal",
                f"The notebook server failed (reference {reference}).",
                numbers={"reference": reference},
                status=500,
            )
            answer = {"id": number, "problem": problem.to_problem()}
        if number is not None:
            _write(writer, answer)


def socket_path(runtime_dir: Path) -> Path:
    """Return a path for a server's bus that fits into a socket address."""
    name = f"gpulease-{os.getpid()}-{secrets.token_hex(4)}.sock"
    if len(str(runtime_dir / name)) <= _PATH_MAX:
        runtime_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        return runtime_dir / name
    return Path(tempfile.mkdtemp(prefix=_OWN_DIRECTORY)) / name


async def _read(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    line = await reader.readline()
    if not line.endswith(b"\n"):
        return None
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError("not an object")  # noqa: TRY004 - as JSON that does not parse
    return found


def _write(writer: asyncio.StreamWriter, message: Mapping[str, Any]) -> None:
    # Messages are small and a kernel reads on a thread of its own, so nothing piles up here.
    if not writer.is_closing():
        writer.write(json.dumps(message).encode() + b"\n")
