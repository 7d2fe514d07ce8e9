"""What the service's tests share: a hub's API, a running service, supervisors and servers.

The hub stands in for who is asking only: it answers ``/hub/api/user``, ``users`` and ``groups`` as
the hub does.  Everything else is real: sockets, sqlite, websockets.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zmq
import zmq.utils.z85
from tornado.httpclient import HTTPRequest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler, create_signed_value
from tornado.websocket import (
    WebSocketClientConnection,
    WebSocketClosedError,
    websocket_connect,
)

from gpulease.client import ServiceClient
from gpulease.protocol.names import PROTOCOL_VERSION
from gpulease.protocol.reports import KernelReport
from gpulease.protocol.service import ConnectionView, LeaseView
from gpulease.service import workers
from gpulease.service.reservations import expansion
from gpulease.service.run import RunningService
from gpulease.service.settings.options import Options
from tests.helpers import wait_for_async
from tests.store.tables import lay_tables

if TYPE_CHECKING:  # the benchmarks' service, whose memory counts, has no pytest
    import pytest

PREFIX = "/services/gpulease/"
ACCESS = "access:services!service=gpulease"
OWN_TOKEN = "the-service's-own-token"
#: Short enough for tests, long enough that nothing happens by itself unless a test wants it.
QUICK = {"warm_up": 0.0, "idle": 3600.0, "warning": 0.5, "drain_max": 5.0, "start_max": 60.0}


@dataclass
class Hub:
    """The hub's API: tokens, users, their servers; and what was told to it."""

    url: str = ""
    service: str = "gpulease"  # what the service is called here
    own_token: str = OWN_TOKEN  # the service's
    shown: set[str] = field(default_factory=set)  # every token that it was asked with, or about
    tokens: dict[str, dict[str, Any]] = field(default_factory=dict)
    users: dict[str, dict[str, Any]] = field(default_factory=dict)
    activity: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)  # the path of each request
    down: bool = False
    answer_seconds: float = 0.0  # what it takes for each answer
    started: list[tuple[str, str, Any]] = field(default_factory=list)  # user, server, options
    removed: list[tuple[str, str]] = field(default_factory=list)
    refuses_servers: tuple[int, str] | None = None
    service_scopes: tuple[str, ...] = ("servers",)  # of the service's own role, by which it starts

    def user(self, name: str, *servers: str, groups: tuple[str, ...] = ()) -> None:
        """Add a user with running servers."""
        running = {each: {"name": each, "ready": True, "pending": None} for each in servers}
        self.users[name] = {"name": name, "servers": running, "groups": list(groups)}

    def token(self, user: str, *scopes: str, kind: str = "user") -> str:
        """Add a token; every one may use the service unless a test says otherwise."""
        token = f"token-of-{user}-{len(self.tokens):04d}"
        groups = self.users.get(user, {}).get("groups", [])
        self.tokens[token] = {
            "name": user,
            "kind": kind,
            "groups": groups,
            "admin": False,
            "scopes": [f"access:services!service={self.service}", *scopes],
            "token_id": "a1",
            "session_id": None,
        }
        return token

    def server_token(self, user: str, server: str = "") -> str:
        """Add a server's own token, as the spawner gives it."""
        request = f"custom:gpulease:request!user={user}"
        return self.token(user, f"access:servers!server={user}/{server}", request)

    def page_token(self, user: str) -> str:
        """Add the token that a browser holds after OAuth."""
        return self.token(user, f"custom:gpulease:request!user={user}")

    def metrics_token(self) -> str:
        """Add the token of a Prometheus that is a service of the hub."""
        return self.token("prometheus", "read:metrics", kind="service")

    def admin_token(self, user: str = "root") -> str:
        return self.token(
            user, "custom:gpulease:admin", "custom:gpulease:request", "custom:gpulease:reserve"
        )


class _Base(RequestHandler):
    @property
    def hub(self) -> Hub:
        return self.settings["hub"]

    async def prepare(self) -> None:
        self.hub.asked.append(self.request.path)
        self.hub.shown.add(self.request.headers.get("Authorization", "").removeprefix("token "))
        await asyncio.sleep(self.hub.answer_seconds)
        if self.hub.down:
            self.set_status(503)
            self.finish("down")


class _User(_Base):
    def get(self) -> None:
        token = self.request.headers.get("Authorization", "").removeprefix("token ")
        model = self.hub.tokens.get(token)
        if token == self.hub.own_token:
            model = {"name": "gpulease", "kind": "service", "scopes": self.hub.service_scopes}
        if model is None:
            self.set_status(403)
            self.finish(json.dumps({"status": 403, "message": "Invalid token"}))
        else:
            self.finish(json.dumps(model))


class _Users(_Base):
    def get(self, name: str | None = None) -> None:
        if name is not None:
            if name not in self.hub.users:
                self.set_status(404)
                self.finish("{}")
            else:
                self.finish(json.dumps(self.hub.users[name]))
            return
        offset, limit = int(self.get_argument("offset")), int(self.get_argument("limit"))
        everybody = list(self.hub.users.values())
        more = {"offset": offset + limit} if offset + limit < len(everybody) else None
        page = {"items": everybody[offset : offset + limit], "_pagination": {"next": more}}
        self.finish(json.dumps(page))


class _Server(_Base):
    """Starting and removing a named server, as the hub does it; a test makes it ready."""

    def post(self, user: str, name: str) -> None:
        if self.hub.refuses_servers is not None:
            status, message = self.hub.refuses_servers
            self.set_status(status)
            self.finish(json.dumps({"status": status, "message": message}))
            return
        self.hub.started.append((user, name, json.loads(self.request.body)))
        server = {"name": name, "ready": False, "pending": "spawn"}
        self.hub.users[user]["servers"][name] = server
        self.set_status(202)

    def delete(self, user: str, name: str) -> None:
        found = self.hub.users[user]["servers"].pop(name, None)
        self.hub.removed.append((user, name))
        self.set_status(204 if found else 404)


class _Groups(_Base):
    def get(self, name: str | None = None) -> None:
        members: dict[str, list[str]] = {}
        for user in self.hub.users.values():
            for group in user["groups"]:
                members.setdefault(group, []).append(user["name"])
        models = [{"name": each, "users": users} for each, users in members.items()]
        if name is None:
            self.finish(json.dumps({"items": models, "_pagination": {"next": None}}))
            return
        found = next((each for each in models if each["name"] == name), None)
        self.set_status(200 if found else 404)
        self.finish(json.dumps(found or {}))


class _Activity(_Base):
    def post(self, name: str) -> None:
        self.hub.activity.append((name, json.loads(self.request.body)))
        self.finish("{}")


@asynccontextmanager
async def hub_api(
    tls: ssl.SSLContext | None = None, address: str = "127.0.0.1"
) -> AsyncIterator[Hub]:
    """Run the hub's API, encrypted where it is told how."""
    hub = Hub()
    app = Application(
        [
            (r"/hub/api/user", _User),
            (r"/hub/api/users", _Users),
            (r"/hub/api/users/([^/]+)", _Users),
            (r"/hub/api/users/([^/]+)/activity", _Activity),
            (r"/hub/api/users/([^/]+)/servers/([^/]+)", _Server),
            (r"/hub/api/groups", _Groups),
            (r"/hub/api/groups/([^/]+)", _Groups),
        ],
        hub=hub,
    )
    server = HTTPServer(app, ssl_options=tls)
    sockets = bind_sockets(0, address)
    server.add_sockets(sockets)
    hub.url = f"http{'s' if tls else ''}://{address}:{sockets[0].getsockname()[1]}/hub/api"
    try:
        yield hub
    finally:
        server.stop()
        await server.close_all_connections()


@dataclass
class Site:
    """A running service and its hub."""

    hub: Hub
    service: RunningService
    prefix: str = PREFIX

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.service.port}{self.prefix}"

    def client(self, token: str) -> ServiceClient:
        return ServiceClient(self.url, token)

    async def lease(self, lease_id: str, state: str, seconds: float = 30) -> Any:
        """Wait until a lease is in this state and return it."""

        def there() -> Any:
            lease = self.service.services.ledger.leases.get(lease_id)
            return lease if lease is not None and lease.state == state else None

        return await wait_for_async(there, seconds, f"lease {lease_id} {state}")

    async def place(self, lease_id: str) -> int:
        """Wait until who asked is told their place in the queue and return it."""
        view = self.service.services.views.lease
        leases = self.service.services.ledger.leases

        def told() -> int | None:
            return view(leases[lease_id])["position"]

        return await wait_for_async(told, 30, f"the place of lease {lease_id}")


def set_environment(patch: Callable[[str, str], None], hub: Hub) -> None:
    """Say to the service's process what a hub says."""
    patch("JUPYTERHUB_API_URL", hub.url)
    patch("JUPYTERHUB_API_TOKEN", OWN_TOKEN)
    patch("JUPYTERHUB_SERVICE_NAME", "gpulease")
    patch("JUPYTERHUB_SERVICE_PREFIX", PREFIX)
    patch("JUPYTERHUB_CLIENT_ID", "service-gpulease")


def options(path: Path, **changed: Any) -> Options:
    """Return options for a service in a temporary directory."""
    outs = {**QUICK, **changed.pop("outs", {})}
    defaults: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": 0,
        "prefix": PREFIX,
        "hub_path": "/hub/",
        "database_url": f"sqlite:///{path / 'leases.sqlite'}",
        "key_file": path / "leases.sqlite.key",
        "gpus": 2,
        "simulate": True,
        "first_time_outs": outs,
        "tick": 0.1,
        "hub_seconds": 0.2,
    }
    return Options(**{**defaults, **changed})


def works_out_here(patch: pytest.MonkeyPatch) -> None:
    """Work repetitions and calendars out in this process: nothing that is sent may be endless."""

    async def answers(_module: str, question: bytes, _limit: float) -> list[Any]:
        found = list(expansion._answers(json.loads(question)))
        return list(json.loads(json.dumps(found)))

    patch.setattr(workers, "_answers", answers)


@asynccontextmanager
async def running(hub: Hub, path: Path, **changed: Any) -> AsyncIterator[Site]:
    """Run a service in this process."""
    wanted = options(path, **changed)
    file = path / "leases.sqlite"
    if wanted.database_url == f"sqlite:///{file}":
        lay_tables(file)  # half of a service's start
    service = RunningService(wanted)
    await service.open()
    try:
        yield Site(hub, service)
    finally:
        await service.close()


def z85_key() -> str:
    """Return a fresh public key."""
    return zmq.curve_keypair()[0].decode()


class Peer:
    """The other end of one of the service's websockets."""

    def __init__(self, connection: WebSocketClientConnection) -> None:
        self._connection = connection
        self.messages: list[dict[str, Any]] = []
        self.closed = asyncio.Event()
        self._reader = asyncio.ensure_future(self._read())

    @classmethod
    async def open(cls, url: str, **headers: str) -> Any:
        """Connect; raises ``HTTPClientError`` when refused."""
        request = HTTPRequest(f"ws{url.removeprefix('http')}", headers=headers)
        return cls(await websocket_connect(request))

    async def say(self, message: dict[str, Any] | str) -> None:
        text = message if isinstance(message, str) else json.dumps(message)
        await self._connection.write_message(text)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.messages if each["type"] == kind]

    async def next(self, kind: str, seconds: float = 30) -> dict[str, Any]:
        """Wait for the first message of a kind."""
        await wait_for_async(lambda: bool(self.of(kind)), seconds, f"a message {kind}")
        return self.of(kind)[0]

    async def close(self) -> None:
        self._connection.close()
        await self._reader

    async def _read(self) -> None:
        try:
            while (raw := await self._connection.read_message()) is not None:
                await self.heard(json.loads(raw))
        finally:
            self._connection.close()
            self.closed.set()

    async def heard(self, message: dict[str, Any]) -> None:
        self.messages.append(message)


class Server(Peer):
    """A notebook server's own events channel."""

    @classmethod
    async def join(cls, site: Site, token: str) -> Server:
        found = await cls.open(f"{site.url}api/events", Authorization=f"token {token}")
        assert isinstance(found, cls)
        await found.next("snapshot")
        return found

    def view(self, lease_id: str) -> LeaseView | None:
        """Return the newest view of a lease."""
        for message in reversed(self.messages):
            leases = [message["lease"]] if message["type"] == "lease" else message.get("leases", [])
            for lease in leases:
                if lease["id"] == lease_id:
                    return lease
        return None

    async def grant(self, lease_id: str) -> dict[str, Any]:
        """Wait for the grant of a lease."""

        def there() -> Any:
            view = self.view(lease_id)
            return view.get("grant") if view else None

        return await wait_for_async(there, 30, "a grant")


class Supervisor(Peer):
    """A lease's supervisor: it admits every key and drains when a test says so."""

    admits = True

    @classmethod
    async def start(cls, site: Site, lease_id: str, grant: dict[str, Any], **more: Any) -> Any:
        found = await cls.open(
            f"{site.url}api/leases/{lease_id}/supervisor",
            Authorization=f"Bearer {grant['token']}",
        )
        hello = {
            "type": "hello",
            "address": "tcp://127.0.0.1:1",
            # A supervisor that comes back has the key that it had before.
            "public_key": zmq.utils.z85.encode(sha256(grant["token"].encode()).digest()).decode(),
            "protocol": PROTOCOL_VERSION,
            "python": "3.11.2",
            "attempt": grant["attempt"],
        }
        await found.say({**hello, **more})
        return found

    async def heard(self, message: dict[str, Any]) -> None:
        await super().heard(message)
        if message["type"] == "admit" and self.admits:
            await self.say({"type": "admitted", "client_key": message["client_key"]})
        if message["type"] == "end":
            with suppress(WebSocketClosedError):  # the test may have closed it already
                await self.say({"type": "bye", "reason": "ended"})
            self._connection.close()

    async def live(self, *, use: float = 0.0, cells: int = 0, threads: int = 0) -> None:
        """Report one second of the lease."""
        sample = {
            "at": datetime.now(UTC).isoformat(),
            "cells": cells,
            "threads": threads,
            "processes": 0,
            "use": use,
            "transfers": False,
        }
        await self.say({"type": "activity", "samples": [sample]})


async def active_lease(
    site: Site,
    user: str = "stu",
    server: str = "",
    hello: dict[str, Any] | None = None,
    **ask: Any,
) -> tuple[LeaseView, Server, Supervisor]:
    """Ask as a server, be granted, start a supervisor, wait until the lease is active."""
    token = site.hub.server_token(user, server)
    channel = await Server.join(site, token)
    lease = await site.client(token).ask({"origin": "magic", **ask})  # type: ignore[typeddict-item]
    grant = await channel.grant(lease["id"])
    supervisor = await Supervisor.start(site, lease["id"], grant, **(hello or {}))
    await site.lease(lease["id"], "active")
    return lease, channel, supervisor


async def connect(site: Site, token: str, lease_id: str, kernel_id: str = "k1") -> ConnectionView:
    """Connect a home kernel."""
    return await site.client(token).connection(lease_id, z85_key(), kernel_id)


#: The service's own, set after log-in.
COOKIE = "service-gpulease"


def cookie_of(site: Site, token: str) -> str:
    """Return the cookie that the service sets after OAuth."""
    server = site.service._listeners[0]
    assert server is not None
    secret = server.request_callback.settings["cookie_secret"]  # type: ignore[attr-defined]
    return f"{COOKIE}={create_signed_value(secret, COOKIE, token).decode()}"


def kernel(name: str, **more: Any) -> KernelReport:
    """What a server reports of one of its kernels."""
    return KernelReport(id=name, last_cell=None, busy=False, **more)
