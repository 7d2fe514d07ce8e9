"""The supervisor's websocket to the lease service.

Owns proving itself, saying hello, and what is said again after a break; it connects for as long as
the lease was granted.  Silence of the service changes nothing in the lease: cells run on.  Refuses
to know what a message means.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import cast

from gpulease.protocol import SupervisorMessage
from gpulease.service_link import LinkEnds, ServiceLink

log = logging.getLogger("gpulease.companion")

_PING_SECONDS = 15.0
_KEPT = 60  # unsent messages; older activity says nothing any more


class ServiceChannel:
    """One supervisor's connection to the service; start it with ``run``.

    Args:
        url: websocket address.
        token: asked for each connection; sent as ``Authorization: Bearer``, nowhere else.
        hello: first message of each connection, whatever still waits.
        on_message: called with each message of the service, one after the other.
    """

    def __init__(
        self,
        url: str,
        token: Callable[[], str],
        hello: Callable[[], SupervisorMessage],
        on_message: Callable[[SupervisorMessage], Awaitable[None]],
    ) -> None:
        self._on_message = on_message
        self._unsent: deque[SupervisorMessage] = deque(maxlen=_KEPT)
        ends = LinkEnds(
            headers=lambda: {"Authorization": f"Bearer {token()}"},
            greeting=hello,
            take=self._take,
            link=self._link_changed,
        )
        self._link = ServiceLink(url, ends, log, ping=_PING_SECONDS)
        self.connected = asyncio.Event()

    def send(self, message: SupervisorMessage) -> None:
        """Send, now or after the next connection; old activity gives way to new."""
        self._unsent.append(message)
        self._flush()

    async def run(self) -> None:
        """Stay connected until ``close``."""
        await self._link.run()

    def close(self, bye: SupervisorMessage) -> None:
        """Say goodbye if anybody hears it, and connect no more."""
        self.send(bye)
        self._link.close()

    def _link_changed(self, up: bool) -> None:
        if up:
            self.connected.set()
            self._flush()
        else:
            self.connected.clear()

    async def _take(self, raw: str | bytes) -> bool:
        message = _parse(raw)
        if message is not None:
            try:
                await self._on_message(message)
            except Exception:
                # A border: what one message asked for failed and is logged.  The channel is the
                # only way in which the lease can still be told to drain and to end, so it stays.
                log.exception("a message of the lease service could not be followed")
        return True

    def _flush(self) -> None:
        while self._unsent and self._link.send(self._unsent[0]):
            self._unsent.popleft()


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
