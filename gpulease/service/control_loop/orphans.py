"""What runs and is not in the service's picture: looked up in the store, else adopted.

Owns which of the leases that a provider shows are orphans, and the alerts about those that were
adopted.  Refuses to decide what becomes of one: ``policy.adoption`` does.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime

from gpulease.policy.lifecycle import adoption
from gpulease.policy.model import Alert, Lease, LeaseState, Observed
from gpulease.service.control_loop.ledger import Ledger
from gpulease.store import Change

log = logging.getLogger(__name__)


class Orphans:
    """Looks at what the provider shows and nobody here knows."""

    def __init__(self, ledger: Ledger, who: str) -> None:
        self._ledger = ledger
        self._who = who
        self._adopted: dict[str, Alert] = {}
        self._looked_up: set[tuple[str, int]] = set()  # leases and attempts the store lacks

    async def look(self, observed: Mapping[str, Observed], now: datetime) -> list[Change]:
        """Return the adoptions to record; leases that the store knows come into the picture.

        Raises:
            GPULeaseError: the store cannot be read.
        """
        changes = []
        # Forgotten once it is not shown any more; until then the store is asked about it once.
        self._looked_up &= {(seen.lease_id, seen.attempt) for seen in observed.values()}
        for seen in observed.values():
            known = self._ledger.leases.get(seen.lease_id)
            if known is None and (seen.lease_id, seen.attempt) not in self._looked_up:
                known = await self._ledger.call(self._ledger.store.lease, seen.lease_id)
                if known is not None:  # over for so long that it was forgotten, but not gone
                    self._ledger.add(known)
                else:
                    self._looked_up.add((seen.lease_id, seen.attempt))
            lease = adoption.adopted(seen, known, now)
            if lease is not None:
                changes.append(Change(known, lease, self._who, "adopted"))
        return changes

    def adopted(self, lease: Lease) -> None:
        """Note an adoption that was recorded."""
        self._adopted[lease.id] = adoption.alert(lease)

    def alerts(self) -> list[Alert]:
        """Return an alert for each adopted lease that has not ended."""
        live = {
            lease_id: alert
            for lease_id, alert in self._adopted.items()
            if (lease := self._ledger.leases.get(lease_id)) is not None
            and lease.state is not LeaseState.ENDED
        }
        self._adopted = live
        return list(live.values())


class ContendedCapacity:
    """When others took, in each pool, what had been granted; a start that succeeds ends the row."""

    def __init__(self) -> None:
        self._times: dict[str, tuple[datetime, ...]] = {}

    def moved(self, change: Change, pool: str, now: datetime) -> bool:
        """Note a recorded change of a lease of this pool; say whether others took a device."""
        before, after = change.before, change.after
        if before is None or before.state is not LeaseState.STARTING:
            return False
        taken = after.state is LeaseState.QUEUED and after.reason == "capacity_taken"
        if taken or after.state is LeaseState.ACTIVE:
            self.recall(pool, now, taken=taken)
        return taken

    def recall(self, pool: str, at: datetime, *, taken: bool) -> None:
        """Note that a start in this pool found its device taken, or succeeded; oldest first."""
        if taken:
            self._times[pool] = (*self._times.get(pool, ()), at)
        else:
            self._times.pop(pool, None)

    @property
    def times(self) -> Mapping[str, tuple[datetime, ...]]:
        """When capacity of each pool was taken by others, since its last good start."""
        return dict(self._times)
