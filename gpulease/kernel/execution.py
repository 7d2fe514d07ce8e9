"""One cell in the companion, from request to reply, seen from home's main thread.

Output is shown as it arrives; ``input()`` and ``getpass`` ask here.  A first interrupt is passed on
and waited for; a second one gives the companion up.
"""

from __future__ import annotations

import _thread
import builtins
import getpass
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import zmq
from jupyter_client.session import Session as Wire

from gpulease.channel.iothread import Frames, IOThread
from gpulease.channel.keys import KeyPair
from gpulease.errors import GPULeaseError
from gpulease.kernel.inbox import Inbox
from gpulease.kernel.relay import Relay
from gpulease.kernel.wrap import typed_by_person
from gpulease.protocol.control import EXECUTE_METADATA, CellText, ExecuteMetadata

log = logging.getLogger("gpulease.kernel")
Message = dict[str, Any]
CHANNELS = {"shell": zmq.DEALER, "control": zmq.DEALER, "stdin": zmq.DEALER, "iopub": zmq.SUB}


class Channels:
    """A companion's open Jupyter channels, as the I/O thread sees them.

    Every received message is handed to ``deliver(channel, message)`` on the main thread, through
    the inbox.

    ``keys``: those of this kernel that the companion lets in.
    """

    def __init__(
        self,
        io: IOThread,
        inbox: Inbox,
        connection: Mapping[str, Any],
        keys: KeyPair,
        deliver: Callable[[str, Message], None],
    ) -> None:
        self._io = io
        self._inbox = inbox
        self._deliver = deliver
        self._wire = Wire(
            key=str(connection["key"]).encode(),
            signature_scheme=str(connection.get("signature_scheme", "hmac-sha256")),
        )
        self._sockets: dict[str, zmq.Socket[bytes]] = {}
        self.closed = False
        io.call(partial(self._open, dict(connection), keys))

    def send(
        self,
        channel: str,
        msg_type: str,
        content: Mapping[str, Any],
        *,
        msg_id: str | None = None,
        parent: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        buffers: Sequence[Any] | None = None,
    ) -> str:
        """Queue one message for the companion and return its id; any thread may call it."""
        message = self._wire.msg(
            msg_type, dict(content), parent=dict(parent or {}), metadata=dict(metadata or {})
        )
        if msg_id is not None:
            message["header"]["msg_id"] = message["msg_id"] = msg_id
        self._io.submit(partial(self._send, channel, message, list(buffers or ())))
        return str(message["header"]["msg_id"])

    def close(self) -> None:
        """Stop reading and close the sockets; messages that arrive later are not delivered."""
        if not self.closed:
            self.closed = True
            self._io.submit(self._close)

    def _open(self, connection: dict[str, Any], keys: KeyPair) -> None:
        for name, kind in CHANNELS.items():
            socket: zmq.Socket[bytes] = self._io.context.socket(kind)
            socket.linger = 0
            if kind == zmq.DEALER:
                # The kernel asks for input on the stdin socket of the same identity.
                socket.identity = self._wire.bsession
            socket.curve_publickey = keys.public.encode()
            socket.curve_secretkey = keys.secret.encode()
            socket.curve_serverkey = connection["curve_publickey"].encode()
            port = connection[f"{name}_port"]
            socket.connect(f"{connection.get('transport', 'tcp')}://{connection['ip']}:{port}")
            if kind == zmq.SUB:
                socket.setsockopt(zmq.SUBSCRIBE, b"")
            self._sockets[name] = socket
            self._io.register(socket, partial(self._received, name))

    def _received(self, channel: str, frames: Frames) -> None:
        try:
            _, parts = self._wire.feed_identities(frames)
            message = self._wire.deserialize(parts)
        except (ValueError, IndexError):  # bad signature or a torn message: never shown
            log.warning("dropped an invalid message on the companion's %s channel", channel)
            return
        self._inbox.put(partial(self._hand_over, channel, message), urgent=channel == "shell")

    def _hand_over(self, channel: str, message: Message) -> None:
        if not self.closed:
            self._deliver(channel, message)

    def _send(self, channel: str, message: Message, buffers: list[Any]) -> None:
        socket = self._sockets.get(channel)
        if socket is not None:
            self._wire.send(socket, message, buffers=buffers)

    def _close(self) -> None:
        for socket in self._sockets.values():
            self._io.unregister(socket)
        self._sockets.clear()


#: How long an interrupted cell may take to stop before the person is told (seconds).
INTERRUPT_PATIENCE = 10.0
#: How long a silent question to the companion (completion, magics) may take by default (seconds).
ASK_SECONDS = 30.0


@dataclass
class Request:
    """A request on its way; ``failure`` is set when the companion cannot answer any more."""

    msg_id: str
    reply: Message | None = None
    idle: bool = False
    failure: BaseException | None = None
    quiet: bool = False  # output is not shown
    interrupted: bool = False

    @property
    def done(self) -> bool:
        """True when nothing more is to be waited for."""
        return self.failure is not None or (self.reply is not None and self.idle)


class Executor:
    """Runs code in one companion; all methods belong to the main thread."""

    def __init__(self, inbox: Inbox, relay: Relay, kernel: Any) -> None:
        self._inbox = inbox
        self._relay = relay
        self._kernel = kernel
        self.channels: Channels | None = None
        self.abandon: Callable[[], None] = lambda: None
        self.on_idle: Callable[[str], None] = lambda _msg_id: None  # a message is handled there
        self._open: dict[str, Request] = {}
        self._asking = False
        inbox.nudge = self._nudge

    @property
    def busy(self) -> bool:
        """True while a request is on its way."""
        return bool(self._open)

    def fail(self, error: BaseException) -> None:
        """The companion is gone: every waiting request ends with ``error``."""
        for request in self._open.values():
            request.failure = request.failure or error

    def deliver(self, channel: str, message: Message) -> None:
        """Handle one message of the companion's (main thread, through the inbox)."""
        parent_id = message["parent_header"].get("msg_id", "")
        request = self._open.get(parent_id)
        if channel == "iopub":
            self._iopub(message, request)
        elif channel == "stdin" and request is not None:
            self._ask_person(message)
        elif channel == "shell" and request is not None:
            request.reply = message

    def run_cell(
        self,
        source: str,
        execution_count: int,
        *,
        silent: bool,
        cells: Sequence[CellText] = (),
    ) -> Message:
        """Run a cell away as home's current request and return the reply.

        Raises:
            GPULeaseError: ``companion_died`` and what else the session set as failure.
        """
        parent = self._kernel.get_parent("shell")
        msg_id = parent.get("header", {}).get("msg_id") if parent else None
        content = {
            "code": source,
            "silent": silent,
            "store_history": typed_by_person(parent),
            "user_expressions": {},
            "allow_stdin": bool(getattr(self._kernel, "_allow_stdin", False)),
            "stop_on_error": False,
        }
        said: ExecuteMetadata = {"execution_count": execution_count, "cells": list(cells)}
        metadata = {EXECUTE_METADATA: said}
        request = self._send("execute_request", content, msg_id=msg_id, metadata=metadata)
        if parent:
            self._relay.remember_parent(request.msg_id, parent)
        return self._finish(request)

    def ask(
        self, msg_type: str, content: Mapping[str, Any], timeout: float = ASK_SECONDS
    ) -> Mapping[str, Any] | None:
        """Ask something whose output is not shown; None when ``timeout`` seconds passed first."""
        request = self._send(msg_type, content, quiet=True)
        try:
            if not self._inbox.wait_for(lambda: request.done, time.monotonic() + timeout):
                return None
        finally:
            self._open.pop(request.msg_id, None)
        if request.failure is not None:
            raise request.failure
        assert request.reply is not None
        reply: Mapping[str, Any] = request.reply["content"]
        return reply

    def run_silently(
        self, code: str, timeout: float = ASK_SECONDS, **more: Any
    ) -> Mapping[str, Any] | None:
        """Run code of gpulease's own, with ``more`` of the request's content; ask for its reply."""
        content = {"code": code, "silent": True, "store_history": False, "allow_stdin": False}
        return self.ask("execute_request", {**content, **more}, timeout)

    def interrupt(self) -> None:
        """Pass an interrupt on to the companion, once for each running request."""
        for request in self._open.values():
            if not request.interrupted and self.channels is not None:
                request.interrupted = True
                self.channels.send("control", "interrupt_request", {})

    def _send(
        self,
        msg_type: str,
        content: Mapping[str, Any],
        *,
        msg_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        quiet: bool = False,
    ) -> Request:
        if self.channels is None or self.channels.closed:
            raise GPULeaseError("no_companion", "No companion is connected.")
        sent = self.channels.send("shell", msg_type, content, msg_id=msg_id, metadata=metadata)
        request = self._open[sent] = Request(sent, quiet=quiet)
        return request

    def _finish(self, request: Request) -> Message:
        try:
            while True:
                try:
                    self._wait(request)
                    break
                except KeyboardInterrupt:
                    self._inbox.run_ready()
                    if request.reply is None and request.failure is None:
                        self._interrupted(request)
        finally:
            self._open.pop(request.msg_id, None)
        if request.failure is not None:
            self._relay.flush()
            raise request.failure
        assert request.reply is not None
        return request.reply

    def _wait(self, request: Request) -> None:
        if request.interrupted:
            deadline = time.monotonic() + INTERRUPT_PATIENCE
            if not self._inbox.wait_for(lambda: request.done, deadline):
                sys.stderr.write(
                    f"gpulease: the GPU cell has not stopped after {INTERRUPT_PATIENCE:.0f} s. "
                    "Interrupt again to give its companion up.\n"
                )
        self._inbox.wait_for(lambda: request.done)

    def _interrupted(self, request: Request) -> None:
        if not request.interrupted:
            self.interrupt()
            return
        self.abandon()
        if request.failure is None:
            request.failure = GPULeaseError(
                "abandoned",
                "The GPU cell did not stop, and its companion was given up.",
                next_step="Run the next GPU cell to get a new companion.",
            )

    def _nudge(self) -> None:
        """On the I/O thread: end a wait for input that nobody needs any more."""
        if self._asking:
            _thread.interrupt_main()

    def _iopub(self, message: Message, request: Request | None) -> None:
        kind = message["header"]["msg_type"]
        if kind == "status":
            if message["content"]["execution_state"] == "idle":
                if request is not None:
                    request.idle = True
                self.on_idle(message["parent_header"].get("msg_id", ""))
            return
        if request is None or not request.quiet:
            self._relay.show(message, current=request is not None)

    def _ask_person(self, message: Message) -> None:
        content = message["content"]
        # Home's kernel put its own input() and getpass() in place for the running cell.
        read = getpass.getpass if content.get("password") else builtins.input
        self._asking = True
        try:
            value = read(content.get("prompt", ""))
        except EOFError:
            value = "\x04"  # what a front end sends for end of file
        finally:
            self._asking = False
        if self.channels is not None:
            self.channels.send("stdin", "input_reply", {"value": value}, parent=message["header"])
