"""The notebook servers behind the leases: which run, and which of their kernels ended.

Owns the watch on the hub: a server that is gone ends its lease, one that came up lets its request
count, whose groups changed waits with the new ones, and a busy lease's server is reported as active
so that the hub's culler leaves it alone.
When the hub gives no answer nothing is concluded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from gpulease.looking import keep_looking
from gpulease.policy import lifecycle
from gpulease.policy.model import Evidence, Lease, LeaseState, Verdict
from gpulease.protocol.reports import KernelReport
from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.control_loop.reconcile import Reconciler
from gpulease.service.hubs.api import HubServer, HubUnreachableError
from gpulease.service.hubs.hubs import Hubs
from gpulease.service.supervisors.supervisor_connections import SupervisorConnections
from gpulease.store import Change

log = logging.getLogger(__name__)

#: A request whose server never came up is withdrawn after this.
_START_MAX = timedelta(minutes=15)
_ACTIVITY_EVERY = timedelta(seconds=60)


class Servers:
    """Watches the servers of live leases.

    Args:
        every: seconds between two looks at the hub; a closed channel makes one at once.
    """

    def __init__(
        self,
        ledger: Ledger,
        loop: Reconciler,
        links: SupervisorConnections,
        hub: Hubs,
        *,
        every: float = 10.0,
    ) -> None:
        self._ledger = ledger
        self._loop = loop
        self._links = links
        self._hub = hub
        self._every = every
        self._joined: dict[tuple[str, str], int] = {}
        self._kernels: dict[tuple[str, str], set[str]] = {}
        self._reports: dict[tuple[str, str], Sequence[KernelReport]] = {}
        self._missed: dict[str, int] = {}  # lease -> looks in a row that found no server
        self._told: dict[tuple[str, str], datetime] = {}
        self._wanted = asyncio.Event()

    def joined(self, user: str, server: str) -> None:
        """Note that a server opened its channel: it runs."""
        key = (user, server)
        self._joined[key] = self._joined.get(key, 0) + 1
        self._wanted.set()

    def left(self, user: str, server: str) -> None:
        """Note that a server's channel closed: ask the hub soon whether it still runs."""
        key = (user, server)
        self._joined[key] = self._joined.get(key, 1) - 1
        if self._joined[key] <= 0:
            del self._joined[key]
            self._kernels.pop(key, None)
            self._reports.pop(key, None)
        self._wanted.set()

    def linked(self, user: str, server: str) -> bool:
        """Tell whether a server's channel is open."""
        return (user, server) in self._joined

    def kernels(self, user: str, server: str, reports: Sequence[KernelReport]) -> None:
        """Take a server's list of kernels; the keys of those that ended are withdrawn."""
        key = (user, server)
        alive = {report["id"] for report in reports}
        ended = self._kernels.get(key, set()) - alive
        self._kernels[key] = alive
        if _whose(reports) != _whose(self._reports.get(key, ())):
            self._loop.wake()  # a lease may have another notebook now
        self._reports[key] = reports
        for lease in self._ledger.live():
            if (lease.user, lease.server) == key:
                self._links.revoke(lease.id, ended)
                self.check_keys(lease)

    def notebook_of(self, lease: Lease) -> str:
        """Return the path of the notebook that a lease is for, ``""`` while none is known."""
        if lease.state in (LeaseState.QUEUED, LeaseState.ENDED) and lease.kernel_id is None:
            return ""
        for report in self._reports.get((lease.user, lease.server), ()):
            if lease.id in report.get("leases", ()) or report["id"] == lease.kernel_id:
                return report.get("notebook", "")
        return ""

    def check_keys(self, lease: Lease) -> None:
        """Withdraw the keys of kernels that ended while nobody looked, as far as they are known."""
        alive = self._kernels.get((lease.user, lease.server))
        if alive is not None:
            self._links.settle(lease.id, alive)

    async def run(self) -> None:
        """Look at the hub until cancelled."""
        await keep_looking(
            self.look, self._wanted, every=self._every, log=log,
            failed="the hub's servers are not watched", away=(HubUnreachableError,),
        )  # fmt: skip

    async def look(self) -> None:
        """Compare live leases with the hub's servers, once.

        Raises:
            HubUnreachableError: the hub did not answer.
            GPULeaseError: the store did not take a change.
        """
        live = self._ledger.live()
        users = {lease.user for lease in live}
        for lease_id in self._missed.keys() - {lease.id for lease in live}:
            del self._missed[lease_id]
        if not users:
            await self._hub.look()
            return
        asked_at = self._loop.clock()
        servers = await self._hub.running(users)
        async with self._ledger.lock:
            found = [
                self._compared(lease, servers[lease.user].get(lease.server))
                for lease in self._ledger.live()
                if lease.user in servers and lease.created <= asked_at
            ]
            await self._loop.change([change for change in found if change is not None])
        await self._refresh()

    def _compared(self, lease: Lease, server: HubServer | None) -> Change | None:
        """Return what a server's state changes of its lease."""
        now = self._loop.clock()
        active = server is not None and server.active
        self._missed[lease.id] = 0 if active else self._missed.get(lease.id, 0) + 1
        # A server that still holds its channel lives: one look at a hub that starts may be wrong.
        doubtful = self.linked(lease.user, lease.server) and self._missed[lease.id] < 2
        if lease.server_ready and not active and doubtful:
            return None
        if lease.server_ready and not active:
            after, why = lifecycle.server_gone(lease, now), "server_gone"
        elif not lease.server_ready and server is not None and server.ready:
            after, why = lifecycle.server_ready(lease, ready=True), "server_ready"
        elif not lease.server_ready and not active and now - lease.created > _START_MAX:
            after, why = lifecycle.server_gone(lease, now), "server_gone"
        else:
            groups = self._hub.groups_of(lease.user)
            after = lease if groups is None else lifecycle.regroup(lease, groups)
            why = "groups_changed"
        return Change(lease, after, "hub", why) if after != lease else None

    async def _refresh(self) -> None:
        """Report the servers of busy leases as active, as long as policy lets a lease be busy."""
        now = self._loop.clock()
        self._told = {key: at for key, at in self._told.items() if now - at < _ACTIVITY_EVERY}
        policy, evidence = self._loop.policy, self._loop.observed_state.evidence
        due = set()
        for lease in self._ledger.live():
            since = _busy_since(evidence.get(lease.id))
            cap = lifecycle.time_outs_of(policy, lease).busy_max
            if since is None or not _within(since, now, cap) or lease.state is LeaseState.QUEUED:
                continue
            due.add((lease.user, lease.server))
        answers = await asyncio.gather(
            *(self._tell(key, now) for key in sorted(due - self._told.keys())),
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    async def _tell(self, key: tuple[str, str], now: datetime) -> None:
        """Report one server; what the hub did not take is reported with the next look."""
        await self._hub.refresh_activity(*key, now)
        self._told[key] = now


def _whose(reports: Sequence[KernelReport]) -> list[tuple[str, str, list[str]]]:
    return [(each["id"], each.get("notebook", ""), each.get("leases", [])) for each in reports]


def _busy_since(evidence: Evidence | None) -> datetime | None:
    """Return since when a lease is busy without interruption, ``None`` when it is not."""
    busy = evidence is not None and evidence.verdict is Verdict.BUSY
    return evidence.since if busy and evidence else None


def _within(since: datetime, now: datetime, seconds: float) -> bool:
    """Tell whether ``now`` is less than ``seconds`` after ``since``."""
    return now - since < timedelta(seconds=seconds)
