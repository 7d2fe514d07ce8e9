"""The processes of a lease: found by mark and by descent, ended until none is left.

A lease is every process with its mark in the environment and every descendant of its supervisor:
kernels start sessions of their own, so process groups miss them, and a child that cleans its
environment is still a descendant.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from collections.abc import Collection, Iterable
from contextlib import suppress

from gpulease.protocol.names import ENV_LEASE
from gpulease.system.process_table import descendants, environment_marks, process_table

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL = 0.02


def marked(marks: Collection[str], name: str = ENV_LEASE) -> set[int]:
    """Return the pids whose environment carries one of ``marks`` under ``name``."""
    wanted = set(marks)
    return {pid for pid, mark in environment_marks(name) if mark in wanted}


def lease_processes(
    marks: Collection[str], root: int | None = None, spare: Collection[int] = ()
) -> set[int]:
    """Return the living processes of a lease: marked, or below ``root``; never ``spare``."""
    table = process_table()
    found = marked(marks) | (descendants([root], table) if root is not None else set())
    # A process below a marked one belongs to the lease even when it cleaned its environment.
    found |= descendants(found, table)
    alive = {pid for pid in found if pid in table and table[pid].alive}
    return alive - set(spare) - {os.getpid()}


def signal_all(pids: Iterable[int], number: int) -> None:
    """Send a signal to each; those that are gone meanwhile are passed over."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


async def end_tree(
    marks: Collection[str],
    root: int | None = None,
    *,
    spare: Collection[int] = (),
    grace: float = 1.0,
    limit: float = 15.0,
    reap: bool = True,
) -> set[int]:
    """End a lease's processes; return the pids that outlived ``limit`` seconds (normally none).

    SIGTERM first, SIGKILL after ``grace`` seconds, repeated until a scan finds nobody: a process
    may start another between two scans.  ``reap``: also collect the zombies of this process;
    not for a process whose children somebody else waits for.
    """
    begun = time.monotonic()
    asked: set[int] = set()
    while True:
        alive = lease_processes(marks, root, spare)
        if not alive:
            return set()
        waited = time.monotonic() - begun
        if waited > limit:
            return alive
        if waited >= grace:
            signal_all(alive, signal.SIGKILL)
        else:
            signal_all(alive - asked, signal.SIGTERM)
            asked |= alive
        await asyncio.sleep(_POLL)
        if reap:
            reap_orphans(spare_children=spare)


def reap_orphans(*, spare_children: Collection[int] = ()) -> None:
    """Collect zombies that were reparented to this process.

    ``spare_children``: pids that somebody else waits for (a ``Popen``).
    """
    me = os.getpid()
    for row in process_table().values():
        if row.parent == me and not row.alive and row.pid not in spare_children:
            with suppress(ChildProcessError):
                os.waitpid(row.pid, os.WNOHANG)


def become_subreaper() -> None:
    """Make orphans below this process its children, so that none escapes by forking twice."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Have the kernel end this process when the thread that started it ends."""
    _prctl(_PR_SET_PDEATHSIG, number)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
