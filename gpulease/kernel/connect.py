"""``%gpu connect TARGET``: a lease without a hub.

``%gpu connect local`` starts a supervisor as this kernel's child; any other target is a connection
file that ``gpulease companion`` wrote.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from gpulease.channel.keys import KeyPair
from gpulease.errors import GPULeaseError
from gpulease.private_files import process_folder
from gpulease.protocol.service import ConnectionView
from gpulease.sides.environment import allowed_environment

START_SECONDS = 60.0


class LocalSupervisor:
    """A supervisor on this machine, child of the home kernel, ended with it."""

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
    """Read a connection file with its client key pair.

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
