"""The one thread that owns every ZeroMQ socket of the home kernel's side.

The main thread never touches a socket: with a running event loop a client there would run hooks on
another thread, and an interrupt during ``input()`` would hang the kernel.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import zmq

log = logging.getLogger("gpulease.channel")
T = TypeVar("T")
Frames = list[bytes]


class IOThread:
    """Polls sockets; everything that touches one is handed over by ``submit`` or ``call``."""

    def __init__(self) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._poller = zmq.Poller()
        self._handlers: dict[zmq.Socket[bytes], Callable[[Frames], None]] = {}
        self._tickers: dict[object, tuple[float, float, Callable[[], None]]] = {}
        address = f"inproc://gpulease-{id(self)}"
        self._wake_in = self.context.socket(zmq.PULL)
        self._wake_in.bind(address)
        self._wake_out = self.context.socket(zmq.PUSH)
        self._wake_out.connect(address)
        self._wake_lock = threading.Lock()  # several threads wake, and a socket is not thread-safe
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="gpulease-io", daemon=True)
        self._thread.start()

    def submit(self, action: Callable[[], None]) -> None:
        """Run ``action`` on the I/O thread soon."""
        if self._stopping:
            return
        self._work.put(action)
        with self._wake_lock:
            self._wake_out.send(b"")

    def call(self, action: Callable[[], T], timeout: float = 10.0) -> T:
        """Run ``action`` on the I/O thread and return what it returns, within ``timeout`` s."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(action())
            except BaseException as error:  # noqa: BLE001 - carried to the caller
                future.set_exception(error)

        self.submit(run)
        return future.result(timeout)

    def register(self, socket: zmq.Socket[bytes], handler: Callable[[Frames], None]) -> None:
        """On the I/O thread: give each message of ``socket`` to ``handler``."""
        self._handlers[socket] = handler
        self._poller.register(socket, zmq.POLLIN)

    def unregister(self, socket: zmq.Socket[bytes]) -> None:
        """On the I/O thread: stop reading ``socket`` and close it; unsent messages are dropped."""
        if self._handlers.pop(socket, None) is not None:
            self._poller.unregister(socket)
        socket.close(linger=0)

    def every(self, key: object, seconds: float, action: Callable[[], None] | None) -> None:
        """On the I/O thread: run ``action`` every ``seconds``; None ends the ticker of ``key``."""
        if action is None:
            self._tickers.pop(key, None)
        else:
            self._tickers[key] = (time.monotonic() + seconds, seconds, action)

    def stop(self) -> None:
        """Close every socket and end the thread."""
        self.submit(self._stop)
        self._thread.join(timeout=5)

    def _stop(self) -> None:
        self._stopping = True

    def _run(self) -> None:
        self._poller.register(self._wake_in, zmq.POLLIN)
        while not self._stopping:
            try:
                self._turn()
            except Exception:  # the thread serves every cell: one bad message must not end it
                log.exception("gpulease's I/O thread met an error")
        for socket in list(self._handlers):
            self.unregister(socket)
        self._wake_in.close(linger=0)
        self._wake_out.close(linger=0)
        self.context.term()

    def _turn(self) -> None:
        for socket, _ in self._poller.poll(self._poll_ms()):
            if socket is self._wake_in:
                self._wake_in.recv()
                self._work.get()()
            elif socket in self._handlers:
                self._handlers[socket](socket.recv_multipart())
        now = time.monotonic()
        for key, (due, seconds, action) in list(self._tickers.items()):
            if due <= now:
                self._tickers[key] = (now + seconds, seconds, action)
                action()

    def _poll_ms(self) -> int | None:
        if not self._tickers:
            return None
        due = min(due for due, _, _ in self._tickers.values())
        return max(0, int((due - time.monotonic()) * 1000) + 1)
