"""Client of the notebook server's bus (the Unix socket of ``gpulease.lab``).

Owns the line protocol and the reconnecting.  Events reach the main thread through the inbox; calls
return futures.  Refuses to know what a lease event leads to.
"""

from __future__ import annotations

import itertools
import json
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.kernel.clock import own_times
from gpulease.kernel.iothread import Inbox
from gpulease.protocol import BusCall

log = logging.getLogger("gpulease.kernel")
RETRY_SECONDS = (0.1, 0.3, 1.0, 3.0)
Event = dict[str, Any]


def _down() -> GPULeaseError:
    return GPULeaseError(
        "server_link_down",
        "The notebook server's gpulease extension cannot be reached.",
        next_step="Run the cell again in a moment; if it stays so, restart your server.",
        status=503,
    )


class Bus:
    """A connection that comes back by itself.

    ``on_event`` runs on the main thread with every event of the bus; a lost connection is told as
    ``{"event": "link", "up": False}``, and each new one brings a snapshot.
    """

    def __init__(
        self, path: str, kernel_id: str, inbox: Inbox, on_event: Callable[[Event], None]
    ) -> None:
        self._path = path
        self._kernel_id = kernel_id
        self._inbox = inbox
        self._on_event = on_event
        self._ids = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._closed = threading.Event()
        self._connected = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpulease-bus", daemon=True)
        self._thread.start()

    def call(self, name: BusCall, args: Mapping[str, Any], timeout: float = 30.0) -> Any:
        """Return the answer of the notebook server.

        Raises:
            GPULeaseError: its problem, or ``server_link_down``.
        """
        self._connected.wait(min(timeout, 5.0))
        try:
            return self.start_call(name, args).result(timeout)
        except TimeoutError:
            raise _down() from None

    def notify(self, name: BusCall, args: Mapping[str, Any]) -> None:
        """Tell something that needs no answer; lost when the link is down."""
        with self._lock:
            if self._socket is not None:
                with suppress(OSError):  # the reader notices, and connects again
                    self._write(self._socket, {"call": name, "args": dict(args)})

    def start_call(self, name: BusCall, args: Mapping[str, Any]) -> Future[Any]:
        """Send a call; the future fails with ``server_link_down`` when the link breaks."""
        future: Future[Any] = Future()
        with self._lock:
            if self._socket is None:
                future.set_exception(_down())
                return future
            number = next(self._ids)
            self._waiting[number] = future
            try:
                self._write(self._socket, {"id": number, "call": name, "args": dict(args)})
            except OSError:
                del self._waiting[number]
                future.set_exception(_down())
        return future

    def close(self) -> None:
        """Close the connection for good."""
        self._closed.set()
        with self._lock:
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)  # ends the reader's blocking read

    @staticmethod
    def _write(connection: socket.socket, message: Mapping[str, Any]) -> None:
        connection.sendall(json.dumps(message).encode() + b"\n")

    def _run(self) -> None:
        tries = 0
        while not self._closed.is_set():
            if self._serve_once():
                tries = 0
            self._closed.wait(RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)])
            tries += 1

    def _serve_once(self) -> bool:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(self._path)
            self._write(connection, {"hello": self._kernel_id})
        except OSError:
            connection.close()
            return False
        with self._lock:
            self._socket = connection
        self._connected.set()
        try:
            with connection.makefile("r", encoding="utf-8", newline="\n") as lines:
                for line in lines:
                    # Here, so that no sentence of the service's is shown with another clock.
                    self._received(json.loads(own_times(line)))
        except (OSError, ValueError) as error:
            log.info("the bus of the notebook server broke off: %s", error)
        self._broken(connection)
        return True

    def _broken(self, connection: socket.socket) -> None:
        self._connected.clear()
        with self._lock:
            self._socket = None
            connection.close()
            waiting, self._waiting = list(self._waiting.values()), {}
        for future in waiting:
            future.set_exception(_down())
        if not self._closed.is_set():
            self._inbox.put(partial(self._on_event, {"event": "link", "up": False}))

    def _received(self, message: dict[str, Any]) -> None:
        if "event" in message:
            self._inbox.put(partial(self._on_event, message))
            return
        with self._lock:
            future = self._waiting.pop(int(message["id"]), None)
        if future is None:
            return
        if "problem" in message:
            future.set_exception(GPULeaseError.from_problem(message["problem"]))
        else:
            future.set_result(message.get("ok"))
