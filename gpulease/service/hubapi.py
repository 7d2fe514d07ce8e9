"""The hub's REST API, as far as the lease service needs it.

Owns the calls "as the service" (its own token): which servers run, and refreshing a busy server's
activity.  Refuses to draw conclusions: what a stopped server means is the reconcile loop's matter.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest

_PAGE = 200
#: Calls under way at once; fewer than the HTTP client makes, which others use, too.
_AT_ONCE = 6
_PAGED = "application/jupyterhub-pagination+json"


class HubUnreachableError(Exception):
    """The hub gave no usable answer; nothing may be concluded from that."""


@dataclass(frozen=True)
class HubServer:
    """One server of a user, as the hub's API shows it."""

    name: str
    ready: bool
    pending: str
    stopped: bool
    display_name: str = ""
    url: str = ""

    @property
    def active(self) -> bool:
        """It runs or starts; a stopping server no longer counts."""
        return not self.stopped and self.pending != "stop" and (self.ready or bool(self.pending))


class HubAPI:
    """Asks the hub; answers of ``server_active`` are believed for ``cache_seconds``.

    ``tls``: whom to trust and who we are, where the hub's inner traffic is encrypted
    (``internal_ssl``).
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        cache_seconds: float = 5.0,
        timeout: float = 10.0,
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._cache_seconds = cache_seconds
        self._timeout = timeout
        self._tls = tls
        self._clock = clock
        self._known: dict[str, tuple[float, dict[str, HubServer]]] = {}
        # A class that begins asks for hundreds at once: what waits for its turn here does not
        # count as a hub that does not answer.
        self._turns = asyncio.Semaphore(_AT_ONCE)
        #: What went wrong in the last call, "" when it worked; shown on ``health``.
        self.problem = ""

    async def servers(self, user: str, *, fresh: bool = False) -> dict[str, HubServer]:
        """Return the servers of a user by name; empty when the hub has no such user.

        Raises:
            HubUnreachableError: the hub did not answer.
        """
        known = self._known.get(user)
        if known and not fresh and self._clock() - known[0] < self._cache_seconds:
            return known[1]
        model = await self._call("GET", f"users/{quote(user, safe='')}", missing_ok=True)
        servers = _servers(model or {})
        self._remember(user, servers)
        return servers

    async def server_active(self, user: str, server: str) -> bool:
        """Tell whether this server runs or starts."""
        found = (await self.servers(user)).get(server)
        if found is None or not found.active:  # it may have started since the cached answer
            found = (await self.servers(user, fresh=True)).get(server)
        return found is not None and found.active

    async def running(self, users: Iterable[str]) -> dict[str, dict[str, HubServer]]:
        """Return the servers of these users; of many by the paged list, of few one by one."""
        wanted = set(users)
        if len(wanted) <= 10:
            return {user: await self.servers(user, fresh=True) for user in sorted(wanted)}
        found: dict[str, dict[str, HubServer]] = {user: {} for user in wanted}
        offset: int | None = 0
        while offset is not None:
            page = await self._call("GET", f"users?state=active&offset={offset}&limit={_PAGE}")
            for model in page["items"]:
                if model["name"] in wanted:
                    found[model["name"]] = _servers(model)
            following = page["_pagination"].get("next")
            offset = following["offset"] if following else None
        return found

    async def refresh_activity(self, user: str, server: str, at: datetime) -> None:
        """Tell the hub that this server was used, so that its culler leaves it alone."""
        stamp = at.isoformat()
        body = {"servers": {server: {"last_activity": stamp}}, "last_activity": stamp}
        await self._call("POST", f"users/{quote(user, safe='')}/activity", body=body)

    async def _call(
        self, method: str, path: str, *, body: Any = None, missing_ok: bool = False
    ) -> Any:
        request = HTTPRequest(
            f"{self._url}/{path}",
            method=method,
            headers={"Authorization": f"token {self._token}", "Accept": _PAGED},
            body=None if body is None else json.dumps(body),
            request_timeout=self._timeout,
            connect_timeout=self._timeout,
            ssl_options=self._tls,
        )
        try:
            async with self._turns:
                response = await AsyncHTTPClient().fetch(request)
            found = json.loads(response.body) if response.body else None
        except HTTPClientError as error:
            if error.code == 404 and missing_ok:
                return None
            # Shown on ``health`` to anybody: it names what was asked about, not whom.
            what = path.partition("?")[0].partition("/")[0]
            self.problem = f"the hub answered {error.code} to {method} {what}"
            raise HubUnreachableError(self.problem) from error
        except (OSError, ValueError) as error:
            self.problem = f"the hub does not answer ({type(error).__name__})"
            raise HubUnreachableError(self.problem) from error
        self.problem = ""
        return found

    def _remember(self, user: str, servers: dict[str, HubServer]) -> None:
        if len(self._known) > 5000:
            self._known.clear()
        self._known[user] = (self._clock(), servers)


def _servers(model: dict[str, Any]) -> dict[str, HubServer]:
    return {
        name: HubServer(
            name=name,
            ready=bool(each.get("ready")),
            pending=str(each.get("pending") or ""),
            stopped=bool(each.get("stopped")),
            display_name=str(each.get("display_name") or ""),
            url=str(each.get("url") or ""),
        )
        for name, each in (model.get("servers") or {}).items()
    }
