"""The lease service's REST and events, for any holder of a token: command line, scripts, tests.

Errors are raised as ``GPULeaseError``.  The events channel reconnects by itself and resumes.  A
token is sent in a header only.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlencode

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest

from gpulease.errors import GPULeaseError
from gpulease.protocol.names import HEADER_PROTOCOL, PROTOCOL_VERSION
from gpulease.protocol.service import ClassView, ConnectionView, LeaseView
from gpulease.protocol.service_tls import trusted

if TYPE_CHECKING:
    from gpulease.protocol.asks import AskBody


class ServiceClient:
    """One token's view of the lease service.

    Args:
        url: the service's prefix with scheme and host, such as
            ``http://hub/services/gpulease/``.
        token: a hub token; sent in a header, nowhere else.
        timeout: seconds that one call may take; connecting waits for a companion.

    Attributes:
        headers: what every request carries, that of the events channel too.

    Raises:
        GPULeaseError: ``bad_settings`` where the environment's authorities cannot be read.
    """

    def __init__(self, url: str, token: str, *, timeout: float = 30.0) -> None:
        self._url = url.rstrip("/")
        self.headers = {"Authorization": f"token {token}", HEADER_PROTOCOL: PROTOCOL_VERSION}
        self._timeout = timeout
        self._tls = trusted(url, os.environ)

    def speak(self, language: str) -> None:
        """Have sentences in this language from now on, where the service has it."""
        self.headers["Accept-Language"] = language

    async def ask(self, body: AskBody | None = None, *, key: str | None = None) -> LeaseView:
        """Ask for GPUs; with the same ``key`` a repeated ask is the same ask.

        Raises:
            GPULeaseError: what the service refuses with.
        """
        headers = {"Idempotency-Key": key or secrets.token_hex(16)}
        return cast("LeaseView", await self.call("POST", "leases", body or {}, headers=headers))

    async def leases(
        self, *, state: str = "live", mine: bool = False, limit: int = 200
    ) -> list[LeaseView]:
        """Return every lease that this token may see, newest first, page by page."""
        found: list[LeaseView] = []
        while True:
            query = urlencode(
                {"state": state, "mine": int(mine), "offset": len(found), "limit": limit}
            )
            page = await self.call("GET", f"leases?{query}")
            found += page["items"]
            if not page["items"] or len(found) >= page["total"]:
                return found

    async def lease(self, lease_id: str) -> LeaseView:
        """Return one lease."""
        return cast("LeaseView", await self.call("GET", _lease(lease_id)))

    async def decisions(self, lease_id: str, last: int = 20) -> list[dict[str, Any]]:
        """Return what was decided about a lease of late, oldest first (admins only)."""
        page = await self.call("GET", f"{_lease(lease_id)}/why?limit={last}")
        found: list[dict[str, Any]] = page["items"][::-1]
        return found

    async def end(self, lease_id: str, note: str = "", *, force: bool = False) -> LeaseView:
        """Return, withdraw or (an admin, with a note) force the end of a lease.

        ``force``: return it though a cell runs or some variables cannot be copied to the notebook.
        """
        body = {"note": note, "force": force}
        return cast("LeaseView", await self.call("DELETE", _lease(lease_id), body))

    async def end_group(self, group: str, note: str) -> list[LeaseView]:
        """End every lease of a group's members but one's own; return those that were ended."""
        found = await self.call("DELETE", "leases", {"group": group, "note": note})
        return cast("list[LeaseView]", found["items"])

    async def keep(self, lease_id: str) -> LeaseView:
        """Keep an idle lease for a while."""
        return cast("LeaseView", await self.call("POST", f"{_lease(lease_id)}/keep", {}))

    async def upgrade(self, lease_id: str) -> LeaseView:
        """Let a lease become what was asked for, as far as that is free."""
        return cast("LeaseView", await self.call("POST", f"{_lease(lease_id)}/upgrade", {}))

    async def connection(self, lease_id: str, client_key: str, kernel_id: str) -> ConnectionView:
        """Have a home kernel's key admitted; only a server's own token can."""
        body = {"client_key": client_key, "kernel_id": kernel_id}
        found = await self.call("POST", f"{_lease(lease_id)}/connections", body)
        return cast("ConnectionView", found)

    async def classes(self) -> list[ClassView]:
        """Return what is on offer and what of it is free."""
        return cast("list[ClassView]", (await self.call("GET", "classes"))["items"])

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Make one call under ``api/`` and return its JSON.

        Raises:
            GPULeaseError: the service's problem, or ``service_unreachable`` (503).
        """
        request = HTTPRequest(
            f"{self._url}/api/{path}",
            method=method,
            headers={**self.headers, "Content-Type": "application/json", **(headers or {})},
            body=None if body is None else json.dumps(body),
            allow_nonstandard_methods=True,  # DELETE with a body, POST without one
            follow_redirects=False,
            request_timeout=self._timeout,
            ssl_options=self._tls,
        )
        try:
            response = await AsyncHTTPClient().fetch(request)
        except HTTPClientError as error:
            raise _problem(error) from None
        except OSError as error:
            raise _unreachable(type(error).__name__) from None
        return json.loads(response.body) if response.body else None


def _lease(lease_id: str) -> str:
    return f"leases/{quote(lease_id, safe='')}"


def _problem(error: HTTPClientError) -> GPULeaseError:
    body = error.response.body if error.response is not None else b""
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if isinstance(found, dict) and "reason" in found:
        return GPULeaseError.from_problem(found)
    return _unreachable(f"HTTP {error.code}")


def _unreachable(detail: str) -> GPULeaseError:
    return GPULeaseError(
        "service_unreachable",
        f"The lease service does not answer ({detail}).",
        next_step="Running leases continue; try again in a moment.",
    )
