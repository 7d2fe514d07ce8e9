"""Starts a program so that it can be ended with everything it started.

This process becomes the subreaper of the demo's processes: a process that loses its parent becomes
our child, even in a session of its own.  Linux only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from gpulease.companion import tree


def start(
    command: Sequence[str], *, environment: Mapping[str, str], directory: Path, output: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own; it is asked to end if we die first.

    Call it from the main thread: the system takes the death of the *thread* for ours.
    """
    parent = os.getpid()

    def in_child() -> None:
        tree.die_with_parent(signal.SIGTERM)
        if os.getppid() != parent:  # we died between fork and prctl
            os.kill(os.getpid(), signal.SIGTERM)

    return subprocess.Popen(
        list(command),
        env=dict(environment),
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=in_child,  # noqa: PLW1509  # one prctl call, no thread runs yet
    )


def end(process: subprocess.Popen[bytes], *, grace: float) -> None:
    """Ask the program to end, wait ``grace`` seconds, then end every descendant that is left."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    sweep(grace=5.0)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5.0)


def sweep(*, grace: float) -> set[int]:
    """End every descendant of this process, asking first; return those that are left."""
    left: set[int] = set()
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0), (signal.SIGKILL, 5.0)):
        tree.signal_all(tree.lease_processes((), os.getpid()), number)
        until = time.monotonic() + seconds
        while left := tree.lease_processes((), os.getpid()):
            tree.reap_orphans()
            if time.monotonic() > until:
                break
            time.sleep(0.02)  # no event tells that a process which is no child has ended
    return left
