"""Real parts for the tests of supervisors: a lease service, a home kernel's end, a process.

`LeaseService` is a tornado server with the service's two websockets; `Home` is a control client;
`Lease` is a supervisor process.  Nothing here replaces a part of the package.
"""

import asyncio
import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import zmq
import zmq.asyncio
from jupyter_client.asynchronous import AsyncKernelClient
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler
from tornado.websocket import WebSocketHandler

from gpulease import __version__
from gpulease.protocol.control import EXECUTE_METADATA
from gpulease.protocol.names import PROTOCOL_VERSION
from gpulease.sides.environment import marked_environment
from tests.helpers import wait_for_async

TOKEN = "the-supervisors-credential"
SERVER_TOKEN = "the-servers-credential"

#: Leases are found and ended by their mark wherever they run, so each test process has its own.
RUN = secrets.token_hex(6)
LEASE_ID = f"lease-{RUN}"


class _Channel(WebSocketHandler):
    """The supervisor channel, as the service has it."""

    def initialize(self, service: "LeaseService") -> None:
        self.service = service

    def prepare(self) -> None:
        wanted = f"Bearer {self.service.token}"
        if self.service.refuse or self.request.headers.get("Authorization") != wanted:
            self.set_status(403)
            self.finish()

    def open(self, lease_id: str) -> None:
        self.service.channels.append(self)

    def on_message(self, message: str | bytes) -> None:
        self.service.heard.append(json.loads(message))

    def on_close(self) -> None:
        self.service.channels.remove(self)


class _Warm(_Channel):
    """The channel of a pod that stands ready."""

    def open(self) -> None:  # type: ignore[override]
        super().open("")


class _Events(WebSocketHandler):
    """The events channel."""

    def initialize(self, service: "LeaseService") -> None:
        self.service = service

    def prepare(self) -> None:
        if self.request.headers.get("Authorization") != f"token {SERVER_TOKEN}":
            self.set_status(403)
            self.finish()

    def open(self) -> None:
        self.service.readers.append(self)
        self.write_message(json.dumps(self.service.snapshot()))

    def on_message(self, message: str | bytes) -> None:
        self.service.reports.append(json.loads(message))

    def on_close(self) -> None:
        self.service.readers.remove(self)


class _Rest(RequestHandler):
    """Records calls and gives the answer that the test prepared."""

    def initialize(self, service: "LeaseService") -> None:
        self.service = service

    async def _any(self, path: str) -> None:
        body = json.loads(self.request.body) if self.request.body else None
        assert self.request.headers["Authorization"] == f"token {SERVER_TOKEN}"
        self.service.calls.append((str(self.request.method), path, body))
        self.service.languages.append(self.request.headers.get("Accept-Language", ""))
        status, answer = self.service.answers.get((str(self.request.method), path), (404, None))
        self.set_status(status)
        if answer is not None:
            self.finish(json.dumps(answer))

    get = post = delete = _any  # type: ignore[assignment]


class LeaseService:
    """What a supervisor and a notebook server see of the lease service."""

    def __init__(self) -> None:
        self.refuse = False
        self.token = TOKEN
        self.channels: list[_Channel] = []
        self.heard: list[dict[str, Any]] = []
        self.readers: list[_Events] = []
        self.reports: list[dict[str, Any]] = []
        self.leases: list[dict[str, Any]] = []
        self.classes: list[dict[str, Any]] = []
        self.calls: list[tuple[str, str, Any]] = []
        self.languages: list[str] = []  # that each call wants
        self.answers: dict[tuple[str, str], tuple[int, Any]] = {}
        socket, self.port = bind_unused_port()
        application = Application(
            [
                (r"/x/api/leases/([\w-]+)/supervisor", _Channel, {"service": self}),
                (r"/x/api/warm", _Warm, {"service": self}),
                (r"/x/api/events", _Events, {"service": self}),
                (r"/x/api/(.*)", _Rest, {"service": self}),
            ]
        )
        self._server = HTTPServer(application)
        self._server.add_sockets([socket])
        self.url = f"http://127.0.0.1:{self.port}/x"

    def snapshot(self) -> dict[str, Any]:
        return {"type": "snapshot", "id": 1, "leases": self.leases, "classes": self.classes}

    def tell(self, message: dict[str, Any]) -> None:
        """Send to the supervisor."""
        self.channels[-1].write_message(json.dumps(message))

    def publish(self, message: dict[str, Any]) -> None:
        """Send to the notebook server."""
        for reader in self.readers:
            reader.write_message(json.dumps(message))

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.heard if message["type"] == kind]

    def samples(self) -> list[dict[str, Any]]:
        return [sample for message in self.of_type("activity") for sample in message["samples"]]

    async def cell_seen(self) -> None:
        """Wait until the newest sample, of those from now on, is of a cell that runs."""
        known = len(self.samples())

        def runs() -> bool:
            samples = self.samples()
            return len(samples) > known and bool(samples[-1]["cells"])

        await wait_for_async(runs, 60, "a cell")

    async def hello(self) -> dict[str, Any]:
        """Wait for a supervisor."""
        await wait_for_async(lambda: self.channels and self.of_type("hello"), 60, "a hello")
        return self.of_type("hello")[-1]

    async def stop(self) -> None:
        self._server.stop()
        for channel in [*self.channels, *self.readers]:
            channel.close()
        await self._server.close_all_connections()


class Lease:
    """A supervisor process that was told its lease on stdin."""

    def __init__(self, *arguments: str, mark: str = "") -> None:
        command = [sys.executable, "-m", "gpulease.companion", *arguments]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=marked_environment(os.environ, mark or LEASE_ID),
            start_new_session=True,
        )
        self.pid = self.process.pid

    def tell(self, order: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()

    async def ended(self, seconds: float = 60) -> int:
        await wait_for_async(lambda: self.process.poll() is not None, seconds, "the supervisor")
        return self.process.wait()

    def clean_up(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def config(service_url: str, lease_id: str = "", **more: Any) -> dict[str, Any]:
    """What a notebook server writes to stdin."""
    return {
        "lease_id": lease_id or LEASE_ID, "attempt": 1, "token": TOKEN, "service_url": service_url,
        "devices": "", "user": "ada", "park_dir": "", "drain_max": 20.0, "hard_end": "", **more,
    }  # fmt: skip


class Home:
    """A home kernel's end of the control channel."""

    def __init__(self, address: str, server_key: str, keys: tuple[str, str] | None = None) -> None:
        if keys is None:
            public, secret = zmq.curve_keypair()
            keys = (public.decode(), secret.decode())
        self.public, self.secret = keys
        wire_public, self.wire_secret = zmq.curve_keypair()
        self.wire_public = wire_public.decode()
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.curve_serverkey = server_key.encode()
        self._socket.curve_publickey = self.public.encode()
        self._socket.curve_secretkey = self.secret.encode()
        self._address = address
        self.pushes: list[dict[str, Any]] = []
        self._answers: dict[int, dict[str, Any]] = {}
        self._number = 0
        self._reader = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        while True:
            message = json.loads(await self._socket.recv())
            if "push" in message:
                self.pushes.append(message)
            else:
                self._answers[message["id"]] = message

    async def call(self, name: str, seconds: float = 60, **args: Any) -> dict[str, Any]:
        """Return the whole answer."""
        if not self._number:  # not before: who is refused once is not heard again
            self._socket.connect(self._address)
        self._number += 1
        number = self._number
        await self._socket.send(json.dumps({"id": number, "call": name, "args": args}).encode())
        return await wait_for_async(lambda: self._answers.get(number), seconds, f"call {name}")

    async def open(self, kernel_id: str, **more: Any) -> dict[str, Any]:
        """Open this kernel's companion; return the whole answer."""
        wanted = {
            "kernel_id": kernel_id, "protocol": PROTOCOL_VERSION, "version": __version__,
            "python": ".".join(str(part) for part in sys.version_info[:3]), "packages": {},
            "cwd": str(Path.cwd()), "path": list(sys.path), "environ": {},
            "hash_seed": os.environ.get("PYTHONHASHSEED", ""), "wire_key": self.wire_public, **more,
        }  # fmt: skip
        return await self.call("open", **wanted)

    async def pushed(self, name: str) -> dict[str, Any]:
        """Wait for a push."""
        found = await wait_for_async(
            lambda: [push for push in self.pushes if push["push"] == name], 60, f"push {name}"
        )
        return found[-1]

    def close(self) -> None:
        self._reader.cancel()
        self._socket.close()
        self._context.term()


class _Client(AsyncKernelClient):
    """A client that is known by the home kernel's keys: jupyter_client's has the kernel's own."""

    def __init__(self, home: Home, connection: dict[str, Any]) -> None:
        super().__init__()
        self._home = home
        self._server_key = connection["curve_publickey"].encode()
        self.load_connection_info(connection)

    def _create_connected_socket(self, channel: str, identity: bytes | None = None) -> Any:
        socket = self.context.socket(zmq.SUB if channel == "iopub" else zmq.DEALER)
        socket.linger = 1000
        if identity:
            socket.identity = identity
        socket.curve_secretkey = self._home.wire_secret
        socket.curve_publickey = self._home.wire_public.encode()
        socket.curve_serverkey = self._server_key
        socket.connect(self._make_url(channel))
        return socket


class Cells:
    """Runs cells in a companion by the Jupyter protocol, as a home kernel does."""

    def __init__(self, connection: dict[str, Any], home: Home) -> None:
        self.client = _Client(home, connection)
        self.client.start_channels(hb=False)

    async def ready(self) -> "Cells":
        await self.client.wait_for_ready(timeout=60)
        return self

    def begin(self, code: str, count: int | None = None) -> str:
        """Send a cell; return its message id."""
        content = {
            "code": code, "silent": False, "store_history": True, "user_expressions": {},
            "allow_stdin": False, "stop_on_error": False,
        }  # fmt: skip
        said = {EXECUTE_METADATA: {"execution_count": count}} if count else {}
        message = self.client.session.msg("execute_request", content, metadata=said)
        self.client.shell_channel.send(message)
        found: str = message["header"]["msg_id"]
        return found

    async def reply(self, msg_id: str) -> dict[str, Any]:
        while True:
            message = await self.client.get_shell_msg(timeout=60)
            if message["parent_header"].get("msg_id") == msg_id:
                content: dict[str, Any] = message["content"]
                return content

    async def run(self, code: str, count: int | None = None) -> dict[str, Any]:
        return await self.reply(self.begin(code, count))

    async def text(self, code: str) -> str:
        """Run a cell and return what it printed."""
        msg_id = self.begin(code)
        printed = ""
        while True:
            message = await self.client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") != msg_id:
                continue
            if message["msg_type"] == "stream":
                printed += message["content"]["text"]
            if message["content"].get("execution_state") == "idle":
                return printed

    def close(self) -> None:
        self.client.stop_channels()
        self.client.context.destroy(linger=0)


@contextlib.asynccontextmanager
async def leased(*arguments: str, **more: Any) -> AsyncIterator[tuple[LeaseService, Lease, Home]]:
    """A service, a supervisor that said hello, and an admitted home kernel."""
    service = LeaseService()
    lease = Lease(*arguments)
    home: Home | None = None
    try:
        lease.tell(config(service.url, **more))
        hello = await service.hello()
        home = Home(hello["address"], hello["public_key"])
        service.tell({"type": "admit", "client_key": home.public, "kernel_id": ""})
        await wait_for_async(lambda: service.of_type("admitted"), 30, "the key admitted")
        yield service, lease, home
    finally:
        if home is not None:
            home.close()
        lease.clean_up()
        await service.stop()


@contextlib.contextmanager
def closing(cells: Cells) -> Iterator[Cells]:
    try:
        yield cells
    finally:
        cells.close()


def proc_file(pid: int, name: str) -> bytes:
    """Read a file of `/proc/PID`."""
    return Path(f"/proc/{pid}/{name}").read_bytes()
