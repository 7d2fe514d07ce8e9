"""Client of a lease supervisor's desk (CurveZMQ).

Owns the home kernel's conversation with the supervisor: calls with an answer, pushes without, and
noticing that the supervisor no longer answers.  Refuses to know what a push leads to.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

import zmq

from gpulease.errors import GPULeaseError
from gpulease.kernel.iothread import Frames, Inbox, IOThread
from gpulease.protocol import ConnectionView
from gpulease.transfer.api import KeyPair

#: Silence after which the supervisor is taken for lost, and how often it is asked (seconds).
LOST_AFTER = 15.0
PING_EVERY = 1.0
#: How long it may take to come back after its connection broke (seconds).
BACK_WITHIN = 3.0

Push = dict[str, Any]


class Desk:
    """One connection to a supervisor's desk.

    ``early`` is called on the I/O thread with each pushed message, ``on_push`` on the main thread,
    and with ``{"push": "lost"}`` once when the supervisor has not answered for ``LOST_AFTER``
    seconds; calls that wait for its answer fail then.

    Attributes:
        cell: whether a GPU cell runs here, from its first value sent to its last value back; the
            supervisor is told with each ping, and forgets it where none comes.
    """

    def __init__(
        self,
        io: IOThread,
        inbox: Inbox,
        view: ConnectionView,
        keys: KeyPair,
        on_push: Callable[[Push], None],
        *,
        early: Callable[[Push], None],
    ) -> None:
        self._io = io
        self._inbox = inbox
        self._on_push = on_push
        self._early = early
        self._ids = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._heard = time.monotonic()
        self._lost = False
        self.cell = False
        self.closed = False
        self._socket: zmq.Socket[bytes] = io.call(partial(self._open, view, keys))

    def call(self, name: str, args: Mapping[str, Any], timeout: float) -> Any:
        """Return the supervisor's answer.

        Raises:
            GPULeaseError: its problem, or ``lease_unreachable`` after ``timeout`` seconds, sooner
                where the supervisor is gone.
        """
        future = self.start_call(name, args)
        try:
            return future.result(timeout)
        except TimeoutError:
            raise GPULeaseError(
                "lease_unreachable",
                f"The lease's supervisor did not answer within {timeout:.0f} s.",
                next_step="Run the cell again; %gpu shows the state of the lease.",
                numbers={"seconds": timeout},
                status=504,
            ) from None

    def start_call(self, name: str, args: Mapping[str, Any]) -> Future[Any]:
        """Send a call and return its future answer; any thread may call it."""
        number = next(self._ids)
        future: Future[Any] = Future()
        frame = json.dumps({"id": number, "call": name, "args": dict(args)}).encode()
        self._io.submit(partial(self._call, number, frame, future))
        return future

    def close(self) -> None:
        """Close the socket; calls still waiting fail with ``lease_unreachable``."""
        if not self.closed:
            self.closed = True
            self._io.submit(self._close)

    def _open(self, view: ConnectionView, keys: KeyPair) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = self._io.context.socket(zmq.DEALER)
        socket.linger = 500  # a last "close" call should still leave
        socket.curve_serverkey = view["server_key"].encode()
        socket.curve_publickey = keys.public.encode()
        socket.curve_secretkey = keys.secret.encode()
        self._monitor: zmq.Socket[bytes] = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._io.register(self._monitor, self._disconnected)
        socket.connect(view["address"])
        self._io.register(socket, self._received)
        self._io.every(self, PING_EVERY, self._tick)
        return socket

    def _disconnected(self, frames: Frames) -> None:  # noqa: ARG002 - the only event asked for
        """The peer hung up: it has a moment to be there again, which libzmq finds out."""
        self._heard = min(self._heard, time.monotonic() - LOST_AFTER + BACK_WITHIN)

    def _call(self, number: int, frame: bytes, future: Future[Any]) -> None:
        self._waiting[number] = future
        self._send(frame)
        if self._lost or self.closed:
            self._fail("The lease's supervisor does not answer any more.")

    def _send(self, frame: bytes) -> None:
        if not self._socket.closed:
            self._socket.send(frame)

    def _received(self, frames: Frames) -> None:
        self._heard = time.monotonic()
        message = json.loads(frames[-1])
        if "push" in message:
            self._early(message)
            gone = message["push"] in ("companion_died", "end")
            self._inbox.put(partial(self._hand_over, message), urgent=gone)
            return
        future = self._waiting.pop(int(message["id"]), None)
        if future is None or not future.set_running_or_notify_cancel():
            return
        if "problem" in message:
            future.set_exception(GPULeaseError.from_problem(message["problem"]))
        else:
            future.set_result(message.get("ok"))

    def _hand_over(self, message: Push) -> None:
        if not self.closed:
            self._on_push(message)

    def _tick(self) -> None:
        ping = {"id": next(self._ids), "call": "ping", "args": {"cell": self.cell}}
        self._send(json.dumps(ping).encode())
        if time.monotonic() - self._heard > LOST_AFTER and not self._lost:
            self._lost = True
            self._fail("The lease's supervisor does not answer any more.")
            self._inbox.put(partial(self._hand_over, {"push": "lost"}), urgent=True)

    def _close(self) -> None:
        self._io.every(self, 0, None)
        self._io.unregister(self._monitor)
        self._socket.disable_monitor()
        self._io.unregister(self._socket)
        self._fail("The connection to the lease is closed.")

    def _fail(self, why: str) -> None:
        """On the I/O thread: nobody waits for an answer that cannot come."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if future.set_running_or_notify_cancel():
                future.set_exception(
                    GPULeaseError(
                        "lease_unreachable", why, next_step="Run the cell again.", status=504
                    )
                )
