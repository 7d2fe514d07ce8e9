"""How much of the service one client may take: connections, requests, channels, the loop's time.

The bounds of the HTTP server hold before anybody is asked who they are; the others are counted for
each person.
"""

from __future__ import annotations

import math
import resource
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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

from gpulease.errors import GPULeaseError
from gpulease.texts import Text, counted

#: Live channels of one person's pages.
PAGES_MAX = 40
#: Channels of one notebook server or one lease's supervisor: one, and those that broke of late.
PEERS_MAX = 4
#: Above so many, people whose bucket is full again are forgotten.
_REMEMBERED = 1000
_MINUTE = 60.0
#: For each change that a person may make in a minute they may look so often.
_LOOKS = 10
#: So many times the changes of a minute are those of a day: what is changed is kept for months.
_DAY_OF, _DAY = 60, 86400.0
#: Of the event loop's time one peer's messages may take this share, after so many seconds at once.
_SHARE, _AT_ONCE = 0.02, 0.2
#: Seconds at most for which a channel is not read: pings have to be answered meanwhile.
_REST_MAX = 10.0


@dataclass
class _Bucket:
    left: float
    at: float


class _Buckets:
    """What each may still take: full at first, and filled again as time passes."""

    def __init__(self, clock: Callable[[], float], seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._known: dict[Hashable, _Bucket] = {}
        self._look_at = _REMEMBERED

    def of(self, who: Hashable, most: float) -> _Bucket:
        """Return the bucket of one, which takes ``seconds`` to be full from nothing."""
        now, seconds = self._clock(), self._seconds
        if len(self._known) > self._look_at:
            self._known = {k: b for k, b in self._known.items() if now - b.at < seconds}
            # Where thousands are about, looking at each of them is no matter of every request.
            self._look_at = max(_REMEMBERED, 2 * len(self._known))
        bucket = self._known.setdefault(who, _Bucket(most, now))
        bucket.left = min(most, bucket.left + (now - bucket.at) * most / seconds)
        bucket.at = now
        return bucket


def _changes(most: int) -> str:
    return counted(
        "That is more than {n} change in a minute.",
        "That is more than {n} changes in a minute.",
        most,
    )


def _changes_of_a_day(most: int) -> str:
    return counted(
        "That is more than {n} change in a day.",
        "That is more than {n} changes in a day.",
        most,
    )


def _requests(most: int) -> str:
    return counted(
        "That is more than {n} request in a minute.",
        "That is more than {n} requests in a minute.",
        most,
    )


class Rate:
    """So many of something in a time by each person: all at once, then as they come back.

    Args:
        most: how many one person may make in that time, at present.
        too_many: says in words that it was more than so many.
        reason: the code of the refusal.
        clock: monotonic, seconds.
        seconds: how long the time is.
    """

    def __init__(
        self,
        most: Callable[[], int],
        too_many: Callable[[int], str] = _changes,
        reason: str = "too_many_changes",
        clock: Callable[[], float] = time.monotonic,
        seconds: float = _MINUTE,
    ) -> None:
        self._most, self._seconds = most, seconds
        self._too_many, self._reason = too_many, reason
        self._buckets = _Buckets(clock, seconds)

    def take(self, who: str) -> None:
        """Count one.

        Raises:
            GPULeaseError: ``reason`` (429); ``retry_after`` is in seconds.
        """
        most = float(self._most())
        bucket = self._buckets.of(who, most)
        if bucket.left < 1.0:
            seconds = math.ceil((1.0 - bucket.left) * self._seconds / most)
            raise GPULeaseError(
                self._reason,
                self._too_many(int(most)),
                next_step=Text("Try again in {seconds} s.", seconds=seconds),
                numbers={"max": int(most), "retry_after": seconds},
                status=429,
            )
        bucket.left -= 1.0


class LoopTime:
    """How long the event loop worked for each peer that sends messages unasked.

    Who takes more than a share of it is not read for a while: its own messages wait then, and
    nobody else's.  It is nobody's mistake, so nothing is refused.

    Args:
        clock: monotonic, seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._buckets = _Buckets(clock, _AT_ONCE / _SHARE)

    def spent(self, whose: tuple[str, ...], seconds: float) -> float:
        """Count some; return for how long (seconds) nothing more of it is to be read."""
        bucket = self._buckets.of(whose, _AT_ONCE)
        bucket.left -= seconds
        return min(max(0.0, -bucket.left / _SHARE), _REST_MAX)


class Channels:
    """The open live channels, counted by whose they are."""

    def __init__(self) -> None:
        self._open: Counter[tuple[str, ...]] = Counter()

    @contextmanager
    def counted(self, whose: tuple[str, ...], most: int) -> Iterator[None]:
        """Count one for as long as it is open.

        Raises:
            GPULeaseError: ``too_many_channels`` (429).
        """
        if self._open[whose] >= most:
            raise GPULeaseError(
                "too_many_channels",
                f"{most} live channels are open already, as many as may be.",
                next_step="Close some pages of the lease service, then try again.",
                numbers={"max": most, "retry_after": 10},
            )
        self._open[whose] += 1
        try:
            yield
        finally:
            self._open[whose] -= 1
            if not self._open[whose]:
                del self._open[whose]


class RateLimit:
    """What one person may take of the service.

    Args:
        per_minute: how many changes one person may make in a minute, at present.
        clock: monotonic, seconds.
    """

    def __init__(
        self, per_minute: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.changes = Rate(per_minute, clock=clock)
        self.changes_of_a_day = Rate(
            lambda: _DAY_OF * per_minute(), _changes_of_a_day, clock=clock, seconds=_DAY
        )
        self.looks = Rate(lambda: _LOOKS * per_minute(), _requests, "too_many_requests", clock)
        self.loop_time = LoopTime()
        self.channels = Channels()


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
