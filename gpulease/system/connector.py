"""Connections of one HTTP client, each known until its transport has really ended.

aiohttp forgets a connection whose call was cancelled, or whose websocket was closed, while TLS
still says good-bye: for half a minute if the other side does not answer, and for ever if the loop
ends first.  And asyncio keeps one open for ever whose maker was cancelled when its socket was
connected and TLS had not begun: a transport that is closed then does not close its socket.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

log = logging.getLogger(__name__)

#: Seconds that cut connections may take to end; nobody else is waited for, so they need none.
END_SECONDS = 5.0


class Connector(aiohttp.TCPConnector):
    """A connector that knows each connection it makes or made and has not lost yet."""

    def __init__(self, **options: Any) -> None:
        # Where aiodns is installed (the hub brings it) aiohttp looks names up with it, and cancels
        # its resolver at the end without closing it: a thread and five descriptors stay open.
        super().__init__(resolver=aiohttp.ThreadedResolver(), **options)
        self._making: set[asyncio.Task[ResponseHandler]] = set()
        self._made: dict[asyncio.Future[None], asyncio.BaseTransport] = {}

    async def _create_connection(self, *args: Any, **kwargs: Any) -> ResponseHandler:
        making = asyncio.ensure_future(super()._create_connection(*args, **kwargs))
        self._making.add(making)
        making.add_done_callback(self._keep)
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            making.add_done_callback(_cut)
            raise

    def _keep(self, making: asyncio.Task[ResponseHandler]) -> None:
        self._making.remove(making)
        if (protocol := _result(making)) is None:
            return
        ended, transport = protocol.closed, protocol.transport
        if ended is not None and transport is not None:
            self._made[ended] = transport
            ended.add_done_callback(self._lost)

    def _lost(self, ended: asyncio.Future[None]) -> None:
        del self._made[ended]
        if not ended.cancelled():
            ended.exception()  # how it ended is told by the call that used it

    async def end(self) -> None:
        """Cut every connection and return once their transports have ended."""
        if self._making:
            _, hung = await asyncio.wait(self._making.copy(), timeout=END_SECONDS)
            for making in hung:
                making.cancel()
                await asyncio.wait([making])
        for transport in self._made.values():
            if isinstance(transport, asyncio.WriteTransport):
                transport.abort()
        if self._made:
            await asyncio.wait(list(self._made), timeout=END_SECONDS)
        if self._made:
            log.warning("%d connections do not end", len(self._made))


def _cut(making: asyncio.Task[ResponseHandler]) -> None:
    """End a connection that nobody waits for any more."""
    if (protocol := _result(making)) is not None:
        protocol.abort()


def _result(making: asyncio.Task[ResponseHandler]) -> ResponseHandler | None:
    return None if making.cancelled() or making.exception() is not None else making.result()
