"""Leases that are no longer in memory, and what happened to each.

Owns who may read which part of the store's history.  Refuses to change anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.policy.model import Lease, LeaseState
from gpulease.service.auth import Asker
from gpulease.service.front import FrontDesk
from gpulease.service.incidents import note_for
from gpulease.service.ledger import Ledger
from gpulease.service.minutes import share

_LIVE = tuple(state for state in LeaseState if state is not LeaseState.ENDED)


class History:
    """Pages of leases, for those who may see them."""

    def __init__(self, ledger: Ledger, front: FrontDesk) -> None:
        self._ledger = ledger
        self._front = front

    async def page(
        self, asker: Asker, *, state: str, mine: bool, offset: int, limit: int
    ) -> tuple[list[Lease], int]:
        """Return leases newest first, and how many there are altogether."""
        everybody = not mine and (asker.admin or asker.leads_all)
        store = self._ledger.store
        return await self._ledger.call(
            store.leases_at,
            users=None if everybody else [asker.name],
            groups=None if everybody else [] if mine else list(asker.leads),
            states=_states(state),
            offset=offset,
            limit=limit,
        )

    async def busy_shares(self, leases: Sequence[Lease]) -> dict[str, float | None]:
        """Return the busy share, 0 to 1, of those leases that are not in memory any more."""
        old = [lease.id for lease in leases if lease.id not in self._ledger.leases]
        if not old:
            return {}
        found = await self._ledger.call(self._ledger.store.busy_seconds, old)
        return {lease_id: share(*found.get(lease_id, (0.0, 0.0))) for lease_id in old}

    async def one(self, asker: Asker, lease_id: str) -> Lease:
        """Return one lease, however old.

        Raises:
            GPULeaseError: ``no_such_lease``.
        """
        if lease_id not in self._ledger.leases:
            found = await self._ledger.call(self._ledger.store.lease, lease_id)
            if found is not None and asker.may_see(found.user, found.groups):
                return found
        return self._front.visible(asker, lease_id)

    async def events(self, asker: Asker, lease: Lease) -> list[dict[str, Any]]:
        """Return what happened to a lease, oldest first."""
        rows = await self._ledger.call(self._ledger.store.transitions, lease.id)
        return [
            {
                "at": row.at.isoformat(),
                "who": row.who,
                "why": row.why,
                "from": row.source,
                "to": row.target,
                "attempt": row.attempt,
                "note": note_for(asker, row.source, row.target, row.note),
                "version": row.version,
            }
            for row in rows
        ]


def _states(state: str) -> tuple[LeaseState, ...] | None:
    if state in {"", "all"}:
        return None
    if state == "live":
        return _LIVE
    try:
        return (LeaseState(state),)
    except ValueError:
        raise GPULeaseError("invalid_query", f"There is no lease state {state!r}.") from None
