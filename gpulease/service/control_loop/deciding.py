"""What is decided: a plan is made, stored as changes with its inputs, and performed.

``policy.planner`` decides, in a thread of its own, from a snapshot that nobody changes, and without
the ledger's lock: requests are answered meanwhile, and an action on a lease that they changed is
dropped.  When the store does not take a change, nothing of it is performed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, asdict, dataclass, replace
from datetime import datetime, timedelta
from http import HTTPStatus
from operator import attrgetter
from typing import Any, Final

from gpulease.errors import GPULeaseError
from gpulease.policy import admission, document, lifecycle, queue
from gpulease.policy.explanation.decision import FOR_USER, decisions
from gpulease.policy.explanation.forecast import Outlook, outlook
from gpulease.policy.model import (
    Action,
    Alert,
    Device,
    Lease,
    LeaseState,
    PolicyDocument,
    Shape,
    Snapshot,
)
from gpulease.policy.planner import admissions, plan
from gpulease.providers.base import Provider
from gpulease.service.control_loop.incidents import ContendedCapacity
from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.control_loop.policies import Policies
from gpulease.service.control_loop.workqueue import WorkQueue
from gpulease.service.metrics import Metrics
from gpulease.service.schemas.bodies import PageQuery
from gpulease.service.schemas.shapes import DecisionView, LeaseEvent
from gpulease.service.supervisors.supervisor_connections import SupervisorConnections
from gpulease.simulate.trace import OF_DEVICE, devices_to_json
from gpulease.store import Change, PlanRecord, TransitionRecord, history, reading

log = logging.getLogger(__name__)

PLANNER = "planner"


@dataclass(eq=False)
class Decider:
    """Makes plans and carries them out.

    Args:
        contended: learns when devices were taken that others waited for.
        clock: the time, UTC.
        devices: those that the provider showed last, by their identifiers.
        moved: called with the changes that were stored.
        stale: called where a lease changed while the plan was made.
    """

    ledger: Ledger
    provider: Provider
    links: SupervisorConnections
    policies: Policies
    workqueue: WorkQueue
    _: KW_ONLY
    contended: ContendedCapacity
    metrics: Metrics
    clock: Callable[[], datetime]
    devices: Callable[[], Mapping[str, Device]]
    moved: Callable[[Sequence[Change]], None]
    stale: Callable[[], None]

    def __post_init__(self) -> None:
        self._plans = Plans()
        self._one_plan = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=PLANNER)
        #: What an admin has to know of the last whole plan.
        self.plan_alerts: list[Alert] = []
        #: What leases that are less than what was asked for could be by now, by their ids.
        self.within_reach: Mapping[str, Shape] = {}

    def close(self) -> None:
        """Make no further plan."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def decide(self, look: Callable[[], Snapshot], *, only_waiting: bool = False) -> None:
        """Plan and record what the plan changes; one plan after the other.

        ``look``: what is known, once it is this plan's turn.  ``only_waiting``: what holds devices
        stays as it is.

        Raises:
            GPULeaseError: what the store refuses all changes with.
        """
        async with self._one_plan:
            snapshot = look()
            bounds, homes = self.provider.bounds(queue.waiting(snapshot)), self._homes(snapshot)
            snapshot = replace(snapshot, bounds=tuple(bounds), preferred_nodes=homes)
            actions, packed = await asyncio.get_running_loop().run_in_executor(
                self._thread, self._admitted if only_waiting else self._planned, snapshot
            )
            async with self.ledger.lock:
                recorded = await self.record(self._changes(snapshot, actions), packed)
            if packed is not None and recorded:
                self._plans.kept(packed)

    async def foresee(self, snapshot: Snapshot) -> Outlook:
        """Return what a snapshot lets expect: of a long queue that takes a while."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, outlook, snapshot)

    def _homes(self, snapshot: Snapshot) -> dict[str, str]:
        """Return the node of the notebook of each who waits, where one is preferred."""
        found = ((x.id, self.provider.preferred_node(x)) for x in queue.waiting(snapshot))
        return {lease_id: node for lease_id, node in found if node}

    def _planned(self, snapshot: Snapshot) -> tuple[list[Action], Packed | None]:
        """Plan, keep what the plan was made from, find what is offered; in the planner's thread."""
        actions = plan(snapshot)
        self.plan_alerts = [action for action in actions if isinstance(action, Alert)]
        self.within_reach = _within_reach(snapshot)
        return actions, self._plans.packed(snapshot, actions)

    def _admitted(self, snapshot: Snapshot) -> tuple[list[Action], Packed | None]:
        actions = admissions(snapshot)
        return actions, self._plans.packed(snapshot, actions)

    def _changes(self, snapshot: Snapshot, actions: Sequence[Action]) -> list[Change]:
        """Return what the actions change, but for leases that changed while the plan was made."""
        planned = {lease.id: lease.version for lease in snapshot.leases}
        changes = []
        for action in actions:
            if isinstance(action, Alert):
                continue
            lease = self.ledger.leases.get(action.lease_id)
            if lease is None or lease.version != planned[action.lease_id]:
                self.metrics.refused("stale_plan")
                self.stale()
                continue
            after = self._applied(lease, action)
            if after is not None:
                changes.append(Change(lease, after, PLANNER, action.reason))
        return changes

    def _applied(self, lease: Lease, action: Action) -> Lease | None:
        """Return the lease after an action; one that cannot be applied must not stop the others."""
        outs = lifecycle.time_outs_of(self.policies.current, lease)
        try:
            after = lifecycle.apply(lease, action, self.clock(), outs)
        except (GPULeaseError, ValueError):
            log.exception("%s cannot be applied", type(action).__name__, extra={"lease": lease.id})
            self.metrics.refused("not_applicable")
            return None
        return self._with_left(lease, after)

    def _with_left(self, before: Lease, after: Lease) -> Lease:
        """Add what a drain that is over did not copy back; once answered, it is in the record."""
        if before.state is not LeaseState.DRAINING:
            return after
        blockers, parked = self.links.left_behind(before.id)
        return lifecycle.left_behind(after, blockers or before.blockers, parked)

    async def record(
        self, changes: Sequence[Change], packed: Packed | None = None
    ) -> Sequence[Change]:
        """Store all changes at once and return them; those that are refused are left out and said.

        What is stored is performed.  ``packed``: the plan that they are of.
        """
        while changes:
            try:
                body = packed.body if packed is not None else None
                await self.ledger.record(changes, self.clock(), body)
            except GPULeaseError as error:
                refused = set(error.numbers.get("leases", ()))
                if error.status != HTTPStatus.CONFLICT or not refused:
                    raise
                for lease_id in refused:
                    extra = {"lease": lease_id, "reason": error.reason}
                    log.warning("a change was not stored: %s", error.sentence, extra=extra)
                    self.metrics.refused(error.reason)
                changes = [change for change in changes if change.after.id not in refused]
            else:
                self._recorded(changes)
                break
        return changes

    def _recorded(self, changes: Sequence[Change]) -> None:
        known = self.devices()
        for change in changes:
            held = change.before.devices if change.before is not None else ()
            pool = next((known[uuid].pool for uuid in held[:1] if uuid in known), "")
            if self.contended.moved(change, pool, self.clock()):
                self.metrics.taken(pool)
        self.perform(changes)

    def perform(self, changes: Sequence[Change]) -> None:
        """Tell the supervisors at once, and let the provider be told by each lease's worker."""
        for change in changes:
            self.links.agree(change.after)
            self.workqueue.changed(change)
        self.moved(changes)


def _within_reach(snapshot: Snapshot) -> Mapping[str, Shape]:
    try:
        return admission.within_reach(snapshot)
    except Exception:  # what is decided counts; that more could be had does not
        log.exception("what is within reach of whom could not be found; nothing is offered")
        return {}


#: So often a plan names the site even if nothing changed: older plans are removed by and by.
_SITE_AGE: Final = timedelta(days=1)
_of_replay: Final = attrgetter(*OF_DEVICE)


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
            return Packed(history.pack(plan), site)
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
        with reading(address) as session:
            plan = history.newest(session)
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
    rows = (await ledger.read(history.transitions, lease_id))[::-1]
    some = rows[query.offset : query.offset + query.limit]
    wanted = {row.plan for row in some if row.plan is not None}
    records: dict[int, PlanRecord] = await ledger.read(history.plans, wanted)
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
