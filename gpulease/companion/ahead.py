"""Starting the process of a companion: the part that needs only the standard library.

A lease pod does this first of all, so that two processes import at once: this one what a
supervisor needs, that one what a kernel needs.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpulease.errors import GPULeaseError

MODULE = "gpulease.companion.kernel"


@dataclass(frozen=True)
class Spawned:
    """A process of ``gpulease.companion.kernel`` that imports and then waits.

    Attributes:
        line: our end of its private line.
        environ: what it was started with, as is ``directory``.
    """

    process: subprocess.Popen[bytes]
    line: socket.socket
    executable: str
    environ: Mapping[str, str]
    directory: Path


def spawn(executable: str, environ: Mapping[str, str], directory: Path) -> Spawned:
    """Start a process; returns before it has imported anything.

    Raises:
        GPULeaseError: ``companion_failed``.
    """
    mine, theirs = socket.socketpair()
    try:
        process = subprocess.Popen(
            [executable, "-P", "-m", MODULE, "--link", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=dict(environ),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        mine.close()
        raise GPULeaseError(
            "companion_failed", f"The companion could not be started: {error}.", status=500
        ) from error
    finally:
        theirs.close()
    return Spawned(process, mine, executable, environ, directory)
