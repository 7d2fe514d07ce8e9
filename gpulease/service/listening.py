"""The service's HTTP server: how long it waits for a request, and how many connections it holds.

Owns the bounds that hold before anybody is asked who they are.
"""

from __future__ import annotations

import resource
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.httputil import (
    HTTPHeaders,
    HTTPMessageDelegate,
    RequestStartLine,
    ResponseStartLine,
)
from tornado.iostream import IOStream

#: Bytes of a request's line and headers.
_HEADERS_MAX = 32 * 1024
#: Files that a process may have open, where its account is allowed as many.
_FILES_WANTED = 65536


class Listener(HTTPServer):
    """An HTTP server that hangs up on the oldest silent connection when there would be too many.

    Silent are those on which nobody says anything, or says it slowly.  Where all others wait for
    our answer, the newest is hung up on: when thousands of notebooks come back at once, each that
    came later took the place of one that was nearly served, and nobody was.  Websockets are no
    longer counted: they are bounded by whose they are (``rate_limit``).

    Args:
        most: connections that are open at a time.
        seconds: for a request's headers, and as long again for its body.
        body_max: bytes of a body, where the handler says nothing else.
    """

    def initialize(  # type: ignore[override]
        self, app: Any, *, most: int, seconds: float, body_max: int, **more: Any
    ) -> None:
        """Take the place of a constructor, as in the parent."""
        super().initialize(
            app,
            xheaders=True,
            max_header_size=_HEADERS_MAX,
            max_body_size=body_max,
            idle_connection_timeout=seconds,
            body_timeout=seconds,
            **more,
        )
        self._most = most
        self._silent: dict[IOStream, None] = {}  # the oldest first
        self._asked: set[IOStream] = set()  # a whole request came, and is being answered

    def handle_stream(self, stream: IOStream, address: Any) -> None:
        """Take a connection; the oldest silent one goes for it if need be."""
        while self._silent and len(self._silent) + len(self._asked) >= self._most:
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.close()
        if len(self._asked) >= self._most:
            stream.close()
            return
        self._silent[stream] = None
        super().handle_stream(stream, address)

    def start_request(self, server_conn: Any, request_conn: Any) -> HTTPMessageDelegate:
        """Wait for the next request of a connection, whose last one was answered."""
        stream = server_conn.stream
        if stream in self._asked:
            self._asked.remove(stream)
            self._silent[stream] = None
        return _Heard(
            super().start_request(server_conn, request_conn), partial(self._heard, stream)
        )

    def on_close(self, server_conn: Any) -> None:
        """Count a connection out that ended or became a websocket."""
        self._silent.pop(server_conn.stream, None)
        self._asked.discard(server_conn.stream)
        super().on_close(server_conn)

    def _heard(self, stream: IOStream) -> None:
        if stream in self._silent:
            del self._silent[stream]
            self._asked.add(stream)


class _Heard(HTTPMessageDelegate):
    """Passes a request on, and says when all of it has come.

    Who asks is looked up once the headers are there: a request without a body is whole then.
    """

    def __init__(self, inner: HTTPMessageDelegate, heard: Callable[[], None]) -> None:
        self._inner = inner
        self._heard = heard

    def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> Awaitable[None] | None:
        if headers.get("Content-Length", "0") == "0" and "Transfer-Encoding" not in headers:
            self._heard()
        return self._inner.headers_received(start_line, headers)

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        return self._inner.data_received(chunk)

    def finish(self) -> None:
        self._heard()
        self._inner.finish()

    def on_connection_close(self) -> None:
        self._inner.on_connection_close()


def allow_files() -> None:
    """Let this process open as many files as its account may: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, _FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
