"""Leases that are no longer in memory, and what happened to each.

Owns who may read which part of the store's history.  Refuses to change anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.reservation import Window
from gpulease.policy.model import Lease, LeaseState
from gpulease.policy.reservations.attendance import Attendance, attendance
from gpulease.service.control_loop.incidents import note_for
from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.control_loop.minutes import share
from gpulease.service.control_loop.plans import event_view
from gpulease.service.hubs.auth import Asker
from gpulease.service.leases.commands import LeaseCommands
from gpulease.service.schemas.shapes import LeaseEvent

#: Who was asked for so long before a window may still have been in it.
_LONGEST_LEASE = timedelta(days=7)


class History:
    """Pages of leases, for those who may see them."""

    def __init__(self, ledger: Ledger, commands: LeaseCommands) -> None:
        self._ledger = ledger
        self._commands = commands

    async def page(
        self, asker: Asker, *, state: str, mine: bool, offset: int, limit: int
    ) -> tuple[list[Lease], int]:
        """Return leases newest first, and how many there are altogether."""
        everybody = not mine and (asker.admin or asker.leads_all)
        if state == "live":  # all of them are in memory, and every page and notebook asks
            found = self._live(asker, everybody=everybody, mine=mine)
            found.sort(key=lambda lease: (lease.created, lease.id), reverse=True)
            return found[offset : offset + limit], len(found)
        store = self._ledger.store
        return await self._ledger.call(
            store.leases_at,
            users=None if everybody else [asker.name],
            groups=None if everybody else [] if mine else list(asker.leads),
            states=_states(state),
            offset=offset,
            limit=limit,
        )

    def _live(self, asker: Asker, *, everybody: bool, mine: bool) -> list[Lease]:
        if everybody:
            return list(self._ledger.live())
        if mine or not asker.leads:
            return list(self._ledger.live_of(asker.name))
        return [x for x in self._ledger.live() if asker.may_see(x.user, x.groups)]

    async def busy_shares(self, leases: Sequence[Lease]) -> dict[str, float | None]:
        """Return the busy share, 0 to 1, of those leases that are not in memory any more."""
        old = [lease.id for lease in leases if lease.id not in self._ledger.leases]
        if not old:
            return {}
        found = await self._ledger.call(self._ledger.store.busy_seconds, old)
        return {lease_id: share(*found.get(lease_id, (0.0, 0.0))) for lease_id in old}

    async def attendance(self, windows: Sequence[Window], now: datetime) -> list[Attendance]:
        """Return who came to these windows of one reservation that have begun."""
        begun = [window for window in windows if window.start <= now]
        if not begun:
            return []
        oldest = min(window.start for window in begun) - _LONGEST_LEASE
        of = begun[0].of
        leases: list[Lease] = []
        before: str | None = None
        while True:
            page = await self._ledger.call(
                self._ledger.store.leases,
                users=list(of.named),
                groups=[of.group],
                before=before,
                limit=500,
            )
            leases += page.leases
            before = page.next
            if before is None or page.leases[-1].created < oldest:
                break
        watched = await self._ledger.call(
            self._ledger.store.busy_seconds, [lease.id for lease in leases]
        )
        busy = {each: share(*seconds) or 0.0 for each, seconds in watched.items()}
        return attendance(begun, leases, busy, now)

    async def one(self, asker: Asker, lease_id: str) -> Lease:
        """Return one lease, however old.

        Raises:
            GPULeaseError: ``no_such_lease``.
        """
        if lease_id not in self._ledger.leases:
            found = await self._ledger.call(self._ledger.store.lease, lease_id)
            if found is not None and asker.may_see(found.user, found.groups):
                return found
        return self._commands.visible(asker, lease_id)

    async def events(self, asker: Asker, lease: Lease) -> list[LeaseEvent]:
        """Return what happened to a lease, oldest first."""
        rows = await self._ledger.call(self._ledger.store.transitions, lease.id)
        return [event_view(row, note_for(asker, row.source, row.target, row.note)) for row in rows]


def _states(state: str) -> tuple[LeaseState, ...] | None:
    if state in {"", "all"}:
        return None
    try:
        return (LeaseState(state),)
    except ValueError:
        raise GPULeaseError("invalid_query", f"There is no lease state {state!r}.") from None
