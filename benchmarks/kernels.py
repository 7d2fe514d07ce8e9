"""Runs cells in a kernel started here, as a notebook does, and times what a person would see.

Kernels of a hub's servers are reached by ``gpulease.demo.browse``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from jupyter_client.manager import AsyncKernelManager


class CellError(RuntimeError):
    """A cell of a benchmark failed; the figures would mean nothing."""


@dataclass
class Cell:
    """What one cell showed: seconds to reply and idle and to its first line, and its text."""

    seconds: float = 0.0
    first: float = 0.0
    text: str = ""
    error: str = ""


async def run(kernel: OwnKernel, source: str, *, deadline: float = 300.0) -> Cell:
    """Run a cell to its reply and idle state; raise CellError when it fails or takes too long."""
    cell = Cell()
    started = time.perf_counter()
    waiting = {"execute_reply", "idle"}
    async with asyncio.timeout(deadline):
        request = await kernel.send(source)
        while waiting:
            message = await kernel.receive()
            if message.get("parent_header", {}).get("msg_id") == request:
                waiting.discard(_note(cell, message))
                if cell.text and not cell.first:
                    cell.first = time.perf_counter() - started
    cell.seconds = time.perf_counter() - started
    if cell.error:
        raise CellError(f"{source!r} failed: {cell.error}\n{cell.text}")
    return cell


def _note(cell: Cell, message: dict[str, Any]) -> str:
    """Enter one message into the cell; return which end it was, if one."""
    kind, content = message["header"]["msg_type"], message["content"]
    if kind == "stream":
        cell.text += content["text"]
    elif kind == "error":
        cell.error = f"{content['ename']}: {content['evalue']}"
        cell.text += "\n".join(content["traceback"])
    elif kind == "execute_reply":
        if content["status"] != "ok" and not cell.error:
            cell.error = f"{content.get('ename')}: {content.get('evalue')}"
        return "execute_reply"
    elif kind == "status":
        return str(content["execution_state"])
    return ""


class OwnKernel:
    """A kernel started here, as Jupyter starts one."""

    def __init__(self) -> None:
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._client: Any = None
        #: What the kernel extension tells front ends, once ``listen`` was called.
        self.state: dict[str, Any] = {}
        self._told = asyncio.Condition()

    @classmethod
    @contextlib.asynccontextmanager
    async def start(cls, **environment: str) -> AsyncIterator[OwnKernel]:
        """Start a Python kernel with one hash seed, as the hub's servers have, and end it."""
        kernel = cls()
        manager = AsyncKernelManager(kernel_name="python3")
        await manager.start_kernel(env={**os.environ, "PYTHONHASHSEED": "0", **environment})
        kernel._client = manager.client()
        kernel._client.start_channels()
        await kernel._client.wait_for_ready(timeout=60)
        readers = [
            asyncio.create_task(kernel._read(kernel._client.get_iopub_msg)),
            asyncio.create_task(kernel._read(kernel._client.get_shell_msg)),
        ]
        try:
            yield kernel
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
            kernel._client.stop_channels()
            await manager.shutdown_kernel(now=False)

    async def listen(self) -> None:
        """Open the comm by which gpulease keeps a front end informed."""
        content = {"comm_id": uuid.uuid4().hex, "target_name": "gpulease", "data": {}}
        self._client.shell_channel.send(self._client.session.msg("comm_open", content))
        await run(self, "pass")

    async def told_of(self, source: str) -> dict[str, Any]:
        """Run a GPU cell and return what front ends are told of it; after ``listen``."""
        before = self.state.get("last_cell")
        await run(self, source)
        async with asyncio.timeout(60), self._told:
            await self._told.wait_for(lambda: self.state.get("last_cell") != before)
        return dict(self.state["last_cell"])

    async def _read(self, get: Any) -> None:
        while True:
            message = await get()
            if message["header"]["msg_type"] == "comm_msg":
                async with self._told:
                    self.state.update(message["content"]["data"].get("state", {}))
                    self._told.notify_all()
            else:
                await self._messages.put(message)

    async def send(self, source: str) -> str:
        """Send an execute request on the shell channel."""
        message_id: str = self._client.execute(source, store_history=True)
        return message_id

    async def receive(self) -> dict[str, Any]:
        """Return the next message of either channel."""
        return await self._messages.get()
