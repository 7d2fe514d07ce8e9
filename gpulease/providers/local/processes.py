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
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from gpulease.protocol import ENV_LEASE

log = logging.getLogger(__name__)

_PROC = Path("/proc")
_MARK = f"{ENV_LEASE}=".encode()


class Process(NamedTuple):
    """One process: its id and when it started (clock ticks after boot)."""

    pid: int
    started: int


def find(pid: int) -> Process | None:
    """Return the live process with this id; ``None`` when there is none or it is a zombie."""
    found = _stat(pid)
    return found[0] if found is not None else None


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
        stat = _stat(pid)
        pid = stat[1] if stat is not None else 0
    return frozenset(found)


def alive(process: Process) -> bool:
    """Tell whether this very process still runs."""
    return find(process.pid) == process


def marked() -> dict[str, set[Process]]:
    """Return the processes of each lease by the mark in their environment.

    Processes of other users cannot be read and are left out.
    """
    found: dict[str, set[Process]] = defaultdict(set)
    for entry in os.listdir(_PROC):  # noqa: PTH208 (a Path for each process is four times slower)
        if entry.isdigit():
            lease = _mark_of(entry)
            process = find(int(entry)) if lease else None
            if process is not None:
                found[lease].add(process)
    return found


def children() -> Mapping[int, Collection[Process]]:
    """Return the children of every process of this machine that has some, by its id."""
    found: dict[int, list[Process]] = defaultdict(list)
    for entry in os.listdir(_PROC):  # noqa: PTH208
        if entry.isdigit():
            stat = _stat(int(entry))
            if stat is not None:
                found[stat[1]].append(stat[0])
    return found


def below(roots: Iterable[Process], table: Mapping[int, Collection[Process]]) -> set[Process]:
    """Return the descendants of processes, from a table of ``children``."""
    found: set[Process] = set()
    todo = list(roots)
    while todo:
        for child in table.get(todo.pop().pid, ()):
            if child not in found:
                found.add(child)
                todo.append(child)
    return found


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


def _stat(pid: int) -> tuple[Process, int] | None:
    """Return a live process and the id of its parent."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The command's name stands in parentheses and may itself hold spaces and parentheses.
    fields = stat[stat.rindex(")") + 2 :].split()
    if fields[0] in {"Z", "X"}:
        return None
    return Process(pid, int(fields[19])), int(fields[1])


def _mark_of(pid: str) -> str:
    try:
        environment = (_PROC / pid / "environ").read_bytes()
    except OSError:  # gone meanwhile, or another user's
        return ""
    if _MARK not in environment:
        return ""
    for variable in environment.split(b"\0"):
        if variable.startswith(_MARK):
            # A process that was started ahead carries a mark padded with blanks until it is used.
            return variable[len(_MARK) :].decode(errors="replace").strip()
    return ""


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
