"""The service's HTTP server: how long it waits for a request, and how many connections it holds.

Owns the bounds that hold before anybody is asked who they are.
"""

from __future__ import annotations

import resource
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream

#: Bytes of a request's line and headers.
_HEADERS_MAX = 32 * 1024
#: Files that a process may have open, where its account is allowed as many.
_FILES_WANTED = 65536


class Listener(HTTPServer):
    """An HTTP server that hangs up on the oldest connection when there would be too many.

    A request is answered in a moment, so the oldest connections are those on which nobody says
    anything, or says it slowly.  Websockets are no longer counted: they are bounded by whose they
    are (``bounds``).

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
        self._open: dict[IOStream, None] = {}  # the oldest first

    def handle_stream(self, stream: IOStream, address: Any) -> None:
        """Take a connection; the oldest goes for it if need be."""
        while len(self._open) >= self._most:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.close()
        self._open[stream] = None
        super().handle_stream(stream, address)

    def on_close(self, server_conn: Any) -> None:
        """Count a connection out that ended or became a websocket."""
        self._open.pop(server_conn.stream, None)
        super().on_close(server_conn)


def allow_files() -> None:
    """Let this process open as many files as its account may: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, _FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
