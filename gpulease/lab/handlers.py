"""REST for the notebook front end, under ``gpulease/api``.

Refusals have the form of RFC 9457.  No request counts as activity: a tab left open must not keep a
server alive.
"""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jupyter_server.base.handlers import APIHandler
from tornado import web

from gpulease.errors import PROBLEM_TYPE, GPULeaseError
from gpulease.lab.core import Core
from gpulease.protocol.names import ENV_SERVICE_URL
from gpulease.protocol.reports import LANGUAGE_MAX

_BODY_MAX = 64 * 1024
_LANGUAGE = re.compile(rf"(?=.{{2,{LANGUAGE_MAX}}}$)[A-Za-z]+(-[A-Za-z0-9]+)*")


class _Handler(APIHandler):
    """What all handlers share."""

    _track_activity = False

    @property
    def core(self) -> Core:
        core = self.settings.get("gpulease")
        if core is None:
            raise GPULeaseError(
                "starting", "The server extension is starting.", next_step="Try again."
            )
        assert isinstance(core, Core)
        return core

    def body(self) -> dict[str, Any]:
        """Return the request's JSON object (empty: no members)."""
        raw = self.request.body
        if len(raw) > _BODY_MAX:
            raise GPULeaseError("too_large", "The body is too large.")
        try:
            found = json.loads(raw) if raw else {}
        except ValueError as error:
            raise GPULeaseError("malformed", "The body is not JSON.") from error
        if not isinstance(found, dict):
            raise GPULeaseError("malformed", "The body is not a JSON object.")
        return found

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Write a refusal as a problem; everything else as jupyter_server does."""
        error = kwargs.get("exc_info", (None, None))[1]
        if not isinstance(error, GPULeaseError):
            super().write_error(status_code, **kwargs)
            return
        self.set_status(error.status)
        self.finish(json.dumps(error.to_problem()), set_content_type=PROBLEM_TYPE)

    def log_exception(self, *args: Any) -> None:
        """A refusal is no failure of the server."""
        if not isinstance(args[1], GPULeaseError):
            super().log_exception(*args)


def service_page() -> str:
    """Return the path of the lease service's page, "" where there is no hub.

    A browser reaches it under the hub's own origin; the address that this server uses may be
    another, inside a cluster.
    """
    return urlsplit(os.environ.get(ENV_SERVICE_URL, "")).path


class StatusHandler(_Handler):
    """GET: whether there is a hub and whether it answers."""

    @web.authenticated
    async def get(self) -> None:
        """Answer with hub, link, leases and classes; ``now`` is this machine's clock.

        A page that is opened says in which ``language`` it is.
        """
        board = self.core.board
        language = self.get_query_argument("language", "").replace("_", "-")
        if _LANGUAGE.fullmatch(language):
            self.core.speak(language)
        self.finish(
            json.dumps(
                {
                    "hub": self.core.upstream is not None,
                    "up": board.up,
                    "now": datetime.now(UTC).isoformat(),
                    "service_page": service_page(),
                    "page_kernel": board.latest_kernel(),
                    "leases": board.all_shown(),
                    "classes": board.classes,
                    "messages": self.core.messages,
                }
            )
        )


class LeasesHandler(_Handler):
    """GET lists this server's leases; POST asks for one."""

    @web.authenticated
    async def get(self) -> None:
        """Answer with the list."""
        self.finish(json.dumps({"leases": self.core.board.all_shown()}))

    @web.authenticated
    async def post(self) -> None:
        """Ask; for the kernel named, else for the one that ran a cell last."""
        wanted = self.body()
        kernel_id = str(wanted.pop("kernel_id", "") or self.core.board.latest_kernel() or "")
        args = {**wanted, "origin": "lab"}
        self.set_status(201)
        self.finish(json.dumps(await self.core.call(kernel_id, "ask", args)))


class LeaseHandler(_Handler):
    """DELETE returns a lease, or withdraws a request; ``force`` where something would be lost."""

    @web.authenticated
    async def delete(self, lease_id: str) -> None:
        """End it."""
        args = {"lease_id": lease_id, "force": bool(self.body().get("force"))}
        self.finish(json.dumps(await self.core.call("", "end", args)))


class ChangeHandler(_Handler):
    """POST keeps a warned lease, or lets a lease become what was asked for."""

    @web.authenticated
    async def post(self, lease_id: str, change: str) -> None:
        """Change it."""
        self.finish(json.dumps(await self.core.call("", change, {"lease_id": lease_id})))


class ListHandler(_Handler):
    """GET: the person's newest leases, with those that ended; projects; groups' reservations."""

    @web.authenticated
    async def get(self, name: str) -> None:
        """Answer as the service does."""
        self.finish(json.dumps(await self.core.call("", name, {})))


class RunsHandler(_Handler):
    """POST runs a whole notebook in the background."""

    @web.authenticated
    async def post(self) -> None:
        """Submit the notebook at ``path``, which begins at the server's root directory."""
        path = str(self.body().get("path", "")).lstrip("/")
        notebook = Path(self.contents_manager.root_dir, path)
        self.set_status(201)
        self.finish(json.dumps(await self.core.call("", "submit", {"notebook": str(notebook)})))


_LEASE = r"/gpulease/api/leases/([\w-]+)"
HANDLERS: list[tuple[str, type[_Handler]]] = [
    (r"/gpulease/api/status", StatusHandler),
    (r"/gpulease/api/leases", LeasesHandler),
    (r"/gpulease/api/(history|projects|reservations)", ListHandler),
    (r"/gpulease/api/runs", RunsHandler),
    (_LEASE, LeaseHandler),
    (rf"{_LEASE}/(keep|upgrade)", ChangeHandler),
]
