"""Finds and ends the processes of leases on this machine.

A process belongs to a lease when its environment carries the lease's mark or when it descends from
one that does, and when it runs under the account of the lease's own notebook server.  A process is
always its id *and* its start time, so that a reused id is never taken for it.
"""

from __future__ import annotations

import logging
import os
import signal
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from gpulease.process_table import ProcessRow, descendants, environment_marks, row_of
from gpulease.protocol import ENV_LEASE

log = logging.getLogger(__name__)

_PROC = Path("/proc")


class Process(NamedTuple):
    """One process: its id and when it started (clock ticks after boot)."""

    pid: int
    started: int


def find(pid: int) -> Process | None:
    """Return the live process with this id; ``None`` when there is none or it is a zombie."""
    row = row_of(pid)
    return Process(pid, row.start) if row is not None and row.alive else None


def account_of(pid: int) -> int | None:
    """Return the user id that a process runs under.

    ``None`` when it is gone, and when its ids differ: then it is a program that was given the
    rights of another account (``su``, ``ping``), and that account's to end.
    """
    try:
        text = (_PROC / str(pid) / "status").read_text()
    except OSError:
        return None
    line = next(line for line in text.splitlines() if line.startswith("Uid:"))
    ids = {int(each) for each in line.split()[1:]}
    return ids.pop() if len(ids) == 1 else None


def spared() -> frozenset[int]:
    """Return the ids that are never a lease's: this process, its ancestors, and the first one."""
    found, pid = {1}, os.getpid()
    while pid > 0 and pid not in found:
        found.add(pid)
        row = row_of(pid)
        pid = row.parent if row is not None else 0
    return frozenset(found)


def alive(process: Process) -> bool:
    """Tell whether this very process still runs."""
    return find(process.pid) == process


def is_hidden(process: Process) -> bool:
    """Tell whether the service may not read the environment of a process, and so not its mark."""
    try:
        (_PROC / str(process.pid) / "environ").open("rb").close()
    except PermissionError:
        return True
    except OSError:  # it is gone
        return False
    return False


def marked() -> dict[str, set[Process]]:
    """Return the processes of each lease by the mark in their environment.

    Processes of other users cannot be read and are left out.
    """
    found: dict[str, set[Process]] = defaultdict(set)
    for pid, lease in environment_marks(ENV_LEASE):
        process = find(pid) if lease else None
        if process is not None:
            found[lease].add(process)
    return found


def below(roots: Iterable[Process], table: Mapping[int, ProcessRow]) -> set[Process]:
    """Return the living descendants of processes, from a process table."""
    rows = (table[pid] for pid in descendants((root.pid for root in roots), table))
    return {Process(row.pid, row.start) for row in rows if row.alive}


def of_account(processes: Iterable[Process], account: int) -> set[Process]:
    """Return those that live, run under this account and may be a lease's at all."""
    never = spared()
    return {
        process
        for process in processes
        if process.pid not in never and alive(process) and account_of(process.pid) == account
    }


def kill(processes: Iterable[Process], account: int) -> int:
    """Send SIGKILL to those that are still these very processes and of this account.

    Returns how many could be told.  Each is looked at anew, held by a descriptor that no other
    process can take the place of.
    """
    never = spared()
    return sum(_kill(process, account) for process in processes if process.pid not in never)


def _kill(process: Process, account: int) -> bool:
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        # The id was reused, or the process became another account's, before it was held.
        if not alive(process) or account_of(process.pid) != account:
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except OSError as error:
        log.warning("process %d cannot be ended: %s", process.pid, error)
        return False
    finally:
        os.close(descriptor)
    return True
