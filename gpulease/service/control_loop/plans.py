"""What plans decided, kept with the inputs of each decision, and told afterwards."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, Final

from gpulease.policy import document
from gpulease.policy.explanation.decision import FOR_USER, decisions
from gpulease.policy.model import Action, Alert, Device, PolicyDocument, Snapshot
from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.schemas.queries import PageQuery
from gpulease.service.schemas.shapes import DecisionView, LeaseEvent
from gpulease.simulate.codec import devices_to_json
from gpulease.store import PlanRecord, TransitionRecord, pack_plan, read_last_plan

log = logging.getLogger(__name__)


#: So often a plan names the site even if nothing changed: older plans are removed by and by.
_SITE_AGE: Final = timedelta(days=1)
#: What a replay needs to know of a device: all else, as who uses it, changes with each plan.
_of_replay: Final = attrgetter("uuid", "pool", "node", "serves", "card", "card_parts")


@dataclass(frozen=True)
class Site:
    """What a replay needs to know of a site, and when a plan named it."""

    policy: PolicyDocument
    devices: tuple[Device, ...]
    named: datetime

    def holds(self, snapshot: Snapshot) -> bool:
        """Whether a plan from this snapshot need not name it again."""
        if self.policy != snapshot.policy or snapshot.now - self.named >= _SITE_AGE:
            return False
        return list(map(_of_replay, self.devices)) == list(map(_of_replay, snapshot.devices))


@dataclass(frozen=True)
class Packed:
    """A plan as it is kept, and the site that this or an earlier one names."""

    body: bytes
    site: Site


class Plans:
    """Packs plans; the site is named when it changes."""

    def __init__(self) -> None:
        self._site: Site | None = None

    def packed(self, snapshot: Snapshot, actions: Sequence[Action]) -> Packed | None:
        """Return a plan as it is kept, ``None`` where it changes nothing."""
        if all(isinstance(each, Alert) for each in actions):
            return None
        try:
            leases = {name: asdict(each) for name, each in decisions(snapshot, actions).items()}
            plan: dict[str, Any] = {"wait_spread": snapshot.wait_spread, "leases": leases}
            site = self._site
            if site is None or not site.holds(snapshot):
                site = Site(snapshot.policy, snapshot.devices, snapshot.now)
                devices = devices_to_json(snapshot.devices)
                plan["site"] = {"policy": document.dump(snapshot.policy), "devices": devices}
            return Packed(pack_plan(plan), site)
        except Exception:  # what is decided counts; that it can be told afterwards does not
            log.exception("a plan could not be packed; it is carried out and not kept")
            return None

    def kept(self, packed: Packed) -> None:
        """Note that a plan is stored."""
        self._site = packed.site


def last_spread(address: str) -> tuple[float, float] | None:
    """Return how far waits ended from what was expected, as the newest plan that is kept knew it.

    None where there is no such plan, or it cannot be read: then it is learnt again.
    """
    try:
        plan = read_last_plan(address)
        least, most = plan["wait_spread"] if plan is not None and plan["wait_spread"] else (None, 0)
        return (float(least), float(most)) if least is not None else None
    except Exception:
        # Whatever another version wrote there: the service starts without it.
        log.warning("the last plan cannot be read: expected times have no interval for now")
        log.debug("why", exc_info=True)
        return None


async def decided(
    ledger: Ledger, lease_id: str, query: PageQuery
) -> tuple[list[DecisionView], int]:
    """Return what was decided about a lease, newest first, and how many decisions there are.

    Raises:
        GPULeaseError: the store cannot be read.
    """
    rows = (await ledger.call(ledger.store.transitions, lease_id))[::-1]
    some = rows[query.offset : query.offset + query.limit]
    wanted = {row.plan for row in some if row.plan is not None}
    records: dict[int, PlanRecord] = await ledger.call(ledger.store.kept_plans, wanted)
    return [_view(row, records.get(row.plan or 0)) for row in some], len(rows)


def _view(row: TransitionRecord, plan: PlanRecord | None) -> DecisionView:
    # A number is given again where every plan was gone: then the instants differ.
    known = plan is not None and plan.at == row.at
    kept: Mapping[str, Any] = (
        plan.leases.get(row.lease_id, {}) if plan is not None and known else {}
    )
    for_user = kept.get("for_user", "")
    numbers = kept.get("numbers", {}) | ({"for_user": for_user} if for_user else {})
    return {
        **event_view(row, row.note),
        "planned": row.plan is not None,
        "inputs": [each.replace(FOR_USER, for_user) for each in kept.get("words", ())],
        "numbers": numbers,
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
