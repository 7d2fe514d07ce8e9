"""The processes of leases on this machine: whose they are, and how they end.

A process is always its id *and* its start time, so that a reused id is never taken for it.  Two
kinds count.  *Proved* ones carry the lease's mark in their environment, or descend from one that
does, under the account of the lease's own notebook server: they are ended when the lease is over.
*Claimed* ones were only named by that server or by the supervisor, and the service may not look
into them: they are never ended, and hold the device while the driver says that they are on it.  A
process that it may look into is the lease's by its mark or not at all: the one that names it is a
student's program, and may name what belongs to somebody else, such as the hub's proxy where all
share one account.
"""

from __future__ import annotations

import logging
import os
import pwd
import signal
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from gpulease.policy.model import Lease
from gpulease.protocol.names import ENV_LEASE
from gpulease.providers.base import SupervisorReport
from gpulease.system.process_table import ProcessRow, descendants, environment_marks, row_of

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


@dataclass
class HeldLease:
    """One lease that holds devices, or of which something still runs."""

    lease: Lease
    ran: bool = False  # something of this attempt was seen
    shown_at: float = 0.0  # when something of it was seen last
    stopping_since: float | None = None
    report: SupervisorReport | None = None
    account: int | None = None  # of its notebook server, as the kernel says
    proved: set[Process] = field(default_factory=set)
    claimed: set[Process] = field(default_factory=set)
    named: list[Process] = field(default_factory=list)  # what was said since the last look
    told: bool = False  # an admin was told that it cannot be ended

    def belongs_to(self, account: int | None) -> None:
        """Learn the account of the lease's server; the first one that is known counts."""
        if account is None or self.account == account:
            return
        if self.account is not None:
            log.warning(
                "account %d speaks for a lease of account %d and is not believed",
                account, self.account, extra={"lease": self.lease.id, "user": self.lease.user},
            )  # fmt: skip
            return
        self.account = account

    @property
    def owner(self) -> int:
        """The account whose processes may be the lease's."""
        return self.account if self.account is not None else _account_named(self.lease.user)

    def claim(self, pids: Iterable[int]) -> None:
        """Take the word of the lease's own server or supervisor; the next look examines it."""
        found = (process for pid in pids if (process := find(pid)) is not None)
        self.named += [each for each in found if is_hidden(each)]

    def look(self, marked: Iterable[Process], table: Mapping[int, ProcessRow]) -> None:
        """Look for the lease's processes again; those that were found once stay until they end.

        A process whose parent ended, or that took the mark out of its environment, is still the
        very one that was proved before.
        """
        named, self.named = self.named, []
        self.proved = self._with_descendants(self.proved.union(marked), table)
        claimed = self._with_descendants(self.claimed.union(named), table)
        self.claimed = claimed - self.proved

    def _with_descendants(
        self, found: set[Process], table: Mapping[int, ProcessRow]
    ) -> set[Process]:
        if not found:
            return set()
        own = of_account(found, self.owner)
        return of_account(own | below(own, table), self.owner)

    def holding(self, shown: Collection[int] | None) -> set[Process]:
        """Return the processes that show that something of the lease is left.

        A claimed process of the service's own account is hidden by a sandbox or by itself, and
        may be anybody's.  One of the server's account is at least the same person's: it counts as
        a sign of life until the lease is stopped, and where the driver does not tell.

        Args:
            shown: ids on the lease's devices as the driver says, ``None`` where it does not tell.
        """
        if self.owner != os.geteuid() and (self.stopping_since is None or shown is None):
            return self.proved | self.claimed
        return self.proved | {each for each in self.claimed if each.pid in (shown or ())}

    def end(self) -> int:
        """Send SIGKILL to the proved processes; return to how many."""
        return kill(self.proved, self.owner)


def _account_named(user: str) -> int:
    """Return the account that servers of a hub with system users run under, else our own."""
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):  # ValueError: a name with a null character
        return os.geteuid()
