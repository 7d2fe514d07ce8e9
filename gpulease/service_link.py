"""A websocket to the lease service that comes back by itself.

Owns connecting with a credential in a header, the first words of a connection, reading until it
breaks, and the pauses before the next attempt.  Refuses to know who is at this end and what a
message means.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from logging import Logger
from typing import Any

from tornado.httpclient import HTTPError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, websocket_connect

from gpulease.service_tls import trusted

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 10.0


@dataclass(frozen=True)
class LinkEnds:
    """What a link asks its owner, and tells it.

    Attributes:
        headers: asked for each connection; where the credential is, and nowhere else.
        greeting: the first message of each connection, ``None`` for none.
        take: called with each message as it came, one after the other; False where it could not
            be taken and all that is known may be wrong: the link hangs up and connects anew.
        link: called when the connection is up (True), after the greeting, and when it is lost.
    """

    headers: Callable[[], Mapping[str, str]]
    greeting: Callable[[], Mapping[str, Any] | None]
    take: Callable[[str | bytes], Awaitable[bool]]
    link: Callable[[bool], None]


class ServiceLink:
    """One process's link; start it with ``run``.

    Args:
        url: websocket address.
        ends: the owner's side.
        log: where it is said that the service refuses or is away.
        ping: seconds between pings.

    Raises:
        GPULeaseError: ``bad_settings`` where the environment's authorities cannot be read.
    """

    def __init__(self, url: str, ends: LinkEnds, log: Logger, *, ping: float = 20.0) -> None:
        self._url = url
        self._ends = ends
        self._log = log
        self._ping = ping
        self._tls = trusted(url, os.environ)
        self._connection: WebSocketClientConnection | None = None
        self._closed = False
        self._refused = 0

    async def run(self) -> None:
        """Stay connected until ``close``; what ``LinkEnds.take`` raises ends it."""
        pause = _FIRST_PAUSE
        while not self._closed:
            try:
                connection = await self._connect()
                if await self._read(connection):
                    pause = _FIRST_PAUSE
            except HTTPError as error:
                self._say_refused(error.code)
            except (TimeoutError, OSError, WebSocketClosedError) as error:
                self._log.info("the lease service is not reachable: %s", type(error).__name__)
            if not self._closed:
                await asyncio.sleep(pause * random.uniform(0.7, 1.3))
                pause = min(_LONGEST_PAUSE, pause * 2)

    def send(self, message: Mapping[str, Any]) -> bool:
        """Send at once; False when there is no connection (say it again when there is one)."""
        if self._connection is None:
            return False
        try:
            sent = self._connection.write_message(json.dumps(message))
        except WebSocketClosedError:
            return False  # the reader notices too, and connects again
        sent.add_done_callback(self._heed)
        return True

    def close(self) -> None:
        """Hang up for good."""
        self._closed = True
        if self._connection is not None:
            self._connection.close()

    async def _connect(self) -> WebSocketClientConnection:
        request = HTTPRequest(
            self._url,
            headers=dict(self._ends.headers()),
            connect_timeout=10,
            request_timeout=20,
            ssl_options=self._tls,
        )
        connection = await websocket_connect(request, ping_interval=self._ping)
        self._refused = 0
        greeting = self._ends.greeting()
        if greeting is not None:
            try:
                await connection.write_message(json.dumps(greeting))
            except BaseException:
                connection.close()
                raise
        return connection

    async def _read(self, connection: WebSocketClientConnection) -> bool:
        """Take messages until the connection breaks; tell whether at least one could be taken."""
        taken = False
        self._connection = connection
        try:
            self._ends.link(True)
            while (raw := await connection.read_message()) is not None:
                if not await self._ends.take(raw):
                    break
                taken = True
        finally:
            connection.close()  # where the service hung up, our own side is still open
            self._connection = None
            self._ends.link(False)
        return taken

    def _say_refused(self, code: int) -> None:
        # A credential that is too old is refused for ever; that is said once.
        if self._refused != code:
            self._refused = code
            self._log.warning("the lease service refused this process: HTTP %s", code)

    def _heed(self, sent: asyncio.Future[None]) -> None:
        """A connection that breaks is noticed by its reader; here it is only not left unsaid."""
        if not sent.cancelled() and sent.exception() is not None:
            kind = type(sent.exception()).__name__
            self._log.info("a message to the lease service was lost: %s", kind)
