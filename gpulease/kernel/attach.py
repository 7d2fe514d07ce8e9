"""From a lease's address to a companion that answers: the steps of connecting, and their undoing.

The slow steps run on a worker thread, what touches the namespace on the main thread.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from gpulease.channel.iothread import IOThread
from gpulease.channel.keys import KeyPair
from gpulease.errors import GPULeaseError
from gpulease.kernel.control import ControlClient, Push
from gpulease.kernel.execution import Channels, Executor
from gpulease.kernel.inbox import Inbox
from gpulease.protocol.control import CompanionOpen, CompanionOpened
from gpulease.protocol.names import PROTOCOL_VERSION
from gpulease.protocol.service import ConnectionView
from gpulease.sides.environment import allowed_environment
from gpulease.sides.versions import environment
from gpulease.system.private_files import process_folder
from gpulease.version import __version__

OPEN_SECONDS = 60.0
#: How long a supervisor may take to answer at all: one of a lease, and one that a file names.
REACH_SECONDS = 15.0
FILE_REACH_SECONDS = 5.0
READY_SECONDS = 60.0
#: How long the first question to a companion waits for its answer (seconds).
FIRST_PATIENCE = 0.05
#: Gives the lease's address and this kernel's key pair; runs on the worker thread.
Reach = Callable[[], tuple[ConnectionView, KeyPair]]


@dataclass
class Attachment:
    """A companion that was opened; ``channels`` once the main thread has connected them."""

    view: ConnectionView
    control: ControlClient
    opened: CompanionOpened
    wire_keys: KeyPair
    channels: Channels | None = None

    def close(self) -> None:
        """Close every socket; the companion itself is the supervisor's."""
        if self.channels is not None:
            self.channels.close()
        self.control.close()


def open_in_thread(
    io: IOThread,
    inbox: Inbox,
    *,
    kernel_id: str,
    wire_keys: KeyPair,
    reach: Reach,
    on_push: Callable[[Push], None],
    early: Callable[[Push], None],
    patience: float = REACH_SECONDS,
) -> Future[Attachment]:
    """Reach the lease and open this kernel's companion on a worker thread.

    ``wire_keys`` are those of this process: another process of the same kernel id (a restart) has
    others, and the supervisor then gives it a new companion.
    """
    future: Future[Attachment] = Future()

    def work() -> None:
        try:
            view, keys = reach()
            control = ControlClient(io, inbox, view, keys, on_push, early=early)
            try:
                _answers(control, view, patience)
                opened = control.call(
                    "open", what_to_open(kernel_id, wire_keys.public), OPEN_SECONDS
                )
            except BaseException:
                control.close()
                raise
            future.set_result(Attachment(view, control, opened, wire_keys))
        except BaseException as error:  # noqa: BLE001 - carried to the main thread
            future.set_exception(error)
        inbox.put(lambda: None)  # whoever waits looks again

    threading.Thread(target=work, name="gpulease-open", daemon=True).start()
    return future


def _answers(control: ControlClient, view: ConnectionView, patience: float) -> None:
    """Find out whether anybody is there, before waiting for a companion to start.

    Raises:
        GPULeaseError: ``lease_unreachable`` after ``patience`` seconds.
    """
    try:
        control.call("ping", {}, patience)
    except GPULeaseError as error:
        if error.reason != "lease_unreachable":
            raise
        within = f" within {patience:.0f} s" if "seconds" in error.numbers else ""
        raise GPULeaseError(
            "lease_unreachable",
            f"Nobody answered at {view['address']}{within}.",
            next_step="Run it again; a companion of a connection file may have ended or be behind "
            "a firewall: start a new one there (gpulease companion --connection-file FILE).",
        ) from None


def what_to_open(kernel_id: str, wire_key: str) -> CompanionOpen:
    """Return what the companion must know of this process."""
    here = environment()
    return {
        "kernel_id": kernel_id,
        "protocol": PROTOCOL_VERSION,
        "version": __version__,
        "python": here["python"],
        "packages": here["packages"],
        "cwd": str(Path.cwd()),
        "path": list(sys.path),
        "environ": allowed_environment(os.environ),
        "hash_seed": os.environ.get("PYTHONHASHSEED", ""),
        "wire_key": wire_key,
        "executable": here["executable"],
    }


def connect_channels(
    attachment: Attachment, io: IOThread, inbox: Inbox, executor: Executor
) -> None:
    """On the main thread: connect the Jupyter channels and wait until the companion answers.

    Raises:
        GPULeaseError: ``companion_silent`` after ``READY_SECONDS``.
    """
    channels = Channels(
        io, inbox, attachment.opened["connection"], attachment.wire_keys, executor.deliver
    )
    attachment.channels = executor.channels = channels
    until_answered(executor)


def until_answered(executor: Executor) -> None:
    """Ask until an answer has come by both ways: by that of replies, and by that of output.

    The way of output opens a moment after the other.  Of a question that was answered before that
    nothing is seen there, and only the next one tells: so the first ones are not waited for long.

    Raises:
        GPULeaseError: ``companion_silent`` after ``READY_SECONDS``.
    """
    deadline = time.monotonic() + READY_SECONDS
    patience = FIRST_PATIENCE
    while executor.ask("kernel_info_request", {}, timeout=patience) is None:
        patience = min(2 * patience, 5.0)
        if time.monotonic() > deadline:
            raise GPULeaseError(
                "companion_silent",
                f"The companion did not answer within {READY_SECONDS:.0f} s.",
                next_step="Run the cell again.",
            )


START_SECONDS = 60.0


class LocalSupervisor:
    """A supervisor on this machine, child of the home kernel (``%gpu connect local``)."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._directory = process_folder()
        atexit.register(shutil.rmtree, self._directory, ignore_errors=True)
        atexit.register(self.stop)  # what is registered last is called first

    @property
    def pid(self) -> int | None:
        """The supervisor's process id while it runs."""
        alive = self._process is not None and self._process.poll() is None
        return self._process.pid if alive and self._process is not None else None

    def reach(self) -> tuple[ConnectionView, KeyPair]:
        """Start the supervisor if none runs, and return where it is (on a worker thread).

        Raises:
            GPULeaseError: ``companion_failed`` when it does not come up.
        """
        file = self._directory / "connection.json"
        if self.pid is None:
            file.unlink(missing_ok=True)
            self._start(file)
        deadline = time.monotonic() + START_SECONDS
        while not file.exists():
            if self.pid is None or time.monotonic() > deadline:
                raise self._failed()
            time.sleep(0.02)  # a file's appearance has no event that every file system tells
        return read_connection(file)

    def stop(self) -> None:
        """End the supervisor and what it started."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)

    def _start(self, file: Path) -> None:
        with (self._directory / "log").open("wb") as log:
            # A session of its own: an interrupt of this kernel's group is passed on by message.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "gpulease.companion", "--connection-file", str(file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=allowed_environment(os.environ),
                start_new_session=True,
            )

    def _failed(self) -> GPULeaseError:
        said = (self._directory / "log").read_text(errors="replace").strip()
        self.stop()
        last = said.splitlines()[-1] if said else "it said nothing"
        return GPULeaseError(
            "companion_failed",
            f"The companion on this machine did not start: {last}.",
            next_step="Try %gpu connect local again.",
            status=502,
        )


def read_connection(path: Path) -> tuple[ConnectionView, KeyPair]:
    """Read a connection file that ``gpulease companion`` wrote, with its client key pair.

    Raises:
        GPULeaseError: ``bad_connection_file`` when it is missing, readable by others or no such
            file.
    """
    try:
        if path.is_dir():
            raise _bad(path, "it is a directory")
        if path.stat().st_mode & 0o077:
            raise _bad(path, "others can read it, and it holds a key", f"Run: chmod 600 {path}")
        found = json.loads(path.read_text())
        keys = KeyPair(str(found["client_public_key"]), str(found["client_secret_key"]))
        view: ConnectionView = found
        _ = view["address"], view["server_key"], view["lease_id"]
    except OSError as error:
        raise _bad(path, error.strerror or "it cannot be read") from None
    except (ValueError, KeyError, TypeError):
        raise _bad(path, "it is not a connection file of gpulease companion") from None
    return view, keys


def _bad(path: Path, why: str, next_step: str = "") -> GPULeaseError:
    return GPULeaseError(
        "bad_connection_file",
        f"{path} cannot be used: {why}.",
        next_step=next_step
        or "Run gpulease companion --connection-file FILE on the machine with the GPU and name "
        "that file.",
    )
