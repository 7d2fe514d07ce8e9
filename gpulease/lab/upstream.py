"""This server's events websocket to the lease service; it also carries the server's reports.

Owns proving itself with the server's own token, and what an event that cannot be taken leads to.
Refuses to know what an event means, and makes no calls: those are ``gpulease.client``'s.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from gpulease.service_link import LinkEnds, ServiceLink

log = logging.getLogger("gpulease.lab")

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
        self._on_event = on_event
        ends = LinkEnds(
            headers=lambda: {"Authorization": f"token {token}"},
            greeting=lambda: None,
            take=self._take,
            link=on_link,
        )
        self._link = ServiceLink(f"ws{self.url.removeprefix('http')}/api/events", ends, log)

    async def run(self) -> None:
        """Hold the events channel until ``close``."""
        await self._link.run()

    def send(self, message: Mapping[str, Any]) -> bool:
        """Send over the events channel; False when it is down (say it again when it is up)."""
        return self._link.send(message)

    def close(self) -> None:
        """Hang up for good."""
        self._link.close()

    async def _take(self, raw: str | bytes) -> bool:
        try:
            self._on_event(json.loads(raw))
        except _NOT_AN_EVENT:
            # What this server knows may be wrong from here on: a new channel brings everything.
            log.exception("an event of the lease service could not be taken; connecting anew")
            return False
        return True
