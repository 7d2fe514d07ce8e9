"""A whole demo: real hub, proxy, lease service and servers, in a child process.

One can serve several modules: each says which time-outs it wants (``RunningDemo.prepare``), and
finds no server and no live lease of the module before it.
"""

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from gpulease.demo.browse import Browser
from gpulease.demo.options import DemoOptions, Ports
from tests import logs
from tests.helpers import wait_for, wait_for_async

T = TypeVar("T")
#: Seconds; a first start compiles and migrates, and the machine may be busy.
START_MAX = 180.0
STOP_MAX = 90.0
#: Ends a demo with its test process, also where that is killed (xdist ends its workers so).
WITH_US = ("setpriv", "--pdeathsig", "TERM") if shutil.which("setpriv") else ()


@dataclass(frozen=True)
class RunningDemo:
    """Where a demo answers, and where its files are."""

    url: str
    directory: Path
    pid: int  # of the `gpulease demo` command

    @property
    def service(self) -> str:
        return f"{self.url}services/gpulease/"

    def home(self, user: str) -> Path:
        return self.directory / "homes" / user

    def write_notebook(self, user: str, name: str, cells: list[str]) -> None:
        """Put a notebook into somebody's home before their server starts."""
        code = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
        document = {
            "cells": [{**code, "id": f"cell-{n}", "source": text} for n, text in enumerate(cells)],
            "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
        self.home(user).mkdir(parents=True, exist_ok=True)
        (self.home(user) / name).write_text(json.dumps(document))

    def prepare(self, **time_outs: float) -> None:
        """Stop everybody's servers, let every lease end, and put these time-outs (s) into force."""
        in_a_thread(self._prepare(time_outs))

    def time_outs(self, **seconds: float) -> None:
        """Put these time-outs into force, whatever runs; also beside Playwright, on its thread."""
        self.put_policy(time_outs=seconds)

    def put_policy(self, **sections: dict[str, Any]) -> None:
        """Put these members of the policy's sections into force, beside what stands there."""
        in_a_thread(self._put_policy(sections))

    def policy(self) -> dict[str, Any]:
        """Return the policy that is in force."""
        return in_a_thread(self._policy())

    async def _policy(self) -> dict[str, Any]:
        async with Browser(self.url) as admin:
            await admin.log_in("admin", "admin")
            await admin.open_service()
            return dict(yaml.safe_load((await admin.service_api("GET", "policy"))["text"]))

    async def _put_policy(self, sections: dict[str, dict[str, Any]]) -> None:
        async with Browser(self.url) as admin:
            await admin.log_in("admin", "admin")
            await admin.open_service()
            policy = yaml.safe_load((await admin.service_api("GET", "policy"))["text"])
            for name, members in sections.items():
                policy[name] = {**policy.get(name, {}), **members}
            await put(admin, policy)

    async def _prepare(self, time_outs: dict[str, float]) -> None:
        async with Browser(self.url) as admin:
            await admin.log_in("admin", "admin")
            await admin.open_service()
            for user in await admin.hub_api("GET", "users"):
                for name in user["servers"]:
                    assert not name, "no test of a shared demo starts a named server"
                    await admin.hub_api("DELETE", f"users/{user['name']}/server")

            async def nothing_runs() -> bool:
                users = await admin.hub_api("GET", "users")
                leases = await admin.service_api("GET", "leases?state=live")
                return not leases["items"] and not any(user["servers"] for user in users)

            await wait_for_async(nothing_runs, STOP_MAX, "every server has stopped")
            policy = yaml.safe_load((await admin.service_api("GET", "policy"))["text"])
            outs = DemoOptions(self.directory, Ports(0, 0, 0, 0), **time_outs).time_outs()
            policy["time_outs"] = {**policy.get("time_outs", {}), **outs}
            await put(admin, policy)


async def put(admin: Browser, policy: dict[str, Any]) -> None:
    """Put a whole policy into force, with its sections in the order in which they stand."""
    text = yaml.safe_dump(policy, sort_keys=False)
    await admin.service_api("PUT", "policy", {"text": text})


def in_a_thread(work: Coroutine[Any, Any, T]) -> T:
    """Run it to its end where this thread has an event loop already, as Playwright's has."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


@contextmanager
def running_demo(directory: Path, *arguments: str) -> Iterator[RunningDemo]:
    """Start `gpulease demo` with simulated GPUs on free ports; end it with all it started."""
    state = directory / "demo.json"
    said = directory / "said.log"
    command = [sys.executable, "-m", "gpulease.cli", "demo", "--port", "0", "--simulate"]
    with said.open("wb") as output:
        process = subprocess.Popen(
            [*WITH_US, *command, "--dir", str(directory), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )

        def started() -> Any:
            assert process.poll() is None, said.read_text()
            return state.exists() and state.stat().st_size > 0

        try:
            wait_for(started, START_MAX, "the demo to start")
            found = json.loads(state.read_text())
            with logs.shown(Path(found["log"])):
                yield RunningDemo(found["url"], directory, process.pid)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(STOP_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
