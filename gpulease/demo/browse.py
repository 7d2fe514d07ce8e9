"""A person at a hub, as a program: log in, start a server, talk to the service.

It speaks HTTP as a browser would (cookies, redirects of the single sign-on, XSRF tokens).
``gpulease demo --check`` and the end-to-end tests drive it.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self

import aiohttp
from yarl import URL

from gpulease.demo.kernel_socket import KernelSocket
from gpulease.errors import GPULeaseError
from gpulease.system.connector import Connector

#: Bytes of the largest websocket message that is read.
_MAX_MESSAGE = 256 * 1024 * 1024
#: What browsers say of a page's own calls; an answer to one never sets a new XSRF cookie.
_FETCH = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"}


class Browser:
    """One person's session at the hub at ``url`` (ending in a slash).

    ``tls``: whom to trust where the hub's certificate is of an authority of its own.
    ``service``: what the lease service is called at this hub.
    Every method raises ``GPULeaseError`` with the refusal when the other side refuses.
    """

    def __init__(
        self, url: str, tls: ssl.SSLContext | None = None, service: str = "gpulease"
    ) -> None:
        self.url = URL(url)
        self._service = f"services/{service}/"
        self.user = ""
        # `unsafe`: cookies of an address without a host name, as a demo's is.
        self._connector = Connector(ssl=tls or True)
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            cookie_jar=aiohttp.CookieJar(unsafe=True),
            timeout=aiohttp.ClientTimeout(total=120),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection, and return once they have ended."""
        await self._session.close()
        await self._connector.end()

    async def log_in(self, user: str, password: str) -> None:
        """Fill in the hub's log-in form."""
        await self.visit("hub/login")
        form = {"username": user, "password": password, "_xsrf": self._xsrf("hub/")}
        async with self._session.post(self.url / "hub/login", data=form) as answer:
            at = answer.url
            if answer.status >= 400 or at.path.endswith("/hub/login"):
                raise _refused("log_in_failed", f"The hub did not let {user} in", answer.status)
        self.user = user

    async def visit(self, path: str) -> str:
        """Go to a page as a browser does, through any redirect; return its text."""
        headers = {"Sec-Fetch-Mode": "navigate"}  # what makes Jupyter set the XSRF cookie
        async with self._session.get(self.url.join(URL(path)), headers=headers) as answer:
            text = await answer.text()
            if answer.status >= 400:
                raise _refused("page_failed", f"{path} answered {text[:200]!r}", answer.status)
            return text

    async def hub_api(self, method: str, path: str, body: Any = None) -> Any:
        """Call the hub's REST API."""
        return await self._call(method, "hub/api/", path, body, cookie_path="hub/")

    async def start_server(self, name: str = "", *, seconds: float = 120) -> None:
        """Start this person's server and sign in to it; one that runs already is fine."""
        await self.spawn(name, seconds=seconds)
        await self.visit(f"{self._server_path(name)}lab/tree")

    async def spawn(self, name: str = "", *, seconds: float = 120) -> None:
        """Start this person's server and wait until the hub calls it ready."""
        path = f"users/{self.user}/servers/{name}" if name else f"users/{self.user}/server"
        if not (await self._server(name)).get("ready"):
            await self.hub_api("POST", path, {})
        await self._until(name, _ready, seconds)

    async def stop_server(self, name: str = "", *, seconds: float = 60) -> None:
        """Stop this person's server and wait until the hub has seen it end."""
        path = f"users/{self.user}/servers/{name}" if name else f"users/{self.user}/server"
        await self.hub_api("DELETE", path)
        await self._until(name, lambda server: not server, seconds)

    async def server_api(self, method: str, path: str, body: Any = None, name: str = "") -> Any:
        """Call the REST API of this person's server."""
        prefix = self._server_path(name)
        return await self._call(method, f"{prefix}api/", path, body, cookie_path=prefix)

    async def start_kernel(self, notebook: str, name: str = "") -> str:
        """Open a notebook as a session with a kernel; return the kernel's id."""
        body = {"path": notebook, "name": notebook, "type": "notebook"}
        session = await self.server_api(
            "POST", "sessions", {**body, "kernel": {"name": "python3"}}, name
        )
        return str(session["kernel"]["id"])

    async def connect(self, kernel_id: str, name: str = "") -> KernelSocket:
        """Open the kernel's websocket."""
        path = f"{self._server_path(name)}api/kernels/{kernel_id}/channels"
        socket = await self._session.ws_connect(
            self.url.join(URL(path)).update_query(session_id=f"browse-{id(self)}"),
            max_msg_size=_MAX_MESSAGE,
            origin=str(self.url.origin()),
        )
        return KernelSocket(socket)

    async def open_service(self) -> str:
        """Go to the lease service's page, which signs in to it; return its text."""
        return await self.visit(self._service)

    async def service_api(self, method: str, path: str, body: Any = None) -> Any:
        """Call the lease service's REST API as this person (``open_service`` first)."""
        prefix = self._service
        return await self._call(method, f"{prefix}api/", path, body, cookie_path=prefix)

    async def service_events(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the service's live events: the snapshot, then what changes."""
        prefix = self._service
        path = URL(f"{prefix}api/events").with_query(_xsrf=self._xsrf(prefix))
        async with self._session.ws_connect(
            self.url.join(path), origin=str(self.url.origin()), max_msg_size=_MAX_MESSAGE
        ) as socket:
            async for message in socket:
                yield json.loads(message.data)

    async def _until(
        self, name: str, wanted: Callable[[dict[str, Any]], bool], seconds: float
    ) -> None:
        """Ask the hub about a server until it is as wanted."""
        async with asyncio.timeout(seconds):
            while not wanted(await self._server(name)):  # noqa: ASYNC110  # the hub tells on asking
                await asyncio.sleep(0.2)

    async def _server(self, name: str) -> dict[str, Any]:
        model = await self.hub_api("GET", f"users/{self.user}")
        found: dict[str, Any] = (model.get("servers") or {}).get(name) or {}
        return found

    def _server_path(self, name: str) -> str:
        return f"user/{self.user}/{name}/" if name else f"user/{self.user}/"

    async def _call(
        self, method: str, prefix: str, path: str, body: Any, *, cookie_path: str
    ) -> Any:
        headers = {"X-XSRFToken": self._xsrf(cookie_path), "Accept": "application/json", **_FETCH}
        async with self._session.request(
            method, self.url.join(URL(prefix + path)), json=body, headers=headers
        ) as answer:
            text = await answer.text()
            if answer.status >= 400:
                raise _problem(text, f"{method} {path}", answer.status)
            return json.loads(text) if text.strip() else None

    def _xsrf(self, path: str) -> str:
        cookies = self._session.cookie_jar.filter_cookies(self.url.join(URL(path)))
        return cookies["_xsrf"].value if "_xsrf" in cookies else ""


def _ready(server: dict[str, Any]) -> bool:
    if not server.get("ready") and not server.get("pending"):
        raise GPULeaseError(
            "server_failed",
            "The server did not start.",
            next_step="The reason is in the hub's log.",
        )
    return bool(server.get("ready"))


def _refused(reason: str, sentence: str, status: int) -> GPULeaseError:
    return GPULeaseError(reason, f"{sentence} (status {status}).", status=status)


def _problem(text: str, call: str, status: int) -> GPULeaseError:
    try:
        problem = json.loads(text)
    except ValueError:
        problem = None
    if isinstance(problem, dict) and "reason" in problem:
        return GPULeaseError.from_problem(problem)
    detail = problem.get("message", "") if isinstance(problem, dict) else text[:200]
    return _refused("call_refused", f"{call} was refused: {detail}", status)
