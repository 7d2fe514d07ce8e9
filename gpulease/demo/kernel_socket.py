"""A notebook's websocket to its kernel, as a program.

It sends cells as a front end does, and collects what they show.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp

from gpulease.errors import GPULeaseError

#: Answers an ``input()``: gets the prompt, returns the line.
Answer = Callable[[str], str]


@dataclass
class CellRun:
    """What one cell showed.  ``outputs`` are the iopub messages in order."""

    code: str
    status: str = ""
    error: str = ""
    execution_count: int | None = None
    seconds: float = 0.0
    #: Seconds from the request to the first line printed; None when nothing was.
    first_line: float | None = None
    outputs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Everything printed, and the plain text of what was displayed."""
        parts = []
        for message in self.outputs:
            content = message["content"]
            if message["header"]["msg_type"] == "stream":
                parts.append(content["text"])
            elif "data" in content:
                parts.append(str(content["data"].get("text/plain", "")))
        return "".join(parts)

    @property
    def mime_types(self) -> set[str]:
        """The types of all that was displayed."""
        return {mime for message in self.outputs for mime in (message["content"].get("data") or {})}


class KernelSocket:
    """One open websocket; cells run one at a time or several at once."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._session = uuid.uuid4().hex
        self._waiting: dict[str, asyncio.Queue[dict[str, Any] | None]] = {}
        self._reader = asyncio.ensure_future(self._read())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the socket; the kernel keeps running."""
        await self._socket.close()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def execute(
        self, code: str, *, seconds: float = 120, answer: Answer | None = None
    ) -> CellRun:
        """Run one cell to its end and return what it showed; an error is in the result.

        Raises:
            TimeoutError: it did not end within ``seconds``.
            GPULeaseError: ``kernel_lost`` when the websocket closed meanwhile.
        """
        run = CellRun(code)
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": answer is not None,
            "stop_on_error": True,
        }
        message_id = uuid.uuid4().hex
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._waiting[message_id] = queue
        began = time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                await self._send("shell", "execute_request", content, message_id)
                await self._collect(run, queue, answer, began)
        finally:
            del self._waiting[message_id]
        run.seconds = time.monotonic() - began
        return run

    async def _collect(
        self,
        run: CellRun,
        queue: asyncio.Queue[dict[str, Any] | None],
        answer: Answer | None,
        began: float,
    ) -> None:
        replied = idle = False
        while not (replied and idle):
            message = await queue.get()
            if message is None:
                raise GPULeaseError(
                    "kernel_lost",
                    "The kernel's websocket closed while a cell ran.",
                    next_step="Look for the server's and the proxy's lines in the log.",
                )
            kind, content = message["header"]["msg_type"], message["content"]
            if kind == "execute_reply":
                replied = True
                run.status = content["status"]
                run.execution_count = content.get("execution_count")
                if run.status == "error":
                    run.error = f"{content['ename']}: {content['evalue']}"
            elif kind == "status":
                idle = idle or content["execution_state"] == "idle"
            elif kind == "input_request":
                assert answer is not None
                await self._send("stdin", "input_reply", {"value": answer(content["prompt"])})
            elif kind != "execute_input":
                if kind == "stream" and run.first_line is None:
                    run.first_line = time.monotonic() - began
                run.outputs.append(message)

    async def _send(
        self, channel: str, kind: str, content: dict[str, Any], message_id: str = ""
    ) -> None:
        header = {
            "msg_id": message_id or uuid.uuid4().hex,
            "msg_type": kind,
            "session": self._session,
            "username": "",
            "version": "5.3",
            "date": "",
        }
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
        await self._socket.send_str(json.dumps({**message, "channel": channel, "buffers": []}))

    async def _read(self) -> None:
        try:
            async for frame in self._socket:
                if frame.type is aiohttp.WSMsgType.TEXT:
                    self._take(json.loads(frame.data))
                elif frame.type is aiohttp.WSMsgType.BINARY:
                    self._take(_without_buffers(frame.data))
        finally:
            for queue in self._waiting.values():
                queue.put_nowait(None)

    def _take(self, message: dict[str, Any]) -> None:
        parent = (message.get("parent_header") or {}).get("msg_id", "")
        queue = self._waiting.get(parent)
        if queue is not None:  # else it belongs to no cell of ours
            queue.put_nowait(message)


def _without_buffers(data: bytes) -> dict[str, Any]:
    """Return the message of a frame that carries buffers (widget images, for example)."""
    count = int.from_bytes(data[:4], "big")
    offsets = [int.from_bytes(data[4 * (i + 1) : 4 * (i + 2)], "big") for i in range(count)]
    end = offsets[1] if count > 1 else len(data)
    message: dict[str, Any] = json.loads(data[offsets[0] : end])
    return message
