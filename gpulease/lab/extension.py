"""The extension application that jupyter_server loads.

It ties gpulease to a Jupyter server: settings, environment and Unix socket for kernels, kernel
events, the event for the notebook front end, activity for the hub's culler, and the handlers.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_runtime_dir
from jupyter_core.utils import ensure_async
from jupyter_server.extension.application import ExtensionApp
from traitlets import Bool, Float

from gpulease.lab.core import Core
from gpulease.lab.handlers import HANDLERS
from gpulease.protocol.names import ENV_BUS, ENV_SERVICE_URL
from gpulease.runs.model import run_of
from gpulease.system.private_files import PROCESS_FOLDER, process_folder

LEASE_SCHEMA_ID = "urn:gpulease:lab:lease:v1"

LEASE_SCHEMA: dict[str, Any] = {
    "$id": LEASE_SCHEMA_ID,
    "version": "1",
    "title": "A change of this server's GPU leases",
    "description": "A snapshot, one changed lease, changed classes, messages, or the link.",
    "type": "object",
    "properties": {
        "event": {"enum": ["snapshot", "lease", "classes", "messages", "link"], "title": "Kind"},
        "leases": {"type": "array", "title": "All leases (snapshot)"},
        "lease": {"type": "object", "title": "The changed lease"},
        "classes": {"type": "array", "title": "GPU classes with what is free"},
        "messages": {"type": "array", "title": "What instructors and admins tell this person"},
        "up": {"type": "boolean", "title": "Whether the lease service is connected"},
    },
    "required": ["event"],
}


_PATH_MAX = 100  # a socket address holds 108 bytes


def socket_path(runtime_dir: Path) -> Path:
    """Return a path that fits into a socket address; ``forget`` it when the socket is closed."""
    name = f"gpulease-{os.getpid()}-{secrets.token_hex(4)}.sock"
    if len(str(runtime_dir / name)) <= _PATH_MAX:
        runtime_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        return runtime_dir / name
    return process_folder() / name


def forget(path: Path) -> None:
    """Remove the directory that ``socket_path`` may have made for a path."""
    if path.parent.name.startswith(PROCESS_FOLDER):
        shutil.rmtree(path.parent, ignore_errors=True)


log = logging.getLogger("gpulease.lab")

_KERNEL_ACTIONS = "https://events.jupyter.org/jupyter_server/kernel_actions/v1"
_ACTIVITY_SECONDS = 30.0


class GPULeaseLab(ExtensionApp):
    """Leases for the kernels of this server."""

    name = "gpulease"
    app_name = "gpulease"
    load_other_extensions = True

    standby = Bool(
        True,
        config=True,
        help="""Start a companion supervisor ahead, so that a lease is ready at once.

        It holds about 100 MB of memory, no lease, no device and no user code.
        """,
    )
    activity_cap = Float(
        8 * 3600.0,
        config=True,
        help="""Seconds that a busy lease keeps this server from being culled as inactive.""",
    )
    stop_seconds = Float(
        5.0,
        config=True,
        help="""Seconds that a stopping server waits for its leases to be parked and ended.

        What needs longer goes on without the server.
        """,
    )

    serverapp: Any
    core: Core | None = None
    _activity: asyncio.Task[None] | None = None
    _run: asyncio.Task[None] | None = None  # of a whole notebook, where this server is for one

    def initialize_settings(self) -> None:
        """Say where the bus is before the first kernel starts."""
        path = socket_path(Path(jupyter_runtime_dir()))
        os.environ[ENV_BUS] = str(path)
        self._path = path
        logger = self.serverapp.event_logger
        if LEASE_SCHEMA_ID not in logger.schemas:
            logger.register_event_schema(LEASE_SCHEMA)

    def initialize_handlers(self) -> None:
        """Add the REST handlers; they find the core in the settings once it runs."""
        self.handlers.extend(HANDLERS)

    async def _start_jupyter_server_extension(self, serverapp: Any) -> None:
        """Start when the loop runs."""
        kernels = serverapp.kernel_manager
        run_id = run_of(os.environ.get("JUPYTERHUB_SERVER_NAME", ""))
        self.core = Core(
            self._path,
            os.environ.get(ENV_SERVICE_URL, ""),
            os.environ.get("JUPYTERHUB_API_TOKEN", ""),
            standby=self.standby and not run_id,  # many a run never comes to a GPU cell
            alive=lambda: list(kernels.list_kernel_ids()),
            on_change=self._emit,
            notebooks=lambda: _notebooks(serverapp.session_manager),
            for_run=bool(run_id),
        )
        serverapp.web_app.settings["gpulease"] = self.core
        await self.core.open()
        self._listen(serverapp)
        self._activity = asyncio.ensure_future(self._refresh_activity())
        if run_id and self.core.client is not None:
            from gpulease.lab.run_worker import RunWorker  # most servers need no nbclient

            worker = RunWorker(run_id, self.core.client, kernels, Path(serverapp.root_dir))
            self._run = asyncio.ensure_future(worker.run())
            self._run.add_done_callback(_log_failure)

    async def stop_extension(self) -> None:
        """End supervisors and bus."""
        for task in (self._activity, self._run):
            if task is not None:
                task.cancel()
        if self.core is not None:
            await self.core.close(self.stop_seconds)
        forget(self._path)
        if os.environ.get(ENV_BUS) == str(self._path):
            del os.environ[ENV_BUS]

    def current_activity(self) -> bool | None:
        """Tell jupyter_server whether a lease works: it does not shut down meanwhile."""
        return self._working() or None

    def _listen(self, serverapp: Any) -> None:
        async def acted(logger: Any, schema_id: str, data: dict[str, Any]) -> None:  # noqa: ARG001
            if self.core is None or data.get("status") != "success":
                return
            if data["action"] in ("restart", "shutdown"):
                for_good = data["action"] == "shutdown"
                self.core.kernel_ended(data["kernel_id"], for_good=for_good)
            elif data["action"] == "start":
                self.core.kernels_changed()

        logger = serverapp.event_logger
        if _KERNEL_ACTIONS in logger.schemas:
            logger.add_listener(schema_id=_KERNEL_ACTIONS, listener=acted)

    def _emit(self, event: dict[str, Any]) -> None:
        self.serverapp.event_logger.emit(schema_id=LEASE_SCHEMA_ID, data=event)

    def _working(self) -> bool:
        if self._run is not None and not self._run.done():
            return True
        core = self.core
        return core is not None and core.board.working(datetime.now(UTC), self.activity_cap)

    async def _refresh_activity(self) -> None:
        """Keep a server with a run, or a busy lease up to the cap, from being culled."""
        while True:
            if self._working():
                times = self.serverapp.web_app.settings["last_activity_times"]
                times["gpulease"] = datetime.now(UTC)
            await asyncio.sleep(_ACTIVITY_SECONDS)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("the run's execution failed", exc_info=task.exception())


async def _notebooks(sessions: Any) -> dict[str, str]:
    """Return the path of each kernel's notebook."""
    found = await ensure_async(sessions.list_sessions())
    return {
        each["kernel"]["id"]: each["path"]
        for each in found
        if each.get("kernel") and each["type"] == "notebook"
    }
