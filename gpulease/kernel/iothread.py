"""The one thread that owns every ZeroMQ socket of the home kernel's side.

Owns the poll loop and the hand-over to the kernel's main thread (the inbox).  Refuses to know what
the messages mean.  The main thread never touches a socket: with a running event loop a client
there would run hooks on another thread, and an interrupt during ``input()`` would hang the kernel.
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

log = logging.getLogger("gpulease.kernel")
T = TypeVar("T")
Frames = list[bytes]


class Inbox:
    """Events for the main thread: callables, run there in order.

    ``wake`` is called after each put, from any thread; the kernel makes it schedule ``run_ready``
    on its event loop, so that events are handled between cells too.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._items: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake = wake
        self._waiting = False  # the main thread is in ``wait_for``, and takes what comes
        self.nudge: Callable[[], None] = lambda: None

    def put(self, action: Callable[[], None], *, urgent: bool = False) -> None:
        """Hand ``action`` to the main thread; any thread may call it.

        ``urgent``: also ends a wait for the person's input, which does not look into this inbox.
        """
        self._items.put(action)
        if not self._waiting:
            self._wake()
        if urgent:
            self.nudge()

    def run_one(self, timeout: float | None) -> bool:
        """Wait at most ``timeout`` seconds (None: for ever) and run one; False when none came.

        A KeyboardInterrupt ends the wait; an event is then lost only if it was being run.
        """
        try:
            action = self._items.get(timeout=timeout)
        except queue.Empty:
            return False
        action()
        return True

    def run_ready(self) -> None:
        """Run what is there now, without waiting."""
        while True:
            try:
                action = self._items.get_nowait()
            except queue.Empty:
                return
            action()

    def wait_for(self, done: Callable[[], bool], deadline: float | None = None) -> bool:
        """Run events until ``done()``; False when ``deadline`` (monotonic seconds) passed first."""
        before, self._waiting = self._waiting, True
        try:
            while not done():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self.run_one(left)
            return True
        finally:
            self._waiting = before
            if not before and not self._items.empty():
                self._wake()  # it came when it was to be taken here, and was not


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
