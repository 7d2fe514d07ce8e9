"""The demo's proxy: the Python ``configurable-http-proxy`` with four things put right.

Live pages and notebooks need all four: its HTTP client serves more than ten requests at a time; a
websocket's subprotocol reaches the browser (browsers close a socket whose subprotocol is not
answered); what the server says first is not lost while the browser's side is still opening, and the
browser learns when the server has closed; an error page brings no cookie.
Runs as the hub's proxy command: ``python -m gpulease.demo.proxy ...`` with the arguments of
``configurable-http-proxy``.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import configurable_http_proxy.cli as proxy_cli
import configurable_http_proxy.configproxy as proxy_app
from configurable_http_proxy.handlers import ProxyHandler
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, websocket_connect

#: How many requests are served at a time; a page and its assets alone are a few dozen.
MAX_CLIENTS = 1000
#: Seconds for a websocket to open: the server answers when its kernel has, and that may just start.
HANDSHAKE_SECONDS = 300.0
#: Bytes of one answer or one websocket message: a notebook with figures is easily over tornado's
#: default of 10 MB for messages.
MAX_MESSAGE = 512 * 1024 * 1024
#: Handshake headers of the browser's own connection; the onward one makes its own.
_OWN_HEADERS = frozenset(
    {"connection", "upgrade", "sec-websocket-key", "sec-websocket-version"}
    | {"sec-websocket-extensions", "sec-websocket-protocol"}
)
#: Headers that reach the browser with the page about a server that is not there.
_OF_AN_ERROR_PAGE = frozenset({"content-type", "content-length", "date", "server"})


class Handler(ProxyHandler):
    """Proxies one request or one websocket."""

    _error_page = False
    _pump: asyncio.Task[None] | None = None
    ws_client: WebSocketClientConnection | None

    async def start_ws_client(self, path: str | None = None) -> None:
        """Open the onward socket; nothing is read from it until the browser's side stands."""
        url = await self.get_target_url(path)
        if url is None:
            return
        parts = urlsplit(url)
        scheme = "wss" if parts.scheme == "https" else "ws"
        onward = self._get_proxy_request(parts._replace(scheme=scheme).geturl())
        offered = self.request.headers.get("Sec-WebSocket-Protocol", "")
        request = HTTPRequest(
            onward.url,
            headers={k: v for k, v in onward.headers.items() if k.lower() not in _OWN_HEADERS},
            connect_timeout=20,
            request_timeout=HANDSHAKE_SECONDS,
            ssl_options=onward.ssl_options,
        )
        try:
            self.ws_client = await websocket_connect(
                request,
                max_message_size=MAX_MESSAGE,
                subprotocols=[name.strip() for name in offered.split(",") if name.strip()] or None,
            )
        except HTTPClientError as error:
            self.set_status(error.code)
            self.finish(error.message)
        except (OSError, TimeoutError) as error:
            await self.handle_proxy_error(503, error)

    def finish(self, chunk: Any = None) -> asyncio.Future[None]:
        """Send the answer; of an error page's headers only what describes its text.

        The proxy asks the hub for that page as nobody: its XSRF cookie is an unknown visitor's, and
        in a browser it would take the place of the one that belongs to the log-in.
        """
        if self._error_page:
            for name in {name for name, _ in self._headers.get_all()}:
                if name.lower() not in _OF_AN_ERROR_PAGE:
                    self.clear_header(name)
        done: asyncio.Future[None] = super().finish(chunk)
        return done

    async def handle_proxy_error(self, code: int, err: Exception | None) -> None:
        """Answer for a server that is not there, with the hub's page if the hub gives one."""
        self._error_page = True
        await super().handle_proxy_error(code, err)

    @property
    def max_message_size(self) -> int:
        """Bytes of the largest message from the browser."""
        return MAX_MESSAGE

    def select_subprotocol(self, _offered: list[str]) -> str | None:
        """Answer with what the server has chosen."""
        return self.ws_client.selected_subprotocol if self.ws_client is not None else None

    def check_origin(self, _origin: str) -> bool:
        """Let the server behind decide: it sees the same Origin and Host headers."""
        return True

    def open(self, *_args: str, **_kwargs: str) -> None:
        """Begin to pass on what the server says."""
        self.closed = False
        self.set_nodelay(True)  # small messages follow each other
        self._pump = asyncio.ensure_future(self._pass_on())

    async def _pass_on(self) -> None:
        server = self.ws_client
        assert server is not None
        try:
            while (message := await server.read_message()) is not None:
                self._seen()
                await self.write_message(message, binary=isinstance(message, bytes))
        except WebSocketClosedError:
            server.close()
        self.close(server.close_code, server.close_reason)

    async def on_message(self, message: str | bytes) -> None:
        """Pass on what the browser says, at the pace of the server."""
        if self.ws_client is None:
            return
        self._seen()
        try:
            await self.ws_client.write_message(message, binary=isinstance(message, bytes))
        except WebSocketClosedError:
            self.close(self.ws_client.close_code, self.ws_client.close_reason)

    def on_close(self) -> None:
        """Close the server's side too; reading from it then ends by itself."""
        self.closed = True
        if self.ws_client is not None:
            self.ws_client.close()

    def _seen(self) -> None:
        if self.target:
            self.proxy.update_last_activity(self.target["prefix"])


def main() -> Any:
    """Run the proxy with the command line's arguments."""
    AsyncHTTPClient.configure(None, max_clients=MAX_CLIENTS, max_body_size=MAX_MESSAGE)
    proxy_app.ProxyHandler = Handler
    return proxy_cli.main()


if __name__ == "__main__":
    main()
