"""The transfer channel: CurveZMQ, one client, JSON headers and raw buffers in pieces.

Each side's socket has a thread, and a caller waits for its own reply.  No message is handed on from
a peer that has not proved its key.
"""

from __future__ import annotations

import collections
import itertools
import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from gpulease.channel.keys import Endpoint, KeyPair
from gpulease.errors import GPULeaseError
from gpulease.wire import curve
from gpulease.wire.memory import fresh_each
from gpulease.wire.message import (
    SECOND_TO_BOTH,
    SECOND_TO_CLIENT,
    SECOND_TO_SERVER,
    Message,
    Pending,
    gone_error,
    header,
    read_header,
)
from gpulease.wire.pieces import INLINE, Offers, Pulls
from gpulease.wire.polled import Polled
from gpulease.wire.second import Second
from gpulease.wire.shortcut import Shortcut

log = logging.getLogger(__name__)

#: Messages that are about other ways of pieces.
_MEETING = {"near", "far"} | SECOND_TO_SERVER | SECOND_TO_CLIENT | SECOND_TO_BOTH


class Wire:
    """One end.  ``handler`` gets complete requests, on the wire's own thread: it must not block.

    ``accept`` is asked before memory for ``total`` bytes is taken; it returns a refusal or None.
    ``memory`` returns that memory, by a message's body and the sizes of its blobs.
    """

    def __init__(
        self,
        handler: Callable[[Message], None],
        accept: Callable[[int], GPULeaseError | None] = lambda _total: None,
        lost: Callable[[], None] = lambda: None,
        memory: Callable[[dict[str, Any], list[int]], list[Any]] = fresh_each,
    ) -> None:
        self._handler = handler
        self._lost = lost
        self._context = zmq.Context()
        self._numbers = itertools.count(1)
        self._outbox: collections.deque[list[Any]] = collections.deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._pending: dict[int, Pending] = {}
        self._offers = Offers()
        self._pulls = Pulls(
            self._post, self._pending.get, accept, memory, self._complete, self._decline
        )
        self._poller = zmq.Poller()
        self._polled = polled = Polled(self._poller)
        ends = self._offers, self._pulls
        self._second = Second(polled, self._post, self._kick, *ends)
        self._shortcut = Shortcut(polled, self._post, *ends, self._second.ask)
        self._stop = False
        self._broken = False
        self._lock = threading.Lock()
        self._server = False
        self._client_key = b""
        self._socket: zmq.Socket[bytes]
        self._monitor: zmq.Socket[bytes] | None = None
        self._zap: zmq.Socket[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="gpulease-wire", daemon=True)

    # ---- life

    def connect(self, endpoint: Endpoint, keys: KeyPair) -> None:
        """Connect as the client (the home kernel's half)."""
        self._second.at(endpoint.address)
        self._socket, self._monitor = curve.client(self._context, endpoint, keys)
        self._thread.start()

    def listen(
        self, client_key: str, host: str, port: int = 0, second: int | None = None
    ) -> Endpoint:
        """Listen as the server, for the one client that proves ``client_key``; port 0: any.

        ``second``: the port of a second wire, for large blobs, which listens when it is wanted.
        """
        self._server = True
        self._client_key = client_key.encode()
        self._socket, self._zap, endpoint = curve.server(self._context, host, port)
        self._second.at(endpoint.address, second)
        self._thread.start()
        return endpoint

    def close(self) -> None:
        """End the thread and the socket; whoever waits gets ``companion_gone``."""
        self._stop = True
        self._kick()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(5)

    @property
    def broken(self) -> bool:
        """True once the connection was lost."""
        return self._broken

    @property
    def thread(self) -> threading.Thread:
        """The wire's own thread."""
        return self._thread

    @property
    def slow_because(self) -> str:
        """Why large blobs travel by this wire alone, where they should not; for a person."""
        return self._second.why_not

    @property
    def threads(self) -> list[threading.Thread]:
        """All threads that this wire has now."""
        return [self._thread, *self._second.threads]

    # ---- sending (any thread)

    def request(
        self,
        kind: str,
        body: dict[str, Any],
        blobs: Sequence[Any] = (),
        progress: Callable[[int, int], None] | None = None,
        beside: int = 0,
    ) -> Pending:
        """Send a request; the caller waits on what is returned.

        ``beside``: bytes of memory that the other side will need more than those of the blobs.
        """
        number = next(self._numbers)
        pending = Pending(number, progress)
        with self._lock:
            if self._broken or self._stop:
                raise gone_error()
            self._pending[number] = pending
        self._send(number, kind, body, blobs, None, beside)
        return pending

    def expect(self) -> Pending:
        """Return what waits for the answer to a question that travels in another way."""
        pending = Pending(next(self._numbers), None)
        with self._lock:
            if self._broken or self._stop:
                raise gone_error()
            self._pending[pending.number] = pending
        return pending

    def answered(self, number: int, body: dict[str, Any]) -> None:
        """Take an answer that came in another way; unknown ones are dropped."""
        self._finish(number, Message(0, "reply", body), None)

    def reply(
        self, to: Message, body: dict[str, Any], blobs: Sequence[Any] = (), beside: int = 0
    ) -> None:
        """Answer a request."""
        self._send(next(self._numbers), "reply", body, blobs, to.number, beside)

    def refuse(self, to: Message, error: GPULeaseError) -> None:
        """Answer a request with a refusal."""
        self._send(next(self._numbers), "refusal", error.to_problem(), [], to.number)

    def cancel(self, pending: Pending) -> None:
        """Wait no longer for a reply; the other side stops what it can, its answer is dropped."""
        with self._lock:
            self._pending.pop(pending.number, None)
        pending.error = GPULeaseError("interrupted", "The transfer was interrupted.")
        pending.done.set()
        self.abort(pending)

    def abort(self, pending: Pending) -> None:
        """Ask the other side to stop; its answer, whether it did, still comes."""
        self._offers.drop(pending.number)
        self._post([header(kind="cancel", number=0, cancel=pending.number)])

    def withdraw(self) -> None:
        """Stop offering memory of this process: nothing of it is read after this returns."""
        self._offers.clear()

    def _send(  # noqa: PLR0917 - the parts of one message
        self, number: int, kind: str, body: dict[str, Any], blobs: Sequence[Any], to: int | None,
        beside: int = 0,
    ) -> None:  # fmt: skip
        views = [memoryview(blob).cast("B") for blob in blobs]
        sizes = [view.nbytes for view in views]
        inline = sum(sizes) + beside <= INLINE  # what is asked for first may be refused
        if not inline:
            self._offers.put(number, views)
        head = header(
            kind=kind, number=number, body=body, sizes=sizes, inline=inline, reply_to=to,
            beside=beside,
        )  # fmt: skip
        self._post([head, *(bytes(view) for view in views)] if inline else [head])

    def _post(self, parts: list[Any]) -> None:
        self._outbox.append(parts)
        self._kick()

    def _kick(self) -> None:
        try:
            os.eventfd_write(self._wake, 1)
        except (OSError, ValueError):
            log.debug("wire woken after its end")

    # ---- the thread

    def _run(self) -> None:
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._wake, zmq.POLLIN)
        for extra in (self._monitor, self._zap):
            if extra is not None:
                self._poller.register(extra, zmq.POLLIN)
        try:
            if not self._server:
                self._shortcut.listen()
            while not self._stop:
                events: dict[Any, int] = dict(self._poller.poll())
                if self._wake in events:
                    os.eventfd_read(self._wake)
                if self._zap is not None and self._zap in events:
                    curve.authenticate(self._zap, self._client_key)
                if self._monitor is not None and self._monitor in events:
                    self._watch(self._monitor)
                self._polled.look(events)
                self._second.look()
                self._flush()
                while self._socket.poll(0):
                    self._receive(self._socket.recv_multipart(copy=False))
                    self._flush()
        finally:
            self._end()

    def _end(self) -> None:
        self._break()
        for socket in (self._socket, self._zap):
            if socket is not None:
                socket.close(0)
        if self._monitor is not None:
            self._socket.disable_monitor() if not self._socket.closed else None
            self._monitor.close(0)
        wake, self._wake = self._wake, -1  # what is still posted must wake nobody else's file
        os.close(wake)
        self._context.term()

    def _flush(self) -> None:
        while self._outbox:
            parts = self._outbox.popleft()
            if self._server:
                parts = [curve.IDENTITY, *parts]
            self._socket.send_multipart(parts, copy=len(parts) < 2)

    def _break(self) -> None:
        with self._lock:
            self._broken = True
            waiting = list(self._pending.values())
            self._pending.clear()
        self._offers.clear()
        self._pulls.clear()
        self._shortcut.close()
        self._second.close()
        for pending in waiting:
            pending.finish(None, gone_error())
        if not self._stop:
            self._lost()

    def _watch(self, monitor: zmq.Socket[bytes]) -> None:
        event = recv_monitor_message(monitor)
        log.info("transfer wire lost (event %s)", int(event["event"]))
        self._break()

    # ---- what arrives

    def _receive(self, frames: list[zmq.Frame]) -> None:
        if self._server:
            frames = frames[1:]
        try:
            head = read_header(frames[0].bytes)
        except (ValueError, IndexError):
            log.warning("transfer wire: malformed message dropped")
            return
        kind = head["kind"]
        if kind in _MEETING:
            self._meet(head)
        elif kind == "get":
            self._post(self._offers.answer(head))
        elif kind == "piece":
            self._pulls.piece(head, frames[1].buffer if len(frames) > 1 else b"")
        elif kind == "got":
            self._offers.drop(head["offer"])
        elif kind == "cancel":
            self._handler(Message(0, "cancel", {"number": head["cancel"]}))
        else:
            self._begin(head, frames[1:])

    def _meet(self, head: dict[str, Any]) -> None:
        kind = head["kind"]
        mine = SECOND_TO_SERVER if self._server else SECOND_TO_CLIENT
        if kind in SECOND_TO_BOTH | mine:
            self._second.hear(head)
        elif self._server and kind == "near":
            self._shortcut.call(head)
        elif not self._server and kind == "far":
            self._shortcut.far()

    def _begin(self, head: dict[str, Any], frames: list[zmq.Frame]) -> None:
        message = Message(head["number"], head["kind"], head["body"], [], head.get("reply_to"))
        if message.reply_to is not None and message.reply_to not in self._pending:
            self._pulls.decline(message.number)
        elif head["inline"]:
            message.blobs = [bytearray(frame.buffer) for frame in frames]
            self._complete(message)
        else:
            self._pulls.begin(message, head["sizes"], head.get("beside", 0))

    def _decline(self, message: Message, why: GPULeaseError) -> None:
        if message.reply_to is not None:
            self._finish(message.reply_to, None, why)
        else:
            self.refuse(message, why)

    def _complete(self, message: Message) -> None:
        if message.reply_to is None:
            self._handler(message)
        elif message.kind == "refusal":
            self._finish(message.reply_to, None, GPULeaseError.from_problem(message.body))
        else:
            self._finish(message.reply_to, message, None)

    def _finish(self, number: int, message: Message | None, error: GPULeaseError | None) -> None:
        with self._lock:
            pending = self._pending.pop(number, None)
        if pending is not None:
            pending.finish(message, error)
