"""Websockets: a client that comes back by itself, and a server's end that nobody can fill."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import struct
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from tornado.httpclient import HTTPError, HTTPRequest
from tornado.iostream import StreamClosedError
from tornado.websocket import (
    WebSocketClientConnection,
    WebSocketClosedError,
    WebSocketHandler,
    websocket_connect,
)

from gpulease.channel.asynchronous import AsynchronousEnd, Handler
from gpulease.channel.conversation import Message
from gpulease.channel.lines import BACKLOG, decoded
from gpulease.channel.timing import BackOff
from gpulease.errors import GPULeaseError

log = logging.getLogger("gpulease.channel")

PING_SECONDS = 20.0
REFUSED = 4400
TOO_SLOW = 4408
#: Seconds that a message takes to be read off its connection, and so many for each byte.
_READING, _READING_A_BYTE = 1e-4, 3e-9
#: What a message of a shape that nobody expects leads to.
_ODD = (ValueError, KeyError, TypeError, AttributeError)


def _lost() -> GPULeaseError:
    return GPULeaseError("connection_lost", "The connection is lost.")


class WebsocketClient(AsynchronousEnd):
    """One process's connection; start it with ``run``.

    Args:
        url: websocket address.
        headers: asked for each connection; where the credential is, and nowhere else.
        pushed: takes what the server tells, one message after the other, each to its end.  Where
            it raises what a message of an unexpected shape leads to, all that is known may be
            wrong: the client connects anew.
        greeting: the first message of each connection, None for none.
        link: called when the connection is up (True), after the greeting, and when it is lost.
        called: see ``AsynchronousEnd``.
        gone: what calls get when the connection breaks.
        tls: what checks the server's certificate.
        ping: seconds between pings.
        keep: how many messages wait for the next connection; older ones give way.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Callable[[], Mapping[str, str]],
        pushed: Callable[[Message], Awaitable[None] | None],
        greeting: Callable[[], Message | None] = lambda: None,
        link: Callable[[bool], None] = lambda _: None,
        called: Handler | None = None,
        gone: Callable[[], GPULeaseError] = _lost,
        tls: ssl.SSLContext | None = None,
        ping: float = PING_SECONDS,
        keep: int = 0,
    ) -> None:
        super().__init__(self._write, called=called, pushed=pushed)
        self._url = url
        self._headers = headers
        self._greeting = greeting
        self._link = link
        self._error = gone
        self._tls = tls
        self._ping = ping
        self._unsent: deque[Message] = deque(maxlen=keep)
        self._connection: WebSocketClientConnection | None = None
        self._closed = False
        self._refused = 0

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._connection is not None

    async def run(self) -> None:
        """Stay connected until ``close``."""
        pauses = BackOff()
        while not self._closed:
            try:
                if await self._read(await self._connect()):
                    pauses.worked()
            except HTTPError as error:
                self._say_refused(error.code)
            except (TimeoutError, OSError, WebSocketClosedError) as error:
                log.info("%s is not reachable: %s", self._url, type(error).__name__)
            if not self._closed:
                await asyncio.sleep(pauses.pause())

    def push(self, message: Mapping[str, Any]) -> None:
        """Send a message that is no call, now or, where that is to be kept, when it can be sent."""
        if not self._sent(message):
            self._unsent.append(dict(message))

    def close(self, last: Message | None = None) -> None:
        """Say ``last`` if anybody hears it, hang up, and connect no more."""
        if last is not None:
            self.push(last)
        self._closed = True
        super().close()
        if self._connection is not None:
            self._connection.close()

    async def _connect(self) -> WebSocketClientConnection:
        request = HTTPRequest(
            self._url,
            headers=dict(self._headers()),
            connect_timeout=10,
            request_timeout=20,
            ssl_options=self._tls,
        )
        connection = await websocket_connect(request, ping_interval=self._ping)
        self._refused = 0
        greeting = self._greeting()
        if greeting is not None:
            try:
                await connection.write_message(json.dumps(greeting))
            except BaseException:
                connection.close()
                raise
        return connection

    async def _read(self, connection: WebSocketClientConnection) -> bool:
        """Take messages until the connection breaks; tell whether at least one could be taken."""
        taken = False
        self._connection = connection
        self.found()
        try:
            while self._unsent and self._sent(self._unsent[0]):
                self._unsent.popleft()
            self._link(True)
            while (raw := await connection.read_message()) is not None:
                if not await self._take(raw):
                    break
                taken = True
        finally:
            connection.close()  # where the server hung up, our own side is still open
            self._connection = None
            self.lost(self._error())
            self._link(False)
        return taken

    async def _take(self, raw: str | bytes) -> bool:
        try:
            message = decoded(raw)
        except ValueError:
            log.warning("%s sent something that is no message", self._url)
            return True
        try:
            working = self.received(message)
            if working is not None:
                await working
        except _ODD:
            log.exception("a message of %s could not be taken; connecting again", self._url)
            return False
        return True

    def _write(self, message: Message) -> None:
        self._sent(message)  # a call, or its answer, fails with its connection

    def _sent(self, message: Mapping[str, Any]) -> bool:
        if self._connection is None:
            return False
        try:
            sent = self._connection.write_message(json.dumps(message))
        except WebSocketClosedError:
            return False  # the reader notices too, and connects again
        sent.add_done_callback(self._heed)
        return True

    def _say_refused(self, code: int) -> None:
        # A credential that is too old is refused for ever; that is said once.
        if self._refused != code:
            self._refused = code
            log.warning("%s refused this process: HTTP %s", self._url, code)

    def _heed(self, sent: asyncio.Future[None]) -> None:
        """A connection that breaks is noticed by its reader; here it is only not left unsaid."""
        if not sent.cancelled() and sent.exception() is not None:
            kind = type(sent.exception()).__name__
            log.info("a message to %s was lost: %s", self._url, kind)


class _Frames:
    """One message for many readers is written once for all who read it in the same words."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Any, bytes]] = {}

    def of(self, message: Any, reader: ServerEnd) -> bytes:
        """Return a message as a reader's websocket carries it."""
        known = self._last.get(reader.words)
        if known is None or known[0] is not message:
            known = message, _frame(json.dumps(reader.in_words(message)))
            self._last[reader.words] = known
        return known[1]


def _frame(text: str) -> bytes:
    """Return a whole text message as a server sends it: unmasked (RFC 6455, section 5.2)."""
    data = text.encode()
    size = len(data)
    if size < 126:
        return struct.pack("!BB", 0x81, size) + data
    if size < 2**16:
        return struct.pack("!BBH", 0x81, 126, size) + data
    return struct.pack("!BBQ", 0x81, 127, size) + data


_frames = _Frames()


class ServerEnd(WebSocketHandler):
    """A server's end: sends without waiting, and hangs up on who does not keep up.

    A subclass takes what arrives in ``arrived``, and says in ``rest`` how long a peer that has
    sent so much is not read.
    """

    #: In which words this reader is told: readers of the same words are told the same.
    words = ""
    _unread = 0  # bytes that the connection did not take at once, and has not taken since

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._outgoing: list[bytes] = []

    def open(self, *args: str, **kwargs: str) -> None:  # noqa: ARG002
        """Let no message wait until the one before it was received: that may take 40 ms."""
        self.set_nodelay(True)

    def in_words(self, message: Any) -> Any:
        """Return a message in this reader's words."""
        return message

    def arrived(self, message: str | bytes) -> None:
        """Take one message."""

    def rest(self, seconds: float) -> float:  # noqa: ARG002
        """Return for how long (seconds) nothing is read after so many seconds of work."""
        return 0.0

    def on_message(self, message: str | bytes) -> Awaitable[None] | None:
        """Take one message; the next one is read when what is returned is over."""
        began = time.thread_time()  # not what other processes took of the machine meanwhile
        self.arrived(message)
        work = time.thread_time() - began + _READING + len(message) * _READING_A_BYTE
        pause = self.rest(work)
        return asyncio.sleep(pause) if pause else None

    def send(self, message: Any) -> None:
        """Send one message; what cannot be sent any more is dropped, as the close will tell."""
        if self.ws_connection is None:
            return
        if self._unread > BACKLOG:
            self.close(TOO_SLOW, "too slow")
            return
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outgoing.append(_frames.of(message, self))

    def read(self, raw: str | bytes) -> Message | None:
        """Return the message that arrived; a peer that sends anything else is hung up on."""
        try:
            return decoded(raw)
        except ValueError:
            self.close(REFUSED, "not a JSON object")
            return None

    def _flush(self) -> None:
        """Send what was said in this turn of the loop, at once.

        Tornado's ``write_message`` makes a frame and a task for each reader: where a thousand are
        told the same, that costs more than all else.
        """
        frames, self._outgoing = self._outgoing, []
        connection = self.ws_connection
        stream = connection.stream if connection is not None else None
        if connection is None or stream is None or connection.is_closing():
            return
        data = b"".join(frames)
        try:
            sent = stream.write(data)
        except StreamClosedError:
            log.debug("a channel closed while a message was on its way")
            return
        if stream.writing():  # else the system has taken it
            self._unread += len(data)
            sent.add_done_callback(partial(self._left, len(data)))

    def _left(self, size: int, sent: asyncio.Future[None]) -> None:
        self._unread -= size
        if not sent.cancelled() and sent.exception() is not None:
            log.debug("a channel closed while a message was on its way")
