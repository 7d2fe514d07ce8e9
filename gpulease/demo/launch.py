"""Starts a demo, tells what it does, and ends it.

The order is directory, ports, policy, hub, wait until everything answers; the hub starts the parts
themselves.  Linux only.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from gpulease.demo import processes
from gpulease.demo.options import (
    ENV_OPTIONS,
    GROUP,
    NOTEBOOK,
    PEOPLE,
    TORCH_NOTEBOOK,
    DemoOptions,
    Ports,
)
from gpulease.errors import GPULeaseError
from gpulease.system.loopback_ports import free_port, hold_port

#: Seconds until everything must answer; a first start compiles and migrates.
START_MAX = 120.0
#: Seconds the hub gets to end its servers, its service and its proxy.
STOP_MAX = 30.0

Say = Callable[[str], None]


class InterruptedBySignalError(Exception):
    """The person (Ctrl-C) or the system (SIGTERM) asked the demo to end."""


class Demo:
    """One running demo."""

    def __init__(self, options: DemoOptions, say: Say) -> None:
        self.options = options
        self._say = say
        self._hub: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the hub and return when hub, proxy and service answer.

        Raises:
            GPULeaseError: ``demo_failed`` with the log's last lines.
        """
        began = time.monotonic()
        options = self.options
        with options.log.open("ab") as log:
            self._hub = processes.start(
                [sys.executable, "-P", "-m", "jupyterhub", "-f", str(_CONFIG_FILE)],
                environment=_environment(options),
                directory=options.directory,
                output=log,
            )
        self._wait_for("JupyterHub", f"http://127.0.0.1:{options.ports.hub}/hub/health")
        self._wait_for("proxy", f"{options.url}hub/health")
        self._wait_for("lease service", f"{options.url}services/gpulease/api/health")
        self._tell_programs()
        self._say(f"ready after {time.monotonic() - began:.1f} s")

    def wait(self) -> None:
        """Return when the hub has ended, which it does not by itself.

        Raises:
            GPULeaseError: ``demo_failed``: it did.
        """
        assert self._hub is not None
        self._hub.wait()
        raise self._failure("JupyterHub has ended by itself")

    def stop(self) -> set[int]:
        """End every process that the demo started; return those that are left."""
        with contextlib.suppress(FileNotFoundError):
            self.options.state_file.unlink()
        if self._hub is not None:
            processes.end(self._hub, grace=STOP_MAX)
        return processes.sweep(grace=2.0)

    def _tell_programs(self) -> None:
        """Write the state file, whole or not at all."""
        state = {"url": self.options.url, "pid": os.getpid(), "log": str(self.options.log)}
        unfinished = self.options.state_file.with_suffix(".new")
        unfinished.write_text(json.dumps(state))
        unfinished.replace(self.options.state_file)

    def _wait_for(self, what: str, url: str) -> None:
        assert self._hub is not None
        self._say(f"starting {what} ...")
        deadline = time.monotonic() + START_MAX
        while not _answers(url):
            if self._hub.poll() is not None:
                raise self._failure(f"JupyterHub ended while the {what} started")
            if time.monotonic() > deadline:
                raise self._failure(f"The {what} did not answer within {START_MAX:.0f} s")
            time.sleep(0.2)  # that an address answers is told only by asking it

    def _failure(self, what: str) -> GPULeaseError:
        tail = log_tail(self.options.log)
        return GPULeaseError(
            "demo_failed",
            f"{what}. The log's last lines:\n{tail}\n",
            next_step=f"The whole log: {self.options.log}",
        )


def log_tail(log: Path, lines: int = 15) -> str:
    """Return the last lines of a log, indented."""
    try:
        text = log.read_text(errors="replace")
    except OSError as error:
        return f"    (no log: {error.strerror})"
    return "\n".join(f"    {line}" for line in text.splitlines()[-lines:])


def choose_ports(public: int | None) -> Ports:
    """Return free loopback ports; ``public`` is the wanted one, ``None`` for 8000 if it is free.

    Raises:
        GPULeaseError: ``port_taken`` when the wanted one is not free.
    """
    if public is not None and not 0 <= public <= 65535:
        raise GPULeaseError(
            "bad_option",
            f"--port must be from 0 (any free one) to 65535, not {public}.",
            next_step="See gpulease demo --help.",
        )
    if public and not hold_port(public):
        raise GPULeaseError(
            "port_taken",
            f"Port {public} of this machine is taken.",
            next_step="Give another with --port, or leave it out for any free one.",
        )
    if public is None and hold_port(8000):
        public = 8000
    return Ports(public or free_port(), free_port(), free_port(), free_port())


def _answers(url: str) -> bool:
    try:
        # The schemes are ours: loopback HTTP.
        with _OPENER.open(url, timeout=10) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


#: Never through a proxy that the environment names: everything is on loopback.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_CONFIG_FILE = Path(__file__).with_name("jupyterhub_config.py")


def _environment(options: DemoOptions) -> dict[str, str]:
    """Return the hub's environment: ours, without what another hub or server left in it."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JUPYTERHUB_", "JUPYTER_", "JPY_", "GPULEASE_", "CONFIGPROXY_"))
    }
    # Its commands are there in notebooks and terminals, also where nobody activated it.
    programs = str(Path(sys.executable).parent)
    path = os.pathsep.join([programs, kept.get("PATH", os.defpath)])
    return {**kept, "PATH": path, ENV_OPTIONS: options.to_json(), "PYTHONUNBUFFERED": "1"}


@dataclass
class DemoDirectory:
    """The demo's directory; ``keep`` is set to ``False`` when nobody will want to look into it."""

    path: Path
    keep: bool = True


@contextlib.contextmanager
def directory(given: Path | None) -> Iterator[DemoDirectory]:
    """Give the demo's directory: ``given``, or a temporary one that goes unless it is kept.

    It is kept when the block fails: the log in it says why.
    """
    if given is not None:
        try:
            given.mkdir(parents=True, exist_ok=True)
            fits = os.access(given, os.W_OK | os.X_OK)
            why = "it cannot be written"
        except OSError as error:
            fits, why = False, error.strerror or str(error)
        if not fits:
            raise GPULeaseError(
                "bad_option",
                f"--dir: {given} cannot be used: {why}.",
                next_step="Name a directory that may be written, or leave it out.",
            )
        yield DemoDirectory(given.resolve())
        return
    place = DemoDirectory(Path(tempfile.mkdtemp(prefix="gpulease-demo-")))
    yield place
    if not place.keep:
        shutil.rmtree(place.path, ignore_errors=True)


def ignore_signals() -> None:
    """From here on nothing stops the clean-up; ``ends_on_signal`` puts the handlers back."""
    for each in _ENDING:
        signal.signal(each, signal.SIG_IGN)


@contextlib.contextmanager
def ends_on_signal() -> Iterator[None]:
    """Raise ``InterruptedBySignalError`` on Ctrl-C and SIGTERM, once: nothing stops the end."""

    def interrupt(number: int, _frame: FrameType | None) -> None:
        ignore_signals()
        raise InterruptedBySignalError(signal.Signals(number).name)

    before: dict[int, Any] = {}
    for caught in _ENDING:
        before[caught] = signal.signal(caught, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def require_linux() -> None:
    """Refuse other systems.

    Raises:
        GPULeaseError: ``linux_only``.
    """
    if sys.platform != "linux":
        raise GPULeaseError(
            "linux_only",
            "gpulease runs on Linux only: it finds and ends processes by Linux's own means.",
            next_step="Run the demo on a Linux machine, in WSL 2 or in a container.",
        )


def welcome(options: DemoOptions) -> str:
    """Return what a person reads when the demo is ready."""
    people = "\n".join(f"    {p.name:<11} password {p.password:<11} {p.does}" for p in PEOPLE)
    return f"""
gpulease is ready:   {options.url}

  Log in as
{people}
    (student and student2 are in the group {GROUP})

  What to try first
    1. Log in as student and start the server. {NOTEBOOK} opens, without a GPU.
    2. Run the cells from the top. The first %%gpu cell requests a GPU by itself.
    3. Leave the notebook alone for {options.idle:.0f} s: you are warned, then the GPU is released.
       Run on: every variable is still there, and the next %%gpu cell gets a GPU again.
       {TORCH_NOTEBOOK} is the same with PyTorch, where it is installed.
    4. On the hub's home page ({options.url}hub/home): the card "Request GPU".

  Where no NVIDIA driver is found, the GPUs are simulated, and every page says so.
  All servers run under your own user id: a demo, not a way to keep people apart.
  Log: {options.log}
  Ctrl-C ends everything.
"""
