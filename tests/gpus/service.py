"""What stands in for the lease service where only the agent is under test: it notes what comes."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from testcluster.pki import Authority


@dataclass
class Service:
    """What stands in for the lease service: it notes what comes and answers as a test wants."""

    url: str = ""
    posts: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)  # of the next posts; then 200
    refuse: int = 0  # the sequence that is never taken
    answer: str = '{"taken": 1, "resources": {"r": {"pool": "p", "gpu_class": "c"}}}'

    @property
    def sequences(self) -> list[list[int]]:
        return [[each["sequence"] for each in post["batches"]] for post in self.posts]


class Batches(RequestHandler):
    def initialize(self, service: Service) -> None:
        self.service = service

    def post(self) -> None:
        found = json.loads(self.request.body)
        self.service.tokens.append(self.request.headers["Authorization"])
        code = self.service.codes.pop(0) if self.service.codes else 200
        if self.service.refuse in [each["sequence"] for each in found["batches"]]:
            code = 422
        if code == 200:
            self.service.posts.append(found)
            self.finish(self.service.answer)
        else:
            self.set_status(code)
            self.finish(json.dumps({"detail": "as the test wants"}))


@asynccontextmanager
async def serving(port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[Service]:
    service = Service()
    app = Application(
        [("/hub/api/agents/batches", Batches, {"service": service})], log_function=lambda _: None
    )
    server = HTTPServer(app, ssl_options=tls)
    sockets = bind_sockets(port, "127.0.0.1")
    server.add_sockets(sockets)
    scheme = "https" if tls else "http"
    service.url = f"{scheme}://localhost:{sockets[0].getsockname()[1]}/hub/"
    try:
        yield service
    finally:
        server.stop()
        await server.close_all_connections()


def certificate(path: Path) -> tuple[Path, ssl.SSLContext]:
    """Make an authority and a server's certificate; return the authority's file and a context."""
    path.mkdir(exist_ok=True)
    authority, both = Authority.new(), path / "server.pem"
    both.write_bytes(authority.server("localhost"))
    made = path / "ca.pem"
    made.write_text(authority.pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return made, context
