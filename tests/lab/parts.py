"""A real notebook server with the extension, and a kernel's end of its bus."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tornado.httpclient import AsyncHTTPClient, HTTPRequest, HTTPResponse

from gpulease.protocol.names import ENV_BUS, ENV_SERVICE_URL
from gpulease.system.loopback_ports import free_port
from tests import logs
from tests.companion.parts import LEASE_ID, SERVER_TOKEN, TOKEN, LeaseService
from tests.helpers import wait_for_async

WEB_TOKEN = "the-browsers-credential"


class NotebookServer:
    """`jupyter server` as a process."""

    def __init__(self, directory: Path, service_url: str, standby: bool) -> None:
        self.port = free_port()
        # Short: a socket address holds 108 bytes, and a test's own directory may be longer.
        self.runtime = Path(tempfile.mkdtemp(prefix="gl-"))
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("GPULEASE", "JUPYTER"))}
        environ |= {
            "JUPYTER_RUNTIME_DIR": str(self.runtime),
            "JUPYTER_CONFIG_DIR": str(directory / "config"),
            "JUPYTER_DATA_DIR": str(directory / "data"),
            "IPYTHONDIR": str(directory / "ipython"),
            "JUPYTER_TOKEN": WEB_TOKEN,
            "JUPYTER_NO_CONFIG": "1",  # no other extension: JupyterLab alone takes a second
            "PYTHONFAULTHANDLER": "1",  # one that does not end is aborted, and says where it is
        }
        if service_url:
            environ |= {ENV_SERVICE_URL: service_url, "JUPYTERHUB_API_TOKEN": SERVER_TOKEN}
        self.log = (directory / "log").open("wb")
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "jupyter_server", "--no-browser", f"--port={self.port}",
                "--ServerApp.ip=127.0.0.1", "--allow-root", "--ServerApp.port_retries=0",
                "--ServerApp.jpserver_extensions=gpulease.lab=True",
                f"--GPULeaseLab.standby={standby}", f"--ServerApp.root_dir={directory}",
            ],
            env=environ, stdout=self.log, stderr=self.log, start_new_session=True,
        )  # fmt: skip

    async def fetch(self, path: str, method: str = "GET", body: Any = None) -> HTTPResponse:
        """One request with the browser's token."""
        request = HTTPRequest(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            headers={"Authorization": f"token {WEB_TOKEN}"},
            body=None if body is None else json.dumps(body),
            allow_nonstandard_methods=True,
            request_timeout=60,
        )
        return await AsyncHTTPClient().fetch(request, raise_error=False)

    async def json(self, path: str, method: str = "GET", body: Any = None) -> Any:
        response = await self.fetch(path, method, body)
        return json.loads(response.body) if response.body else None

    async def ready(self) -> None:
        async def answers() -> bool:
            try:
                return bool((await self.fetch("/gpulease/api/status")).code == 200)
            except OSError:
                return False

        await wait_for_async(answers, 90, "the notebook server")

    def bus_path(self) -> Path:
        (found,) = self.runtime.glob("gpulease-*.sock")
        return found

    async def stop(self) -> None:
        try:
            if self.process.poll() is None:
                self.process.terminate()
                await wait_for_async(lambda: self.process.poll() is not None, 60, "the end")
        finally:
            self.process.send_signal(signal.SIGABRT)  # does nothing to one that has ended
            self.process.wait()
            self.log.close()
            shutil.rmtree(self.runtime, ignore_errors=True)


class Kernel:
    """A kernel's end of the bus."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.events: list[dict[str, Any]] = []
        self._answers: dict[int, dict[str, Any]] = {}
        self._number = 0
        self._task = asyncio.ensure_future(self._read(reader))

    @classmethod
    async def connect(cls, path: Path, kernel_id: str) -> "Kernel":
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(json.dumps({"hello": kernel_id}).encode() + b"\n")
        return cls(reader, writer)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            message = json.loads(line)
            if "event" in message:
                self.events.append(message)
            else:
                self._answers[message["id"]] = message

    def send(self, raw: bytes) -> None:
        self._writer.write(raw)

    async def call(self, name: str, **args: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        self.send(json.dumps({"id": number, "call": name, "args": args}).encode() + b"\n")
        return await wait_for_async(lambda: self._answers.get(number), 60, f"call {name}")

    async def event(self, kind: str, condition: Any = lambda event: True) -> dict[str, Any]:
        found = await wait_for_async(
            lambda: [e for e in self.events if e["event"] == kind and condition(e)], 60, kind
        )
        return found[-1]

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
        await self._task


def lease_view(lease_id: str = LEASE_ID, state: str = "active", **more: Any) -> dict[str, Any]:
    """A lease as the service shows it to its own server; without a grant while queued or ended."""
    view = {
        "id": lease_id, "version": 1, "user": "stu", "server": "", "kernel_id": None,
        "origin": "page", "gpu_class": "small", "count": 1, "simulated": True, "state": state,
        "created": "2026-01-05T12:00:00+00:00", "active_since": None, "hard_end": None,
        "verdict": "idle", "click_runs_cells": "auto", "end": None, **more,
    }  # fmt: skip
    if state not in ("queued", "ended"):
        view["grant"] = {
            "attempt": 1, "token": TOKEN, "visible_devices": "", "simulated": True,
            "drain_max": 20.0, "park_dir": more.pop("park_dir", ""), **more.pop("grant", {}),
        }  # fmt: skip
    return view


@contextlib.asynccontextmanager
async def server(
    directory: Path, *, hub: bool = True, standby: bool = False
) -> AsyncIterator[tuple[LeaseService, NotebookServer]]:
    """A lease service and a notebook server that knows it (``hub=False``: that does not)."""
    service = LeaseService()
    notebook = NotebookServer(directory, service.url if hub else "", standby)
    with logs.shown(directory / "log"):
        try:
            await notebook.ready()
            if hub:
                await wait_for_async(lambda: service.readers, 30, "the events channel")
            yield service, notebook
        finally:
            await notebook.stop()
            await service.stop()
        said = (directory / "log").read_text()
        # A task or a child that outlives the event loop is logged about while Python ends; so is
        # one of ipykernel's, in the same file, where its kernel is stopped before it has begun.
        destroyed = [line for line in said.splitlines() if line.lstrip().startswith("task: <Task")]
        assert all("/ipykernel/" in line for line in destroyed), said
        assert "is closed" not in said, said


__all__ = ["ENV_BUS", "Kernel", "NotebookServer", "lease_view", "server"]
