"""What went wrong around leases and an admin should know of, also after a restart of the service.

Owns which recorded changes are incidents and what a new service takes from them: pools that others
take from, leases that were adopted, homes that would not attach.  They stand in the audit; nothing
is stored beside it.  Refuses to decide what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from gpulease.policy.explanation import admin_words, reasons
from gpulease.policy.explanation.audited import audited
from gpulease.policy.model import LeaseState, PolicyDocument
from gpulease.policy.reclaim import TAKEN_HOLD
from gpulease.providers.base import Provider
from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.control_loop.orphans import ContendedCapacity, Orphans
from gpulease.service.hubs.auth import Asker
from gpulease.service.schemas.shapes import ChangeView, IncidentView
from gpulease.store import AuditRecord
from gpulease.texts import Text

#: Taken by others, run unknown to the database, a home that would not attach.
WHYS: Final = ("capacity_taken", "adopted", "volume_failed")
_STARTED: Final = "connected"


class Incidents:
    """The incidents of the audit."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def page(self, offset: int, limit: int) -> tuple[list[IncidentView], int]:
        """Return incidents newest first, and how many there are altogether."""
        store = self._ledger.store
        rows, total = await self._ledger.call(store.incidents, WHYS, offset=offset, limit=limit)
        return [_view(row) for row in rows], total

    async def changes(self, words: str, offset: int, limit: int) -> tuple[list[ChangeView], int]:
        """Return the audit's changes that have every word, newest first, and their number."""
        store = self._ledger.store
        rows, total = await self._ledger.call(
            store.changes, words.split(), offset=offset, limit=limit
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
        store = self._ledger.store
        rows, _ = await self._ledger.call(store.incidents, whys, since=since, limit=None)
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
    sentence, _ = admin_words.ALERTS.get(row.why) or reasons.WAITING[row.why]
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
