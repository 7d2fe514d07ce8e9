"""A companion's Jupyter channels, as the I/O thread sees them.

Every received message is handed to ``deliver(channel, message)`` on the kernel's main thread;
``relay`` shows it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import zmq
from jupyter_client.session import Session as Wire

from gpulease.channel.iothread import Frames, IOThread
from gpulease.channel.keys import KeyPair
from gpulease.kernel.inbox import Inbox

log = logging.getLogger("gpulease.kernel")
Message = dict[str, Any]
CHANNELS = {"shell": zmq.DEALER, "control": zmq.DEALER, "stdin": zmq.DEALER, "iopub": zmq.SUB}


class Channels:
    """Open channels to one companion; ``deliver`` runs on the main thread, through the inbox.

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
