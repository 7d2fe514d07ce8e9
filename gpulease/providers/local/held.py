"""What is known of one lease of this machine, and which processes are its own.

Two kinds of processes count.  *Proved* ones carry the lease's mark, or descend from one that does,
under the account of the lease's own notebook server: they are ended when the lease is over.
*Claimed* ones were only named by that server or by the supervisor, and the service may not look
into them: they are never ended, and hold the device while the driver says that they are on it.  A
process that it may look into is the lease's by its mark or not at all: whoever names one is a
student's program, and may name what belongs to somebody else, such as the hub's proxy where all
share one account.
"""

from __future__ import annotations

import logging
import os
import pwd
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from gpulease.policy.model import Lease
from gpulease.process_table import ProcessRow
from gpulease.providers.base import SupervisorReport
from gpulease.providers.local import processes
from gpulease.providers.local.processes import Process

log = logging.getLogger(__name__)


@dataclass
class Held:
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
        found = (process for pid in pids if (process := processes.find(pid)) is not None)
        self.named += [each for each in found if processes.is_hidden(each)]

    def look(self, marked: Iterable[Process], table: Mapping[int, ProcessRow]) -> None:
        """Find the lease's processes anew; those that were found once stay until they end.

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
        own = processes.of_account(found, self.owner)
        return processes.of_account(own | processes.below(own, table), self.owner)

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
        return processes.kill(self.proved, self.owner)


def _account_named(user: str) -> int:
    """Return the account that servers of a hub with system users run under, else our own."""
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):  # ValueError: a name with a null character
        return os.geteuid()
