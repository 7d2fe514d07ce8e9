"""The supervisor's desk: the CurveZMQ socket that home kernels talk to.

Owns the key pair of the lease, the list of client keys that may speak, and the framing of calls
and pushes.  Refuses to know what a call does: a handler answers it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import zmq
import zmq.asyncio
from zmq.auth.asyncio import AsyncioAuthenticator

from gpulease.companion.ports import bad_address
from gpulease.errors import GPULeaseError

log = logging.getLogger("gpulease.companion")

#: Answers one call: (name, arguments, the kernel the client's key was admitted for or "").
Handler = Callable[[str, dict[str, Any], str], Awaitable[Any]]
_DOMAIN = "gpulease"


class Desk:
    """A ROUTER that answers admitted clients only.

    Args:
        ip: address of this machine to bind to.
        handler: answers calls; a ``GPULeaseError`` goes back as a problem.
        port: 0 lets the system choose.

    Raises:
        GPULeaseError: ``bad_address`` when ``ip`` cannot be bound to.
    """

    def __init__(self, ip: str, handler: Handler, port: int = 0) -> None:
        self._handler = handler
        self._context = zmq.asyncio.Context()
        self._admitted: dict[str, str] = {}
        self._clients: dict[bytes, tuple[str, str]] = {}  # identity -> (client key, kernel)
        self._tasks: set[asyncio.Task[None]] = set()
        self._authenticator = AsyncioAuthenticator(self._context, log=log)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(_DOMAIN, credentials_provider=self)
        public, secret = zmq.curve_keypair()
        self.public_key = public.decode()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 500
        self._socket.router_mandatory = True  # sending to a client that has gone says so
        self._socket.curve_secretkey = secret
        self._socket.curve_publickey = public
        self._socket.curve_server = True
        self._socket.zap_domain = _DOMAIN.encode()
        self.address = self._bind(ip, port)
        self._reader = asyncio.ensure_future(self._serve())

    def _bind(self, ip: str, port: int) -> str:
        try:
            self._socket.bind(f"tcp://{ip}:{port or '*'}")
        except zmq.ZMQError as error:
            self._socket.close()
            self._authenticator.stop()
            self._context.term()
            raise bad_address(ip, error.strerror) from None
        return self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def callback(self, domain: str, key: bytes) -> bool:  # noqa: ARG002
        """Answer the authenticator: is this client key admitted?"""
        return key.decode() in self._admitted

    @property
    def admitted(self) -> dict[str, str]:
        """The keys that may speak, each with its kernel."""
        return dict(self._admitted)

    def admit(self, client_key: str, kernel_id: str) -> None:
        """Let the holder of ``client_key`` speak for ``kernel_id`` ("": for any kernel)."""
        self._admitted[client_key] = kernel_id

    def revoke(self, client_key: str) -> None:
        """Hear this client no more; an open connection is ignored from now on."""
        self._admitted.pop(client_key, None)
        self._clients = {i: c for i, c in self._clients.items() if c[0] != client_key}

    async def push(self, name: str, members: Mapping[str, Any], kernel_id: str = "") -> None:
        """Tell ``kernel_id`` ("": every client that has spoken) something."""
        frame = json.dumps({**members, "push": name}).encode()
        for identity, (_, kernel) in list(self._clients.items()):
            if not kernel_id or kernel == kernel_id:
                await self._send(identity, frame)

    async def stop(self) -> None:
        """Close the desk; what was pushed still leaves."""
        self._reader.cancel()
        for task in self._tasks:
            task.cancel()
        self._socket.close()
        self._authenticator.stop()
        # term() waits for the linger; the loop must not.
        await asyncio.get_running_loop().run_in_executor(None, self._context.term)

    async def _serve(self) -> None:
        while True:
            frames = await self._socket.recv_multipart(copy=False)
            if len(frames) != 2:
                continue
            identity, frame = frames
            key = _client_key(frame)
            if key not in self._admitted:
                continue
            task = asyncio.ensure_future(self._answer(bytes(identity.buffer), frame.bytes, key))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, identity: bytes, frame: bytes, key: str) -> None:
        admitted_for = self._admitted.get(key, "")
        number: Any = None
        try:
            message = _parse(frame)
            number = message["id"]
            args = message.get("args") or {}
            kernel = self._kernel(identity, args, admitted_for)
            self._clients[identity] = (key, kernel)
            answer = {"id": number, "ok": await self._handler(message["call"], args, kernel)}
        except GPULeaseError as error:
            answer = {"id": number, "problem": error.to_problem()}
        except Exception:  # a border: home gets an answer, the log the failure, never a hang
            reference = secrets.token_hex(4)
            log.exception("a desk call failed, reference %s", reference)
            answer = {"id": number, "problem": _internal(reference).to_problem()}
        await self._send(identity, json.dumps(answer).encode())

    async def _send(self, identity: bytes, frame: bytes) -> None:
        """Send to one client; one that has gone is forgotten: whoever comes back has a new name."""
        try:
            await self._socket.send_multipart([identity, frame], zmq.DONTWAIT)
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                self._clients.pop(identity, None)
            else:
                log.warning("a client does not keep up and was not told: %s", error.strerror)

    def _kernel(self, identity: bytes, args: Mapping[str, Any], admitted_for: str) -> str:
        named = str(args.get("kernel_id") or "")
        if admitted_for and named and named != admitted_for:
            raise GPULeaseError(
                "forbidden", "This key was admitted for another kernel.", status=403
            )
        known = self._clients.get(identity, ("", ""))[1]
        return admitted_for or named or known


def _client_key(frame: zmq.Frame) -> str:
    """The key that libzmq proved for the peer that sent ``frame``; the authenticator set it."""
    try:
        found: Any = frame.get("User-Id")
    except zmq.ZMQError:
        return ""
    return found if isinstance(found, str) else bytes(found).decode()


def _parse(frame: bytes) -> dict[str, Any]:
    try:
        message = json.loads(frame)
    except ValueError as error:
        raise GPULeaseError("malformed", "A desk message was not JSON.") from error
    if (
        not isinstance(message, dict)
        or "id" not in message
        or not isinstance(message.get("call"), str)
        or not isinstance(message.get("args") or {}, dict)
    ):
        raise GPULeaseError("malformed", "A desk message needs id, call and args.")
    return message


def _internal(reference: str) -> GPULeaseError:
    return GPULeaseError(
        "internal",
        f"The lease's supervisor failed (reference {reference}).",
        next_step="Run the cell again; if it stays, tell your admin the reference.",
        numbers={"reference": reference},
        status=500,
    )
