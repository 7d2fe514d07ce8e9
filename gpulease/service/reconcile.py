"""The loop: observe, plan, store the intent, have it performed, tell.

Owns that order and when it runs: on every event and on a tick.  After a crash it begins with what
the store intends and what the provider shows, so nothing is granted twice and nothing leaks.
A plan is made in a thread of its own, from a snapshot that nobody changes, and without the ledger's
lock: requests are answered meanwhile, and an action on a lease that they changed is dropped.
Refuses to decide: ``policy.planner`` does.  When the store does not take a change, nothing of it is
performed and the service says that it is degraded.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

from gpulease.errors import GPULeaseError
from gpulease.policy import lifecycle, queue, wishes
from gpulease.policy.calendar.reservation import Window
from gpulease.policy.explanation.forecast import foreseen
from gpulease.policy.explanation.waits import ExpectedWaits
from gpulease.policy.model import (
    Action,
    Alert,
    Device,
    EndReason,
    Lease,
    LeaseState,
    PolicyDocument,
    Shape,
    Snapshot,
)
from gpulease.policy.planner import plan
from gpulease.policy.warm import standing
from gpulease.providers.base import Provider
from gpulease.service.effects import Effects
from gpulease.service.evidence import Watch
from gpulease.service.incidents import Incidents
from gpulease.service.ledger import Ledger
from gpulease.service.links import Links
from gpulease.service.metrics import Metrics
from gpulease.service.observing import ObservedState, Observer
from gpulease.service.orphans import ContendedCapacity, Orphans
from gpulease.service.plans import Packed, Plans
from gpulease.service.policies import Policies
from gpulease.store import Change

log = logging.getLogger(__name__)

PLANNER = "planner"
#: For so long a snapshot is as good as a new one to who only looks.
_SHOWN = timedelta(seconds=1)
_PARENT_GONE = "parent_gone"


class Reconciler:
    """Runs rounds until ``close``.

    Args:
        publish: called at the end of each round with its snapshot.
        tick: seconds between rounds when nothing wakes the loop.
        clock: the time, UTC.
        windows: the windows of reservations that are open at an instant or come soon.
        use: what leases that are over have used, decayed until an instant; ``Snapshot.use``.
        spent: what they have taken of the present budgets; ``Snapshot.spent``.
        away_from: when the service before this one was there last, if that is known.
        wait_spread: what that one had found of waits.
    """

    def __init__(
        self,
        ledger: Ledger,
        provider: Provider,
        links: Links,
        watch: Watch,
        policies: Policies,
        *,
        metrics: Metrics,
        publish: Callable[[Snapshot], None],
        tick: float = 1.0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        windows: Callable[[datetime], tuple[Window, ...]] = lambda _: (),
        use: Callable[[datetime], Mapping[tuple[str, str, str], float]] = lambda _: {},
        spent: Callable[[datetime], Mapping[tuple[str, str], float]] = lambda _: {},
        away_from: datetime | None = None,
        wait_spread: tuple[float, float] | None = None,
    ) -> None:
        self._ledger = ledger
        self._provider = provider
        self._links = links
        self._policies = policies
        self._metrics = metrics
        self._publish = publish
        self._tick = tick
        self.clock = clock
        self._windows = windows
        self._use = use
        self._spent = spent
        self._away = (away_from, max(away_from, clock())) if away_from is not None else None
        self.alerts: list[Alert] = []
        self.rounds = 0
        #: What leases that are less than what was asked for could be by now, by their ids.
        self.within_reach: Mapping[str, Shape] = {}
        self.problem = ""
        self.observer = Observer(ledger, provider, watch, policies, metrics=metrics, clock=clock)
        self.effects = Effects(ledger, provider)
        self._planner = ThreadPoolExecutor(1, thread_name_prefix="planner")
        self._plans = Plans()
        self._orphans = Orphans(ledger, PLANNER)
        self._contended = ContendedCapacity()
        self._waits = ExpectedWaits(wait_spread)
        self._shown: Snapshot | None = None
        self._wanted = asyncio.Event()
        self._closed = False

    @property
    def observed_state(self) -> ObservedState:
        """What the provider showed last."""
        return self.observer.observed_state

    @property
    def policy(self) -> PolicyDocument:
        """The policy in force."""
        return self._policies.current

    def wake(self) -> None:
        """Ask for a round soon; many calls make one round."""
        self._wanted.set()

    def snapshot(self) -> Snapshot:
        """Return what is known now; a plan reads more of those who wait: bounds and homes."""
        state, now = self.observed_state, self.clock()
        return Snapshot(
            now=now,
            policy=self._policies.current,
            devices=state.devices,
            leases=self._ledger.all(),
            evidence=state.evidence,
            observed=state.observed,
            capacity_known=state.capacity_known,
            typical_length=self._ledger.typical_length(),
            contended=self._contended.times,
            windows=self._windows(now),
            use=self._use(now),
            spent=self._spent(now),
            away=self._away,
            wait_spread=self._waits.spread,
            several_nodes=self._provider.several_nodes,
            grows=self._provider.grows,
        )

    def shown(self) -> Snapshot:
        """Return what is known now, for those who only look: the same one while nothing changed."""
        known, state, now = self._shown, self.observed_state, self.clock()
        if (
            known is None
            or known.leases is not self._ledger.all()
            or known.evidence is not state.evidence
            or known.policy is not self._policies.current
            or known.windows != self._windows(now)
            or not timedelta(0) <= now - known.now < _SHOWN
        ):
            known = self._shown = self.snapshot()
        return known

    def _preferred_nodes(self) -> dict[str, str]:
        queued = [x for x in self._ledger.leases.values() if x.state is LeaseState.QUEUED]
        return {x.id: node for x in queued if (node := self._provider.preferred_node(x))}

    async def recover(self, devices: Sequence[Device] = ()) -> None:
        """Tell the provider what the store intends; called once, before the first round.

        ``devices`` are what is shown of them until then.
        """
        self.observer.observed_state = replace(self.observed_state, devices=tuple(devices))
        known = list(self._ledger.leases)
        self.observer.minutes.begin(await self._ledger.call(self._ledger.store.busy_seconds, known))
        await Incidents(self._ledger).recall(
            self._policies.current, self._contended, self._orphans, self._provider, self.clock()
        )
        self.effects.recover()
        await self.effects.settled()

    async def run(self) -> None:
        """Run rounds; a failing round is logged and tried again at the next tick.

        Between rounds there is as long a pause as a round took: where many things change at once,
        requests are answered meanwhile, and one round takes in what many events told.
        """
        while not self._closed:
            began = time.perf_counter()
            try:
                await self.round()
                self.problem = ""
            except GPULeaseError as error:
                self._fail(error.reason, error.sentence)
            except Exception as error:
                log.exception("a round of the loop failed")
                self._fail("internal", type(error).__name__)
            took = time.perf_counter() - began
            self._metrics.planned(took)
            await asyncio.sleep(min(took, self._tick))
            await self._rest()

    async def close(self) -> None:
        """End after the present round, and end what is being performed."""
        self._closed = True
        self.wake()
        await self.effects.close()
        self._planner.shutdown(wait=False, cancel_futures=True)

    async def round(self) -> None:
        """Observe, plan, store, have it performed and tell, once."""
        await self.observer.look()
        async with self._ledger.lock:
            await self._adopt()
            await self._record(self._parentless())
        snapshot = self.snapshot()
        bounds = self._provider.bounds(queue.waiting(snapshot))
        snapshot = replace(snapshot, bounds=tuple(bounds), preferred_nodes=self._preferred_nodes())
        running = asyncio.get_running_loop()
        actions, packed, self.within_reach = await running.run_in_executor(
            self._planner, self._planned, snapshot
        )
        async with self._ledger.lock:
            recorded = await self._record(self._changes(snapshot, actions), packed)
        if packed is not None and recorded:
            self._plans.kept(packed)
        self.effects.compare(self.observed_state.observed)
        # What is told of a long queue takes a while; requests are answered meanwhile.
        self._shown = await running.run_in_executor(self._planner, foreseen, self.snapshot())
        self.rounds += 1
        snapshot = self.shown()  # a new one where something changed meanwhile
        self._keep_warm(snapshot)
        self._waits.look(snapshot)
        self._publish(snapshot)

    def _keep_warm(self, snapshot: Snapshot) -> None:
        pods = self._provider.warm_pods
        wanted = standing(snapshot) if pods is not None else None
        if pods is not None and wanted is not None:
            pods.keep(wanted, snapshot.devices)

    def _planned(
        self, snapshot: Snapshot
    ) -> tuple[list[Action], Packed | None, Mapping[str, Shape]]:
        """Plan, pack what the plan was made from, find what is offered; in the planner's thread."""
        actions = plan(snapshot)
        return actions, self._plans.packed(snapshot, actions), _within_reach(snapshot)

    async def change(self, changes: Sequence[Change]) -> None:
        """Record what people and the hub changed, all or none, and have it performed.

        The caller holds the ledger's lock.
        """
        if changes:
            await self._ledger.record(changes, self.clock())
            for change in changes:
                self._perform(change)
            self.wake()

    async def _adopt(self) -> None:
        """Take in what runs and is not in the store."""
        found = await self._orphans.look(self.observed_state.observed, self.clock())
        for change in await self._record(found):
            self._orphans.adopted(change.after)

    def _parentless(self) -> list[Change]:
        """Return the end of each lease whose supervisor said that its notebook server is gone."""
        return [
            Change(
                lease,
                lifecycle.left_behind(
                    lifecycle.server_gone(lease, self.clock()), *self._links.left_behind(lease.id)
                ),
                PLANNER,
                EndReason.SERVER_GONE,
            )
            for lease in self._ledger.live()
            if (link := self._links.state(lease.id)) is not None
            and link.bye == _PARENT_GONE
            and link.attempt == lease.attempt
            and lease.state in lifecycle.HOLDING
        ]

    def _changes(self, snapshot: Snapshot, actions: Sequence[Action]) -> list[Change]:
        """Return what the actions change, but for leases that changed while the plan was made."""
        alerts = [action for action in actions if isinstance(action, Alert)]
        more = (*self._orphans.alerts(), *self._links.alerts(), *self.effects.alerts())
        self._alert([*alerts, *more])
        planned = {lease.id: lease.version for lease in snapshot.leases}
        changes = []
        for action in actions:
            if isinstance(action, Alert):
                continue
            lease = self._ledger.leases.get(action.lease_id)
            if lease is None or lease.version != planned[action.lease_id]:
                self._metrics.refused("stale_plan")
                self.wake()
                continue
            after = self._applied(lease, action)
            if after is not None:
                changes.append(Change(lease, after, PLANNER, action.reason))
        return changes

    def _applied(self, lease: Lease, action: Action) -> Lease | None:
        """Return the lease after an action; one that cannot be applied must not stop the others."""
        outs = lifecycle.time_outs_of(self._policies.current, lease)
        try:
            after = lifecycle.apply(lease, action, self.clock(), outs)
        except (GPULeaseError, ValueError):
            log.exception("%s cannot be applied", type(action).__name__, extra={"lease": lease.id})
            self._metrics.refused("not_applicable")
            return None
        return self._with_left(lease, after)

    def _with_left(self, before: Lease, after: Lease) -> Lease:
        """Add what a drain that is over did not bring home; once answered, it is in the record."""
        if before.state is not LeaseState.DRAINING:
            return after
        blockers, parked = self._links.left_behind(before.id)
        return lifecycle.left_behind(after, blockers or before.blockers, parked)

    async def _record(
        self, changes: Sequence[Change], packed: Packed | None = None
    ) -> Sequence[Change]:
        """Store all changes at once and return them; those that are refused are left out and said.

        What is stored is performed.  ``packed``: the plan that they are of.
        """
        while changes:
            try:
                kept = packed.plan if packed is not None else None
                await self._ledger.record(changes, self.clock(), kept)
            except GPULeaseError as error:
                refused = set(error.numbers.get("leases", ()))
                if error.status != HTTPStatus.CONFLICT or not refused:
                    raise
                for lease_id in refused:
                    extra = {"lease": lease_id, "reason": error.reason}
                    log.warning("a change was not stored: %s", error.sentence, extra=extra)
                    self._metrics.refused(error.reason)
                changes = [change for change in changes if change.after.id not in refused]
            else:
                self._recorded(changes)
                break
        return changes

    def _recorded(self, changes: Sequence[Change]) -> None:
        known = self.observed_state.by_uuid
        for change in changes:
            held = change.before.devices if change.before is not None else ()
            pool = next((known[uuid].pool for uuid in held[:1] if uuid in known), "")
            if self._contended.moved(change, pool, self.clock()):
                self._metrics.taken(pool)
            self._perform(change)

    def _perform(self, change: Change) -> None:
        """Tell the supervisor at once, and let the provider be told by the lease's worker."""
        self._links.agree(change.after)
        self.effects.changed(change)

    def _alert(self, alerts: list[Alert]) -> None:
        known = {(alert.lease_id, alert.reason) for alert in self.alerts}
        self.alerts = alerts
        for alert in alerts:
            if (alert.lease_id, alert.reason) not in known:
                log.warning(
                    "%s", alert.sentence, extra={"lease": alert.lease_id, "reason": alert.reason}
                )

    def _fail(self, reason: str, sentence: str) -> None:
        self.problem = sentence
        self._metrics.refused(reason)
        log.error("the loop is degraded: %s", sentence, extra={"reason": reason})

    async def _rest(self) -> None:
        with contextlib.suppress(TimeoutError):
            # Not wait_for: before Python 3.12 it swallows a cancellation that meets the event.
            async with asyncio.timeout(self._tick):
                await self._wanted.wait()
        self._wanted.clear()


def _within_reach(snapshot: Snapshot) -> Mapping[str, Shape]:
    try:
        return wishes.within_reach(snapshot)
    except Exception:  # what is decided counts; that more could be had does not
        log.exception("what is within reach of whom could not be found; nothing is offered")
        return {}
