"""The transfer channel: CurveZMQ, one client, JSON headers and raw buffers in pieces.

Owns the socket and its thread at either side.  Large blobs are *pulled* piece by piece by the
receiver, which checks its memory first: giving up is not asking for the next piece.  It knows
nothing of variables; nothing is handed on from a peer that has not proved its key.
"""

from __future__ import annotations

import collections
import itertools
import json
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import zmq
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from gpulease.errors import GPULeaseError

from .api import Endpoint, KeyPair

log = logging.getLogger(__name__)

PIECE = 4 * 2**20
#: Pieces asked for ahead; bounds what is on its way when a transfer is given up.
WINDOW = 8
#: Messages whose blobs are smaller than this in all carry them along.
INLINE = 2**20

_IDENTITY = b"home"


def gone_error() -> GPULeaseError:
    """Return what waiting callers get when the other side is lost."""
    return GPULeaseError(
        "companion_gone",
        "The companion beside the GPU is gone.",
        next_step="Run the cell again: it gets a new companion.",
    )


@dataclass
class Message:
    """A complete message: ``body`` is its JSON, ``blobs`` writable memory of this process."""

    number: int
    kind: str
    body: dict[str, Any]
    blobs: list[Any] = field(default_factory=list)
    reply_to: int | None = None


class Pending:
    """The reply to come; ``wait`` may be interrupted."""

    def __init__(self, number: int, progress: Callable[[int, int], None] | None) -> None:
        self.number = number
        self.progress = progress
        self.done = threading.Event()
        self.message: Message | None = None
        self.error: GPULeaseError | None = None

    def wait(self, seconds: float | None = None) -> Message | None:
        """Return the reply, or None after ``seconds``; raises what the other side refused with."""
        if not self.done.wait(seconds):
            return None
        if self.error is not None:
            raise self.error
        return self.message


@dataclass
class _Pull:
    message: Message
    sizes: list[int]
    total: int
    started: int = 0
    received: int = 0
    todo: collections.deque[tuple[int, int]] = field(default_factory=collections.deque)


class Wire:
    """One end.  ``handler`` gets complete requests, on the wire's own thread: it must not block.

    ``accept`` is asked before memory for ``total`` bytes is taken; it returns a refusal or None.
    """

    def __init__(
        self,
        handler: Callable[[Message], None],
        accept: Callable[[int], GPULeaseError | None] = lambda _total: None,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._handler = handler
        self._accept = accept
        self._lost = lost
        self._context = zmq.Context()
        self._numbers = itertools.count(1)
        self._outbox: collections.deque[list[Any]] = collections.deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._pending: dict[int, Pending] = {}
        self._offers: dict[int, list[Any]] = {}
        self._pulls: dict[int, _Pull] = {}
        self._cancelled: set[int] = set()
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
        self._socket = self._context.socket(zmq.DEALER)
        self._prepare(self._socket)
        self._socket.identity = _IDENTITY
        self._socket.curve_publickey = keys.public.encode()
        self._socket.curve_secretkey = keys.secret.encode()
        self._socket.curve_serverkey = endpoint.server_key.encode()
        self._monitor = self._socket.get_monitor_socket(
            zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH
        )
        self._socket.connect(endpoint.address)
        self._thread.start()

    def listen(self, client_key: str, host: str) -> Endpoint:
        """Listen as the server, for the one client that proves ``client_key``."""
        self._server = True
        self._client_key = client_key.encode()
        self._zap = self._context.socket(zmq.REP)
        self._zap.linger = 0
        self._zap.bind("inproc://zeromq.zap.01")
        public, secret = zmq.curve_keypair()
        self._socket = self._context.socket(zmq.ROUTER)
        self._prepare(self._socket)
        self._socket.router_handover = 1
        self._socket.curve_server = True
        self._socket.curve_secretkey = secret
        self._socket.curve_publickey = public
        self._socket.zap_domain = b"gpulease"
        port = self._socket.bind_to_random_port(f"tcp://{host}")
        self._thread.start()
        return Endpoint(f"tcp://{host}:{port}", public.decode())

    def _prepare(self, socket: zmq.Socket[bytes]) -> None:
        socket.linger = 0
        socket.sndhwm = socket.rcvhwm = 0
        socket.heartbeat_ivl = 5000
        socket.heartbeat_timeout = 30000
        socket.reconnect_ivl = 100

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

    # ---- sending (any thread)

    def request(
        self,
        kind: str,
        body: dict[str, Any],
        blobs: list[Any] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Pending:
        """Send a request; the caller waits on what is returned."""
        number = next(self._numbers)
        pending = Pending(number, progress)
        with self._lock:
            if self._broken or self._stop:
                raise gone_error()
            self._pending[number] = pending
        self._send(number, kind, body, blobs or [], None)
        return pending

    def reply(self, to: Message, body: dict[str, Any], blobs: list[Any] | None = None) -> None:
        """Answer a request."""
        self._send(next(self._numbers), "reply", body, blobs or [], to.number)

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
        with self._lock:
            self._offers.pop(pending.number, None)
        self._post([_header(kind="cancel", number=0, cancel=pending.number)])

    def withdraw(self) -> None:
        """Stop offering memory of this process: nothing of it is read after this returns."""
        with self._lock:
            self._offers.clear()

    def _send(
        self, number: int, kind: str, body: dict[str, Any], blobs: list[Any], to: int | None
    ) -> None:
        views = [memoryview(blob).cast("B") for blob in blobs]
        sizes = [view.nbytes for view in views]
        inline = sum(sizes) <= INLINE
        if not inline:
            with self._lock:
                self._offers[number] = views
        head = _header(kind=kind, number=number, body=body, sizes=sizes, inline=inline, reply_to=to)
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

    def _run(self) -> None:  # noqa: C901 - the one loop of the thread
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._wake, zmq.POLLIN)
        for extra in (self._monitor, self._zap):
            if extra is not None:
                poller.register(extra, zmq.POLLIN)
        try:
            while not self._stop:
                events = dict(poller.poll())
                if self._wake in events:
                    os.eventfd_read(self._wake)
                if self._zap is not None and self._zap in events:
                    self._authenticate(self._zap)
                if self._monitor is not None and self._monitor in events:
                    self._watch(self._monitor)
                self._flush()
                while self._socket.poll(0):
                    self._receive(self._socket.recv_multipart(copy=False))
                    self._flush()
        finally:
            self._break()
            for socket in (self._socket, self._zap):
                if socket is not None:
                    socket.close(0)
            if self._monitor is not None:
                self._socket.disable_monitor() if not self._socket.closed else None
                self._monitor.close(0)
            os.close(self._wake)
            self._context.term()

    def _flush(self) -> None:
        while self._outbox:
            parts = self._outbox.popleft()
            if self._server:
                parts = [_IDENTITY, *parts]
            self._socket.send_multipart(parts, copy=len(parts) < 2)

    def _break(self) -> None:
        with self._lock:
            self._broken = True
            waiting = list(self._pending.values())
            self._pending.clear()
            self._offers.clear()
        self._pulls.clear()
        for pending in waiting:
            pending.error = gone_error()
            pending.done.set()
        if not self._stop:
            self._lost()

    def _watch(self, monitor: zmq.Socket[bytes]) -> None:
        event = recv_monitor_message(monitor)
        log.info("transfer wire lost (event %s)", int(event["event"]))
        self._break()

    def _authenticate(self, zap: zmq.Socket[bytes]) -> None:
        parts = zap.recv_multipart()
        version, request_id, _domain, _address, _identity, mechanism, *credentials = parts
        known = (
            mechanism == b"CURVE"
            and len(credentials) == 1
            and z85.encode(credentials[0]) == self._client_key
        )
        status = (b"200", b"OK") if known else (b"400", b"unknown key")
        zap.send_multipart([version, request_id, *status, b"", b""])

    def _receive(self, frames: list[zmq.Frame]) -> None:
        if self._server:
            frames = frames[1:]
        try:
            head = json.loads(frames[0].bytes)
            kind = head["kind"]
        except (ValueError, KeyError, IndexError):
            log.warning("transfer wire: malformed message dropped")
            return
        if kind == "get":
            self._serve(head)
        elif kind == "piece":
            self._piece(head, frames[1])
        elif kind == "got":
            with self._lock:
                self._offers.pop(head["offer"], None)
        elif kind == "cancel":
            self._handler(Message(0, "cancel", {"number": head["cancel"]}))
        else:
            self._begin(head, frames[1:])

    def _begin(self, head: dict[str, Any], frames: list[zmq.Frame]) -> None:
        message = Message(head["number"], head["kind"], head["body"], [], head.get("reply_to"))
        if message.reply_to is not None and message.reply_to not in self._pending:
            self._post([_header(kind="got", offer=message.number)])
            return
        if head["inline"]:
            message.blobs = [bytearray(frame.buffer) for frame in frames]
            self._complete(message)
            return
        total = sum(head["sizes"])
        refusal = self._accept(total)
        if refusal is not None:
            self._post([_header(kind="got", offer=message.number)])
            if message.reply_to is not None:
                self._finish(message.reply_to, None, refusal)
            else:
                self.refuse(message, refusal)
            return
        message.blobs = [bytearray(size) for size in head["sizes"]]
        pull = _Pull(message, head["sizes"], total)
        pull.todo.extend(
            (blob, at) for blob, size in enumerate(head["sizes"]) for at in range(0, size, PIECE)
        )
        self._pulls[message.number] = pull
        for _ in range(WINDOW):
            self._ask(pull)

    def _ask(self, pull: _Pull) -> None:
        to = pull.message.reply_to
        if to is not None and to not in self._pending:
            self._pulls.pop(pull.message.number, None)
            self._post([_header(kind="got", offer=pull.message.number)])
            return
        if pull.todo:
            blob, at = pull.todo.popleft()
            self._post([_header(kind="get", offer=pull.message.number, blob=blob, at=at)])

    def _serve(self, head: dict[str, Any]) -> None:
        with self._lock:
            blobs = self._offers.get(head["offer"])
            at = head["at"]
            piece = bytes(blobs[head["blob"]][at : at + PIECE]) if blobs is not None else b""
        where = {"offer": head["offer"], "blob": head["blob"], "at": at}
        if blobs is None:
            self._post([_header(kind="piece", **where, withdrawn=True), b""])
            return
        self._post([_header(kind="piece", **where), piece])

    def _piece(self, head: dict[str, Any], frame: zmq.Frame) -> None:
        pull = self._pulls.get(head["offer"])
        if pull is None:
            return
        if head.get("withdrawn"):
            del self._pulls[head["offer"]]
            self._withdrawn(pull.message)
            return
        data = frame.buffer
        blob = pull.message.blobs[head["blob"]]
        blob[head["at"] : head["at"] + len(data)] = data
        pull.received += len(data)
        pending = self._pending.get(pull.message.reply_to or 0)
        if pending is not None and pending.progress is not None:
            pending.progress(pull.received, pull.total)
        if pull.received < pull.total:
            self._ask(pull)
            return
        del self._pulls[head["offer"]]
        self._post([_header(kind="got", offer=pull.message.number)])
        self._complete(pull.message)

    def _withdrawn(self, message: Message) -> None:
        error = GPULeaseError("transfer_abandoned", "The other side began to compute again.")
        if message.reply_to is not None:
            self._finish(message.reply_to, None, error)
        else:
            self.refuse(message, error)

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
            pending.message, pending.error = message, error
            pending.done.set()


def _header(**fields: Any) -> bytes:
    return json.dumps(fields).encode()
