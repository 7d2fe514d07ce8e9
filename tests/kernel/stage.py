"""A notebook server's bus and a lease service's channel, real sockets and real protocol.

Stands where ``gpulease.lab`` and the service stand: a test decides what they say.  The supervisors
it starts are real processes.
"""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import tornado.web
import tornado.websocket

from gpulease.errors import GPULeaseError
from gpulease.protocol.service import LeaseView
from tests.helpers import wait_for, wait_for_async

SECONDS = 30.0

#: What the service says of a request: with its place and its expected start, in Lab's language.
WAITS = "All GPUs are in use. You are next. No estimate yet."
#: The first lease of a stage.  A lease's processes are found by its id, machine-wide: each test
#: process needs ids of its own, or one would end the other's companions.
LEASE = f"stage-{os.getpid()}-1"


def in_seconds(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def lease_view(lease_id: str, **changes: Any) -> LeaseView:
    view: dict[str, Any] = {
        "id": lease_id, "version": 1, "user": "stu", "server": "", "kernel_id": None,
        "origin": "magic", "gpu_class": "simulated", "count": 1, "simulated": True,
        "state": "queued", "reason": "no_capacity", "sentence": WAITS,
        "next_step": "", "position": 1, "expected_start": None,
        "created": in_seconds(0), "active_since": None, "hard_end": None, "warned_until": None,
        "drain_until": None, "ends_at": None, "ends_by": "",
        "verdict": "unknown", "utilisation": None,
        "keep": {"allowed": True, "left": 2, "seconds": 600.0, "reason": ""}, "devices": [],
        "end": None, "click_runs_cells": "none",
    }  # fmt: skip
    return {**view, **changes}  # type: ignore[typeddict-item]


def run_view(wanted: dict[str, Any], number: int) -> dict[str, Any]:
    """What the service says of a run that was submitted, as far as a kernel reads it."""
    place = f"-{number}" if wanted["array"] else ""
    return {
        "id": f"run{number}", "array": "many" if wanted["array"] else None,
        "result": wanted["notebook"].replace(".ipynb", f".run-x{place}.ipynb"),
        "budget": {"left": 1.25, "of": 4.0},
    }  # fmt: skip


class Channel(tornado.websocket.WebSocketHandler):
    """``api/leases/{id}/supervisor``."""

    def initialize(self, stage: "Stage") -> None:
        self.stage = stage

    def open(self, lease_id: str) -> None:  # type: ignore[override]
        self.lease_id = lease_id
        self.stage.channels[lease_id] = self

    def on_message(self, raw: str | bytes) -> None:
        self.stage.said.append((self.lease_id, json.loads(raw)))


class Stage:
    """Bus and service on a loop of their own; every method may be called from the test's thread."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "bus.sock"
        self.leases: dict[str, LeaseView] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.said: list[tuple[str, dict[str, Any]]] = []
        self.channels: dict[str, Channel] = {}
        self.kernels: dict[asyncio.StreamWriter, str] = {}
        self.sticky: set[str] = set()
        self.differences: list[str] = []  # what the answer to an ask says of the image
        self.on_ask: Callable[[LeaseView], None] = lambda _: None
        self.outage: GPULeaseError | None = None  # what every call is answered with
        self._supervisors: dict[str, subprocess.Popen[bytes]] = {}
        self._made = 0
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._do(self._open())

    # What a test does

    def grant(self, lease_id: str, **changes: Any) -> None:
        """Start the lease's supervisor and make it active once it said hello."""
        process = subprocess.Popen(
            [sys.executable, "-m", "gpulease.companion"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        self._supervisors[lease_id] = process
        order = {
            "lease_id": lease_id,
            "token": "proof",
            "service_url": f"http://127.0.0.1:{self.port}",
            "devices": "",
            "drain_max": 20.0,
        }
        assert process.stdin is not None
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()
        self.hear("hello", lease_id)
        self.change(lease_id, state="active", position=None, sentence="", **changes)

    def change(self, lease_id: str, **changes: Any) -> None:
        """Change a lease and tell the kernels."""
        lease = self.leases[lease_id]
        self.leases[lease_id] = {**lease, "version": lease["version"] + 1, **changes}  # type: ignore[typeddict-item]
        self.tell({"event": "lease", "lease": self.leases[lease_id]})

    def add(self, lease: LeaseView) -> None:
        """A lease that somebody asked for elsewhere."""
        self.leases[lease["id"]] = lease
        self.tell({"event": "lease", "lease": lease})

    def tell(self, event: dict[str, Any]) -> None:
        async def send() -> None:
            for writer in self.kernels:
                writer.write(json.dumps(event).encode() + b"\n")

        self._do(send())

    def order(self, lease_id: str, **message: Any) -> None:
        """The service says something to a supervisor."""

        async def send() -> None:
            await self.channels[lease_id].write_message(json.dumps(message))

        self._do(send())

    def hear(self, kind: str, lease_id: str) -> dict[str, Any]:
        """Wait until the lease's supervisor has said this."""

        def heard() -> dict[str, Any] | None:
            found = [m for known, m in self.said if known == lease_id and m["type"] == kind]
            return found[-1] if found else None

        found = wait_for(heard, SECONDS, f"{kind} of {lease_id}")
        assert found is not None
        return found

    def end(self, lease_id: str, reason: str, sentence: str) -> None:
        """End a lease as the service does."""
        self.order(lease_id, type="end", reason=reason)
        end = {"reason": reason, "sentence": sentence, "note": "", "at": in_seconds(0)}
        self.change(lease_id, state="ended", end=end)
        self._gone(self._supervisors.pop(lease_id))

    def hang_up(self) -> None:
        """Break every kernel's connection to the bus."""

        async def close() -> None:
            for writer in list(self.kernels):
                writer.close()

        self._do(close())

    def stop(self) -> None:
        for process in self._supervisors.values():
            process.terminate()
            self._gone(process)
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()

    @staticmethod
    def _gone(process: subprocess.Popen[bytes]) -> None:
        process.wait(SECONDS)
        assert process.stdin is not None
        process.stdin.close()

    # The two sides of the wire

    async def _open(self) -> None:
        self._bus = await asyncio.start_unix_server(self._serve, str(self.path))
        route = (r"/api/leases/([^/]+)/supervisor", Channel, {"stage": self})
        self._http = tornado.web.Application([route]).listen(0, "127.0.0.1")
        self.port: int = next(iter(self._http._sockets.values())).getsockname()[1]

    async def _close(self) -> None:
        self._bus.close()
        self._http.stop()
        for channel in self.channels.values():
            channel.close()
        for writer in list(self.kernels):
            writer.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.kernels[writer] = json.loads(await reader.readline())["hello"]
        leases = [lease for lease in self.leases.values() if lease["state"] != "ended"]
        snapshot = {"event": "snapshot", "leases": leases, "classes": []}
        self._write(writer, {**snapshot, "sticky": sorted(self.sticky)})
        try:
            while line := await reader.readline():
                message = json.loads(line)
                task = asyncio.ensure_future(self._answer(writer, message))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except ConnectionError:
            pass
        finally:
            self.kernels.pop(writer, None)
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        name, args = message["call"], message.get("args", {})
        self.calls.append((name, args))
        found: Any = None
        if self.outage is not None and "id" in message:
            self._write(writer, {"id": message["id"], "problem": self.outage.to_problem()})
            return
        if name == "sticky":
            self.sticky = {self.kernels[writer]} if args["on"] else set()
        if name == "ask":
            found = self._ask(args, self.kernels[writer])
        elif name == "keep":
            lease = self.leases[args["lease_id"]]
            sentence = "Yours until 12:34:56 UTC."
            changed = {"state": "active", "warned_until": None, "reason": "kept"}
            found = {**lease, "version": lease["version"] + 1, "sentence": sentence, **changed}
            if not lease["keep"]["allowed"]:
                refusal = GPULeaseError("keep_used_up", "Keep was used as often as allowed.")
                self._write(writer, {"id": message["id"], "problem": refusal.to_problem()})
                return
            self.leases[lease["id"]] = found
            self._write(writer, {"event": "lease", "lease": found})
        elif name == "submit":
            numbers = (1, 2) if args["array"] else (1,)
            found = {"items": [run_view(args, number) for number in numbers]}
        elif name == "lease":
            found = self.leases[args["lease_id"]]
        elif name == "connection":
            found = await self._connection(args)
        elif name == "end":
            lease = self.leases[args["lease_id"]]
            end = {"reason": "returned", "sentence": "Ended.", "note": "", "at": in_seconds(0)}
            found = {**lease, "version": lease["version"] + 1, "state": "ended", "end": end}
            self.leases[lease["id"]] = found
            self._write(writer, {"event": "lease", "lease": found})
            if lease["id"] in self._supervisors:
                # As a service does: the supervisor is gone before anybody can ask it anything.
                process = self._supervisors.pop(lease["id"])
                process.kill()
                await asyncio.get_running_loop().run_in_executor(None, self._gone, process)
        if "id" in message:
            self._write(writer, {"id": message["id"], "ok": found})

    def _ask(self, args: dict[str, Any], kernel_id: str) -> LeaseView:
        for lease in self.leases.values():
            if lease["state"] not in ("draining", "ended"):
                return lease
        self._made += 1
        lease = lease_view(f"{LEASE[:-2]}-{self._made}", kernel_id=kernel_id)
        self.leases[lease["id"]] = lease
        self._loop.run_in_executor(None, self.on_ask, lease)
        return {**lease, "differences": self.differences}

    async def _connection(self, args: dict[str, Any]) -> dict[str, Any]:
        lease_id = args["lease_id"]
        hello = next(m for known, m in self.said if known == lease_id and m["type"] == "hello")
        admit = {"type": "admit", "client_key": args["client_key"], "kernel_id": ""}
        await self.channels[lease_id].write_message(json.dumps(admit))
        answer = (lease_id, {"type": "admitted", "client_key": args["client_key"]})
        await wait_for_async(lambda: answer in self.said, SECONDS, "the key's admission")
        return {
            "lease_id": lease_id, "address": hello["address"], "server_key": hello["public_key"],
            "protocol": hello["protocol"], "simulated": True, "gpu_class": "simulated",
            "devices": [],
        }  # fmt: skip

    @staticmethod
    def _write(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        writer.write(json.dumps(message).encode() + b"\n")

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        future: Future[None] = asyncio.run_coroutine_threadsafe(work, self._loop)
        future.result(SECONDS)
