"""Starts a program so that it can be ended with everything it started.

This process becomes the subreaper of the demo's processes: a process that loses its parent becomes
our child, even in a session of its own.  Linux only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Have orphans among our descendants become our children.

    Raises:
        OSError: the system refused.
    """
    if _prctl(_PR_SET_CHILD_SUBREAPER, 1) != 0:
        raise OSError(ctypes.get_errno(), "cannot become a subreaper")


def start(
    command: Sequence[str], *, environment: Mapping[str, str], directory: Path, output: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own; it is asked to end if we die first.

    Call it from the main thread: the system takes the death of the *thread* for ours.
    """
    parent = os.getpid()
    prctl = _prctl  # resolved before the fork

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
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


def end(process: subprocess.Popen[bytes], *, grace: float) -> int:
    """Ask the program to end, wait ``grace`` seconds, then end every descendant that is left.

    Returns how many had to be ended beyond the program itself.
    """
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    ended = sweep(grace=5.0)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5.0)
    return ended


def sweep(*, grace: float) -> int:
    """End every descendant of this process, asking first; return how many there were."""
    seen: set[int] = set()
    for ask, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0), (signal.SIGKILL, 5.0)):
        alive = descendants()
        if not alive:
            break
        seen.update(process.pid for process in alive)
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(ask)
        psutil.wait_procs(alive, timeout=seconds)
        _reap()
    return len(seen)


def descendants() -> list[psutil.Process]:
    """Return our living descendants; the dead that nobody has fetched do not count."""
    found = psutil.Process().children(recursive=True)
    return [process for process in found if _lives(process)]


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _reap() -> None:
    """Fetch the dead that were given to us as their subreaper."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _prctl(option: int, value: int) -> int:
    assert _LIBC is not None, "Linux only"
    return int(_LIBC.prctl(option, value, 0, 0, 0))


_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
