"""This server's events websocket to the lease service; it also carries the server's reports.

Owns connecting, proving itself with the server's own token, and connecting again.  Refuses to
know what an event means, and makes no calls: those are ``gpulease.client``'s.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Callable, Mapping
from typing import Any

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, websocket_connect

log = logging.getLogger("gpulease.lab")

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 10.0
_PING_SECONDS = 20.0
#: What an event of a shape that nobody expects leads to.
_NOT_AN_EVENT = (ValueError, KeyError, TypeError, AttributeError)


class Upstream:
    """One server's line to the service.

    Args:
        url: the service's public prefix, with scheme and host.
        token: the server's own token; sent in a header, nowhere else.
        on_event: called with each message of the service.
        on_link: called when the events channel comes up (True) or is lost (False).
    """

    def __init__(
        self,
        url: str,
        token: str,
        on_event: Callable[[dict[str, Any]], None],
        on_link: Callable[[bool], None],
    ) -> None:
        self.url = url.rstrip("/")
        self._headers = {"Authorization": f"token {token}"}
        self._on_event = on_event
        self._on_link = on_link
        self._connection: WebSocketClientConnection | None = None
        self._closed = False

    async def run(self) -> None:
        """Hold the events channel until ``close``."""
        pause = _FIRST_PAUSE
        refused = 0
        while not self._closed:
            try:
                await self._connect()
                refused = 0
                if await self._read():
                    pause = _FIRST_PAUSE
            except HTTPClientError as error:
                # A token from before the installation is refused for ever; say so once.
                if refused != error.code:
                    refused = error.code
                    log.warning("the lease service refused this server: HTTP %s", error.code)
            except (OSError, TimeoutError, WebSocketClosedError) as error:
                log.info("the lease service is not reachable: %s", type(error).__name__)
            if not self._closed:
                await asyncio.sleep(pause * random.uniform(0.7, 1.3))
                pause = min(_LONGEST_PAUSE, pause * 2)

    def send(self, message: Mapping[str, Any]) -> bool:
        """Send over the events channel; False when it is down (say it again when it is up)."""
        if self._connection is None:
            return False
        try:
            sent = self._connection.write_message(json.dumps(message))
        except WebSocketClosedError:
            return False
        sent.add_done_callback(_heed)
        return True

    def close(self) -> None:
        """Hang up for good."""
        self._closed = True
        if self._connection is not None:
            self._connection.close()

    async def _connect(self) -> None:
        request = HTTPRequest(
            f"ws{self.url.removeprefix('http')}/api/events",
            headers=self._headers,
            connect_timeout=10,
            request_timeout=20,
        )
        self._connection = await websocket_connect(request, ping_interval=_PING_SECONDS)
        self._on_link(True)

    async def _read(self) -> bool:
        """Take events until the channel breaks; tell whether at least one could be taken."""
        connection = self._connection
        assert connection is not None
        taken = False
        try:
            while (raw := await connection.read_message()) is not None:
                self._on_event(json.loads(raw))
                taken = True
        except _NOT_AN_EVENT:
            # What this server knows may be wrong from here on: a new channel brings everything.
            log.exception("an event of the lease service could not be taken; connecting anew")
        finally:
            connection.close()  # where the service hung up, our own side is still open
            self._connection = None
            self._on_link(False)
        return taken


def _heed(sent: asyncio.Future[None]) -> None:
    """A channel that breaks is noticed by its reader; here it is only not left unsaid."""
    if not sent.cancelled() and sent.exception() is not None:
        log.info("a message to the lease service was lost: %s", type(sent.exception()).__name__)
