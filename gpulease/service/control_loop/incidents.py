"""What went wrong around leases and an admin should know of, also after a restart of the service.

Incidents stand in the audit; nothing is stored beside it.  A new service reads from there: pools
that others take from, leases that were adopted, homes that would not attach.  A lease that runs and
is not in the ledger is an orphan: it is looked up in the store, else adopted
(``policy.lifecycle`` says what becomes of it).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from gpulease.policy import reasons
from gpulease.policy.explanation import catalogue
from gpulease.policy.explanation.catalogue import audited
from gpulease.policy.lifecycle import table
from gpulease.policy.model import Alert, Lease, LeaseState, Observed, PolicyDocument
from gpulease.policy.reclaim.preemption_targets import TAKEN_HOLD
from gpulease.providers.base import Provider
from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.hubs.auth import Asker
from gpulease.service.schemas.shapes import ChangeView, IncidentView
from gpulease.store import AuditRecord, Change, history
from gpulease.texts import Text

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
            lease = table.adopted(seen, known, now)
            if lease is not None:
                changes.append(Change(known, lease, self._who, "adopted"))
        return changes

    def adopted(self, lease: Lease) -> None:
        """Note an adoption that was recorded."""
        self._adopted[lease.id] = table.adoption_alert(lease)

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


#: Taken by others, run unknown to the database, a home that would not attach.
WHYS: Final = ("capacity_taken", "adopted", "volume_failed")
_STARTED: Final = "connected"


class Incidents:
    """The incidents of the audit."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def page(self, offset: int, limit: int) -> tuple[list[IncidentView], int]:
        """Return incidents newest first, and how many there are altogether."""
        rows, total = await self._ledger.read(history.incidents, WHYS, offset=offset, limit=limit)
        return [_view(row) for row in rows], total

    async def changes(self, words: str, offset: int, limit: int) -> tuple[list[ChangeView], int]:
        """Return the audit's changes that have every word, newest first, and their number."""
        rows, total = await self._ledger.read(
            history.changes, words.split(), offset=offset, limit=limit
        )
        return [_change(row) for row in rows], total

    async def recall(
        self,
        policy: PolicyDocument,
        contended: ContendedCapacity,
        orphans: Orphans,
        provider: Provider,
        now: datetime,
    ) -> None:
        """Let the parts of a new service know what the one before it had seen.

        Raises:
            GPULeaseError: the store cannot be read.
        """
        pools = {each.name: each.pool for each in policy.classes}
        since = now - timedelta(seconds=TAKEN_HOLD)
        for row in await self._since(("capacity_taken", _STARTED), since):
            if row.source == LeaseState.STARTING.value and row.gpu_class in pools:
                contended.recall(pools[row.gpu_class], row.at, taken=row.why == "capacity_taken")
        oldest = min((lease.created for lease in self._ledger.live()), default=now)
        adopted = {row.lease_id for row in await self._since(("adopted",), oldest)}
        for lease in self._ledger.live():
            if lease.id in adopted:
                orphans.adopted(lease)
        kept = now - timedelta(seconds=provider.home_memory)
        for row in await self._since(("volume_failed",), kept):
            provider.recall_home(row.user, row.note or row.why, row.at)

    async def _since(self, whys: Sequence[str], since: datetime) -> list[AuditRecord]:
        """Return what was recorded from then on, oldest first."""
        rows, _ = await self._ledger.read(history.incidents, whys, since=since, limit=None)
        return rows[::-1]


def note_for(asker: Asker, source: str, target: str, note: str) -> str:
    """Return a change's note as this asker reads it.

    Why a start failed is told in the provider's own words, with names of nodes and volumes: those
    go to admins alone.
    """
    failed = source == LeaseState.STARTING.value and target == LeaseState.QUEUED.value
    return "" if failed and not asker.admin else note


def _change(row: AuditRecord) -> ChangeView:
    return {
        "at": row.at.isoformat(),
        "who": row.who,
        "why": row.why,
        "sentence": audited(row.why),
        "user": row.user,
        "lease": row.lease_id,
        "gpu_class": row.gpu_class,
        "source": row.source or "",
        "target": row.target,
        "note": row.note,
    }


def _view(row: AuditRecord) -> IncidentView:
    sentence, _ = catalogue.ALERTS.get(row.why) or reasons.WAITING[row.why]
    return {
        "at": row.at.isoformat(),
        "who": row.who,
        "why": row.why,
        "sentence": Text(sentence),
        "user": row.user,
        "lease": row.lease_id,
        "gpu_class": row.gpu_class,
        "note": row.note,
    }
