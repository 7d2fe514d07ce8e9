"""A whole demo of one's own: real hub, proxy, lease service and servers, in a child process."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.helpers import wait_for

#: Seconds; a first start compiles and migrates, and the machine may be busy.
START_MAX = 180.0
STOP_MAX = 90.0


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

    def log_tail(self) -> str:
        log = self.directory / "demo.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-60:])


@contextmanager
def running_demo(directory: Path, *arguments: str) -> Iterator[RunningDemo]:
    """Start `gpulease demo` with simulated GPUs on free ports; end it with all it started."""
    state = directory / "demo.json"
    said = directory / "said.log"
    command = [sys.executable, "-m", "gpulease.cli", "demo", "--port", "0", "--simulate"]
    with said.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--dir", str(directory), *arguments],
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
            yield RunningDemo(found["url"], directory, process.pid)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(STOP_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
