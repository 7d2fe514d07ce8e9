"""The supervisor's websocket to the lease service.

Owns connecting, proving itself, saying hello, and connecting again for as long as the lease was
granted.  Silence of the service changes nothing in the lease: cells run on.  Refuses to know what
a message means.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import cast

from tornado.httpclient import HTTPError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, websocket_connect

from gpulease.protocol import SupervisorMessage

log = logging.getLogger("gpulease.companion")

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 10.0
_PING_SECONDS = 15.0
_KEPT = 60  # unsent messages; older activity says nothing any more


class ServiceChannel:
    """One supervisor's connection to the service; start it with ``run``.

    Args:
        url: websocket address.
        token: asked for each connection; sent as ``Authorization: Bearer``, nowhere else.
        hello: first message of each connection.
        on_message: called with each message of the service, one after the other.
    """

    def __init__(
        self,
        url: str,
        token: Callable[[], str],
        hello: Callable[[], SupervisorMessage],
        on_message: Callable[[SupervisorMessage], Awaitable[None]],
    ) -> None:
        self._url = url
        self._token = token
        self._hello = hello
        self._on_message = on_message
        self._unsent: deque[SupervisorMessage] = deque(maxlen=_KEPT)
        self._connection: WebSocketClientConnection | None = None
        self._closed = False
        self.connected = asyncio.Event()

    def send(self, message: SupervisorMessage) -> None:
        """Send, now or after the next connection; old activity gives way to new."""
        self._unsent.append(message)
        self._flush()

    async def run(self) -> None:
        """Stay connected until ``close``."""
        pause = _FIRST_PAUSE
        while not self._closed:
            try:
                await self._connect()
                pause = _FIRST_PAUSE
                await self._read()
            except HTTPError as error:
                log.warning("the lease service refused the supervisor: HTTP %s", error.code)
            except (TimeoutError, OSError, WebSocketClosedError) as error:
                log.info("the lease service is not reachable: %s", type(error).__name__)
            if not self._closed:
                await asyncio.sleep(pause * random.uniform(0.7, 1.3))
                pause = min(_LONGEST_PAUSE, pause * 2)

    def close(self, bye: SupervisorMessage) -> None:
        """Say goodbye if anybody hears it, and connect no more."""
        self._closed = True
        self.send(bye)
        if self._connection is not None:
            self._connection.close()

    async def _connect(self) -> None:
        request = HTTPRequest(
            self._url,
            headers={"Authorization": f"Bearer {self._token()}"},
            connect_timeout=10,
            request_timeout=20,
        )
        connection = await websocket_connect(request, ping_interval=_PING_SECONDS)
        # The first thing a new connection says is who this is, whatever still waits.
        try:
            await connection.write_message(json.dumps(self._hello()))
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self.connected.set()
        self._flush()

    async def _read(self) -> None:
        connection = self._connection
        assert connection is not None
        try:
            while (raw := await connection.read_message()) is not None:
                message = _parse(raw)
                if message is not None:
                    await self._heed(message)
        finally:
            connection.close()  # where the service hung up, our own side is still open
            self.connected.clear()
            self._connection = None

    async def _heed(self, message: SupervisorMessage) -> None:
        try:
            await self._on_message(message)
        except Exception:
            # A border: what one message asked for failed and is logged.  The channel is the only
            # way in which the lease can still be told to drain and to end, so it stays.
            log.exception("a message of the lease service could not be followed")

    def _flush(self) -> None:
        while self._connection is not None and self._unsent:
            try:
                sent = self._connection.write_message(json.dumps(self._unsent[0]))
            except WebSocketClosedError:
                return  # the reader notices too, and connects again
            sent.add_done_callback(_heed)
            self._unsent.popleft()


def _heed(sent: asyncio.Future[None]) -> None:
    """A connection that breaks is noticed by its reader; here it is only not left unsaid."""
    if not sent.cancelled() and sent.exception() is not None:
        log.info("a message to the lease service was lost: %s", type(sent.exception()).__name__)


def _parse(raw: str | bytes) -> SupervisorMessage | None:
    try:
        message = json.loads(raw)
    except ValueError:
        log.warning("the lease service sent something that is not JSON")
        return None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        log.warning("the lease service sent a message without a type")
        return None
    return cast("SupervisorMessage", message)
