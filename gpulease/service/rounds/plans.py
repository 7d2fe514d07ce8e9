"""Plans that changed something, with what they were made from: packed to be kept, and read again.

Owns when a whole snapshot is kept and when the difference to the plan before.  Refuses to say what
counted for whom (``policy.explanation.decision``) and for how long plans are kept (``store``).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from gpulease.policy.explanation.decision import Decision, decision
from gpulease.policy.model import Action, Alert, Snapshot
from gpulease.service.rounds.ledger import Ledger
from gpulease.service.schemas.queries import PageQuery
from gpulease.service.schemas.shapes import DecisionView, LeaseEvent
from gpulease.service.workers import Workers
from gpulease.store import (
    KeptPlan,
    PlanRecord,
    TransitionRecord,
    read_last_snapshot,
    snapshots,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Packed:
    """A plan to be kept, and what the next one is compared with once it is."""

    plan: KeptPlan
    snapshot: Snapshot


class Plans:
    """Packs plans, one after the other; nobody waits for it but the planner's thread."""

    def __init__(self) -> None:
        self._before: Snapshot | None = None
        self._whole = 0  # bytes of the last whole snapshot
        self._since = 0  # and of the differences to it

    def packed(self, snapshot: Snapshot, actions: Sequence[Action]) -> Packed | None:
        """Return a plan as it is kept, ``None`` where there is nothing to keep.

        Differences are followed by a whole snapshot when together they are as large: so reading one
        plan costs no more than two whole ones, and keeping them no more than twice the differences.
        """
        if all(isinstance(each, Alert) for each in actions):
            return None
        before = self._before if self._since < self._whole else None
        try:
            body = snapshots.packed(before, snapshot, actions)
        except Exception:  # what is decided counts; that it can be told afterwards does not
            log.exception("a plan could not be packed; it is carried out and not kept")
            self._before = None
            return None
        # Without what was worked out of it for this plan, which is more than itself.
        return Packed(KeptPlan(body, whole=before is None), replace(snapshot))

    def kept(self, packed: Packed) -> None:
        """Note that it is stored: the next one is compared with it."""
        size = len(packed.plan.body)
        if packed.plan.whole:
            self._whole, self._since = size, 0
        else:
            self._since += size
        self._before = packed.snapshot


def last_spread(address: str) -> tuple[float, float] | None:
    """Return how far waits ended from what was expected, as the newest plan that is kept knew it.

    None where there is no such plan, or one that another version kept: then it is learnt anew.
    """
    try:
        snapshot = read_last_snapshot(address)
    except Exception:
        # Whatever another version wrote there: the service starts without it.
        log.warning("the last plan cannot be read: expected times have no interval for now")
        log.debug("why", exc_info=True)
        return None
    return snapshot.wait_spread if snapshot is not None else None


async def decisions(
    ledger: Ledger, workers: Workers, whose: str, lease_id: str, query: PageQuery
) -> tuple[list[DecisionView], int]:
    """Return what was decided about a lease, newest first, and how many decisions there are.

    ``whose``: the name of the person who asks.

    Raises:
        GPULeaseError: the store cannot be read.
    """
    rows = (await ledger.call(ledger.store.transitions, lease_id))[::-1]
    some = rows[query.offset : query.offset + query.limit]
    wanted = {row.plan for row in some if row.plan is not None}
    records = await ledger.call(ledger.store.kept_plans, wanted)
    # Reading takes long where snapshots are large: not the store's time, nor the loop's.
    found = await workers.thread(whose, _read, records, wanted, lease_id)
    return [_view(row, found.get(row.plan or 0)) for row in some], len(rows)


def _read(
    records: Sequence[PlanRecord], wanted: Collection[int], lease_id: str
) -> dict[int, tuple[PlanRecord, Decision | None]]:
    reader, found = snapshots.Reader(), {}
    for record in records:
        reader.read(record.body, whole=record.whole)
        if record.id in wanted:
            kept = reader.kept
            found[record.id] = record, decision(kept.snapshot, kept.actions, lease_id)
    return found


def _view(row: TransitionRecord, known: tuple[PlanRecord, Decision | None] | None) -> DecisionView:
    record, made = known or (None, None)
    # A number is given again where every plan was gone: then the instants differ.
    kept = made if record is not None and record.at == row.at else None
    return {
        **event_view(row, row.note),
        "planned": row.plan is not None,
        "inputs": list(kept.words) if kept is not None else [],
        "numbers": kept.numbers if kept is not None else {},
    }


def event_view(row: TransitionRecord, note: str) -> LeaseEvent:
    """Return a change of a lease as it is told, with the note that its reader may see."""
    return {
        "at": row.at.isoformat(),
        "who": row.who,
        "why": row.why,
        "from": row.source,
        "to": row.target,
        "attempt": row.attempt,
        "note": note,
        "version": row.version,
    }
