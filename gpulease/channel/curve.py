"""CurveZMQ: a server that hears only keys that it admitted, a client that notices its silence."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import zmq
import zmq.asyncio
from zmq.auth.asyncio import AsyncioAuthenticator
from zmq.utils.monitor import parse_monitor_message

from gpulease.channel.asynchronous import AsynchronousEnd
from gpulease.channel.conversation import Message
from gpulease.channel.iothread import Frames, IOThread
from gpulease.channel.keys import Endpoint, KeyPair
from gpulease.channel.lines import decoded, to_json
from gpulease.channel.threaded import ThreadedEnd
from gpulease.channel.timing import LOST_AFTER, Heartbeat
from gpulease.errors import GPULeaseError

log = logging.getLogger("gpulease.channel")

#: How often the server is asked (seconds).
PING_EVERY = 1.0
#: How long it may take to come back after its connection broke (seconds).
BACK_WITHIN = 3.0
_DOMAIN = "gpulease"


@dataclass
class Client:
    """A client of a server; ``name`` is who it speaks for: what its key was admitted for."""

    key: str
    name: str
    end: AsynchronousEnd = field(init=False)


class CurveServer:
    """A server on an event loop that answers admitted clients only.

    Args:
        ip: address of this machine to bind to.
        called: answers calls: (client, call, arguments).
        port: 0 lets the system choose.
        failed: see ``AsynchronousEnd``.

    Raises:
        zmq.ZMQError: ``ip`` cannot be bound to.
    """

    def __init__(
        self,
        ip: str,
        called: Callable[[Client, str, Message], Awaitable[Any]],
        port: int,
        failed: str,
    ) -> None:
        self._called = called
        self._failed = failed
        self._context = zmq.asyncio.Context()
        self._admitted: dict[str, str] = {}
        self._clients: dict[bytes, Client] = {}
        self._authenticator = AsyncioAuthenticator(self._context, log=log)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(_DOMAIN, credentials_provider=self)
        public, secret = zmq.curve_keypair()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 500
        self._socket.router_mandatory = True  # sending to a client that has gone says so
        self._socket.curve_secretkey = secret
        self._socket.curve_publickey = public
        self._socket.curve_server = True
        self._socket.zap_domain = _DOMAIN.encode()
        try:
            self._socket.bind(f"tcp://{ip}:{port or '*'}")
        except zmq.ZMQError:
            self._socket.close()
            self._authenticator.stop()
            self._context.term()
            raise
        self.endpoint = Endpoint(self._socket.getsockopt_string(zmq.LAST_ENDPOINT), public.decode())
        self._reader = asyncio.ensure_future(self._serve())

    def callback(self, domain: str, key: bytes) -> bool:  # noqa: ARG002
        """Answer the authenticator: is this client key admitted?"""
        return key.decode() in self._admitted

    @property
    def admitted(self) -> dict[str, str]:
        """The keys that may speak, each with whom it speaks for."""
        return dict(self._admitted)

    def admit(self, client_key: str, name: str) -> None:
        """Let the holder of ``client_key`` speak for ``name`` ("": for whom it says)."""
        self._admitted[client_key] = name

    def revoke(self, client_key: str) -> None:
        """Hear this client no more; an open connection is ignored from now on."""
        self._admitted.pop(client_key, None)
        self._clients = {i: c for i, c in self._clients.items() if c.key != client_key}

    def push(self, message: Mapping[str, Any], name: str = "") -> None:
        """Tell those who speak for ``name`` ("": every client that has spoken)."""
        for client in list(self._clients.values()):
            if not name or client.name == name:
                client.end.push(message)

    async def stop(self) -> None:
        """Close the socket; what was pushed still leaves."""
        self._reader.cancel()
        for client in self._clients.values():
            client.end.close()
        self._socket.close()
        self._authenticator.stop()
        # term() waits for the linger; the loop must not.
        await asyncio.get_running_loop().run_in_executor(None, self._context.term)

    async def _serve(self) -> None:
        while True:
            frames = await self._socket.recv_multipart(copy=False)
            if len(frames) != 2:
                continue
            identity, frame = bytes(frames[0].buffer), frames[1]
            key = _client_key(frame)
            if key not in self._admitted:
                continue
            try:
                message = decoded(frame.bytes)
            except ValueError:
                log.warning("an admitted client sent what is no message")
                continue
            self._client(identity, key).end.received(message)

    def _client(self, identity: bytes, key: str) -> Client:
        client = self._clients.get(identity)
        if client is None or client.key != key:
            client = Client(key, self._admitted[key])
            client.end = AsynchronousEnd(
                partial(self._send, identity),
                called=partial(self._called, client),
                failed=self._failed,
            )
            self._clients[identity] = client
        return client

    def _send(self, identity: bytes, message: Message) -> None:
        if not self._socket.closed:
            frames = [identity, to_json(message).encode()]
            sent = asyncio.ensure_future(self._socket.send_multipart(frames, zmq.DONTWAIT))
            sent.add_done_callback(partial(self._sent, identity))

    def _sent(self, identity: bytes, sent: asyncio.Future[Any]) -> None:
        """Forget a client that has gone: whoever comes back has a new identity."""
        error = None if sent.cancelled() else sent.exception()
        if isinstance(error, zmq.ZMQError) and error.errno == zmq.EHOSTUNREACH:
            self._clients.pop(identity, None)
        elif error is not None:
            log.warning("a client does not keep up and was not told: %s", error)


class CurveClient(ThreadedEnd):
    """A client of such a server; any thread may call.

    Args:
        io: whose thread has the socket, and calls ``pushed`` and ``lost``.
        endpoint: of the server.
        keys: this client's; the server hears it once its public half is admitted.
        pushed: gets what the server tells.
        lost: called once when the server has not answered for ``LOST_AFTER`` seconds in which this
            process listened, or refuses this key; calls that wait fail then, as does every later
            one.
        beat: arguments of the ``ping`` that asks whether the server is there.
        gone: see ``ThreadedEnd``.
    """

    def __init__(
        self,
        io: IOThread,
        endpoint: Endpoint,
        keys: KeyPair,
        *,
        pushed: Callable[[Message], None],
        lost: Callable[[], None],
        beat: Callable[[], Message],
        gone: Callable[[], GPULeaseError],
    ) -> None:
        super().__init__(self._write, pushed, gone)
        self._io = io
        self._on_lost = lost
        self._beat = beat
        self._heart = Heartbeat(time.monotonic(), LOST_AFTER, BACK_WITHIN, 2 * PING_EVERY)
        self.closed = False
        self._socket: zmq.Socket[bytes] = io.call(partial(self._open, endpoint, keys))

    def close(self) -> None:
        """Close the socket; calls that wait fail."""
        if not self.closed:
            self.closed = True
            self._io.submit(self._close)

    def _open(self, endpoint: Endpoint, keys: KeyPair) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = self._io.context.socket(zmq.DEALER)
        socket.linger = 500  # a last message should still leave
        socket.sndhwm = 0  # sending never waits for room: it would hold all that this thread serves
        secure_client(socket, endpoint, keys)
        self._monitor: zmq.Socket[bytes] = socket.get_monitor_socket(
            zmq.EVENT_CONNECTED | zmq.EVENT_DISCONNECTED
        )
        self._io.register(self._monitor, self._connection_changed)
        socket.connect(endpoint.address)
        self._io.register(socket, self._arrived)
        self._io.every(self, PING_EVERY, self._tick)
        return socket

    def _write(self, message: Message) -> None:
        if self.closed or self._heart.lost:
            raise ConnectionError("the server is gone")
        self._io.submit(partial(self._send_frame, to_json(message).encode()))

    def _send_frame(self, frame: bytes) -> None:
        if self._socket.closed or self._heart.lost:
            return
        try:
            self._socket.send(frame, zmq.DONTWAIT)
        except zmq.Again:  # the server refused this key: libzmq gave the connection up for ever
            self._heart.lost = True
            self._end_lost()

    def _arrived(self, frames: Frames) -> None:
        self._heart.heard(time.monotonic())
        try:
            message = decoded(frames[-1])
        except ValueError:
            log.warning("a server sent what is no message")
            return
        self.received(message)

    def _connection_changed(self, frames: Frames) -> None:
        """The server hung up: it has a moment to be there again, which libzmq finds out."""
        if parse_monitor_message(frames)["event"] == zmq.EVENT_CONNECTED:
            self._heart.connected()
        else:
            self._heart.broke(time.monotonic())

    def _tick(self) -> None:
        self.start_call("ping", self._beat())
        if self._heart.just_lost(time.monotonic()):
            self._end_lost()

    def _end_lost(self) -> None:
        self.lost()
        self._on_lost()

    def _close(self) -> None:
        self._io.every(self, 0, None)
        self._io.unregister(self._monitor)
        self._socket.disable_monitor()
        self._io.unregister(self._socket)
        self.lost()


def secure_client(socket: zmq.Socket[bytes], endpoint: Endpoint, keys: KeyPair) -> None:
    """Have a socket prove ``keys`` to the server at ``endpoint``, and that one its own."""
    socket.curve_serverkey = endpoint.server_key.encode()
    socket.curve_publickey = keys.public.encode()
    socket.curve_secretkey = keys.secret.encode()


def new_keys() -> KeyPair:
    """Make a key pair; the secret half stays in this process."""
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode())


def _client_key(frame: zmq.Frame) -> str:
    """The key that libzmq proved for the peer that sent ``frame``; the authenticator set it."""
    try:
        found: Any = frame.get("User-Id")
    except zmq.ZMQError:
        return ""
    return found if isinstance(found, str) else bytes(found).decode()
