"""Starts, ends and kills the cluster's programs, each by its name."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from testcluster.components import COMPONENTS
from testcluster.layout import Layout
from testcluster.namespaces import entering

REPOSITORY = Path(__file__).resolve().parents[1]


class Processes:
    """The programs that run inside one cluster's namespaces."""

    def __init__(self, layout: Layout, programs: Path, holder: int) -> None:
        self._layout = layout
        self._programs = programs
        self._holder = holder
        self._parents: dict[str, int] = {}

    def start(self, name: str) -> None:
        """Start a program; one that runs already is left alone."""
        if self.running(name):
            return
        command = COMPONENTS[name].command(self._layout, self._programs)
        outer = self.run_inside(name, command)
        pid = _program_of(outer)
        self._parents[name] = outer.pid
        outer.returncode = 0  # it outlives this process on purpose: no warning about that
        (self._layout.pids / name).write_text(str(pid), encoding="ascii")

    def run_inside(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        """Run any program inside the cluster's namespaces, its words in the log `name`."""
        with self.log(name).open("ab") as log:
            return subprocess.Popen(
                [*entering(self._holder), *command],
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """End a program and wait until it is gone; raises LookupError when it does not run."""
        pid = self.pid(name)
        if pid is None:
            raise LookupError(f"{name} does not run")
        process = psutil.Process(pid)
        process.send_signal(number)
        process.wait(30)
        parent = self._parents.pop(name, None)
        if parent is not None:
            os.waitpid(parent, 0)
        (self._layout.pids / name).unlink()

    def running(self, name: str) -> bool:
        """Tell whether a program runs."""
        return self.pid(name) is not None

    def pid(self, name: str) -> int | None:
        """Return a program's process as the machine counts, or None."""
        try:
            pid = int((self._layout.pids / name).read_text(encoding="ascii"))
            process = psutil.Process(pid)
            ended = process.status() == psutil.STATUS_ZOMBIE
        except (FileNotFoundError, ValueError, psutil.NoSuchProcess):
            return None
        return None if ended else pid

    def names(self) -> list[str]:
        """Return the programs that run, by name."""
        return sorted(p.name for p in self._layout.pids.iterdir() if self.running(p.name))

    def log(self, name: str) -> Path:
        return self._layout.logs / f"{name}.log"

    def tail(self, name: str, lines: int = 20) -> str:
        """Return the last lines of a program's log."""
        path = self.log(name)
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def wait_until(self, ready: Callable[[], bool], name: str, seconds: float = 180.0) -> None:
        """Wait until `ready`.

        Raises RuntimeError with the end of the log when `name` ends or is late.
        """
        deadline = time.monotonic() + seconds
        while not ready():
            if not self.running(name):
                raise RuntimeError(f"{name} ended:\n{self.tail(name)}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{name} was not ready in {seconds:g} s:\n{self.tail(name)}")
            time.sleep(0.05)


def _program_of(outer: subprocess.Popen[bytes]) -> int:
    """Return the process that nsenter forked into the namespaces."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if outer.poll() is not None:
            raise RuntimeError(f"{outer.args!r} ended with {outer.returncode}")
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text("ascii").split()
        if children and _is_past_nsenter(int(children[0])):
            return int(children[0])
        time.sleep(0.01)
    raise RuntimeError(f"{outer.args!r} did not start in 60 s")


def _is_past_nsenter(pid: int) -> bool:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")) != "nsenter"  # noqa: PTH115, PTH119
    except (FileNotFoundError, ProcessLookupError):
        return False
