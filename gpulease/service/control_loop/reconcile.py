"""The loop: observe, plan, store the intent, have it performed, tell.

It runs on every event and on a tick.  After a crash it begins with what the store intends and what
the provider shows, so nothing is granted twice and nothing leaks.  Between rounds and while one
looks, asks are decided from the last look: another one at thousands of leases takes longer.  What
becomes of a plan stands in ``deciding``.  When the store does not take a change, the service says
that it is degraded.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, replace
from datetime import UTC, datetime, timedelta

from gpulease.errors import GPULeaseError
from gpulease.policy import lifecycle
from gpulease.policy.calendar.reservation import Window
from gpulease.policy.capacity import ready_pods
from gpulease.policy.explanation.forecast import ExpectedWaits, Outlook
from gpulease.policy.model import (
    Alert,
    Device,
    EndReason,
    LeaseState,
    Snapshot,
)
from gpulease.providers.base import Provider
from gpulease.service.control_loop.deciding import PLANNER, Decider
from gpulease.service.control_loop.evidence import EvidenceCollector, ObservedState, Observer
from gpulease.service.control_loop.incidents import ContendedCapacity, Incidents, Orphans
from gpulease.service.control_loop.ledger import Ledger, Unseen
from gpulease.service.control_loop.policies import Policies
from gpulease.service.control_loop.workqueue import WorkQueue
from gpulease.service.metrics import Metrics
from gpulease.service.supervisors.supervisor_connections import SupervisorConnections
from gpulease.store import Change, history

log = logging.getLogger(__name__)

#: For so long a snapshot is as good as a new one to who only looks.
_SHOWN = timedelta(seconds=1)
#: So many times as long as a round takes is the pause after it; asks are decided meanwhile.
_PAUSE = 3.0
_PARENT_GONE = "parent_gone"


@dataclass(eq=False)
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

    ledger: Ledger
    provider: Provider
    links: SupervisorConnections
    watch: InitVar[EvidenceCollector]
    policies: Policies
    _: KW_ONLY
    metrics: Metrics
    publish: Callable[[Snapshot], Awaitable[None]]
    tick: float = 1.0
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    windows: Callable[[datetime], tuple[Window, ...]] = lambda _: ()
    use: Callable[[datetime], Mapping[tuple[str, str, str], float]] = lambda _: {}
    spent: Callable[[datetime], Mapping[tuple[str, str], float]] = lambda _: {}
    away_from: InitVar[datetime | None] = None
    wait_spread: InitVar[tuple[float, float] | None] = None

    def __post_init__(
        self,
        watch: EvidenceCollector,
        away_from: datetime | None,
        wait_spread: tuple[float, float] | None,
    ) -> None:
        self._away = (away_from, max(away_from, self.clock())) if away_from is not None else None
        self.alerts: list[Alert] = []
        self.rounds = 0
        #: What the last round let expect.
        self.outlook = Outlook()
        self.problem = ""
        self.observer = Observer(
            self.ledger, self.provider, watch, self.policies, metrics=self.metrics, clock=self.clock
        )
        self.workqueue = WorkQueue(self.ledger, self.provider)
        self._orphans = Orphans(self.ledger, PLANNER)
        self._contended = ContendedCapacity()
        self._unseen = Unseen()
        self.decider = Decider(
            self.ledger, self.provider, self.links, self.policies, self.workqueue,
            contended=self._contended, metrics=self.metrics, clock=self.clock,
            devices=lambda: self.observed_state.by_uuid, moved=self._unseen.moved, stale=self.wake,
        )  # fmt: skip
        self._waits = ExpectedWaits(wait_spread)
        self._shown: Snapshot | None = None
        self._wanted = asyncio.Event()
        self._asked = asyncio.Event()
        self._closed = False

    @property
    def observed_state(self) -> ObservedState:
        """What the provider showed last."""
        return self.observer.observed_state

    def wake(self) -> None:
        """Ask for a round soon; many calls make one round."""
        self._wanted.set()

    def snapshot(self) -> Snapshot:
        """Return what is known now; a plan reads more of those who wait: bounds and homes."""
        state, now = self.observed_state, self.clock()
        return Snapshot(
            now=now,
            policy=self.policies.current,
            devices=state.devices,
            leases=self.ledger.all(),
            evidence=state.evidence,
            observed=state.observed,
            capacity_known=state.capacity_known,
            typical_length=self.ledger.typical_length(),
            contended=self._contended.times,
            windows=self.windows(now),
            use=self.use(now),
            spent=self.spent(now),
            away=self._away,
            wait_spread=self._waits.spread,
            several_nodes=self.provider.several_nodes,
            grows=self.provider.grows,
        )

    def shown(self) -> Snapshot:
        """Return what is known now, for those who only look: the same one while nothing changed."""
        known, state, now = self._shown, self.observed_state, self.clock()
        if (
            known is None
            or known.leases is not self.ledger.all()
            or known.evidence is not state.evidence
            or known.policy is not self.policies.current
            or known.windows != self.windows(now)
            or not timedelta(0) <= now - known.now < _SHOWN
        ):
            known = self._shown = self.snapshot()
        return known

    async def recover(self, devices: Sequence[Device] = ()) -> None:
        """Tell the provider what the store intends; called once, before the first round.

        ``devices`` are what is shown of them until then.
        """
        self.observer.observed_state = replace(self.observed_state, devices=tuple(devices))
        known = list(self.ledger.leases)
        self.observer.minutes.begin(await self.ledger.read(history.busy_seconds, known))
        await Incidents(self.ledger).recall(
            self.policies.current, self._contended, self._orphans, self.provider, self.clock()
        )
        self.workqueue.recover()
        await self.workqueue.settled()

    async def run(self) -> None:
        """Run rounds, and decide asks as they come."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._run_rounds())
            both.create_task(self._run_asks())

    async def _run_rounds(self) -> None:
        while not self._closed:
            took = await self._tried(self.round)
            self.metrics.planned(took)
            await asyncio.sleep(min(_PAUSE * took, self.tick))
            await self._rest()

    async def _run_asks(self) -> None:
        while not self._closed:
            await self._asked.wait()
            self._asked.clear()
            if self.rounds and not self._closed:
                took = await self._tried(self._decide_asks)
                await asyncio.sleep(min(took, self.tick))

    async def _tried(self, work: Callable[[], Awaitable[None]]) -> float:
        """Log what fails, which is tried again at the next tick; return the seconds it took.

        The longer it takes the longer is the pause after it: where many things change at once,
        requests are answered meanwhile, and one round takes in what many events told.
        """
        began = time.perf_counter()
        try:
            await work()
        except GPULeaseError as error:
            self._fail(error.reason, error.sentence)
        except Exception as error:
            log.exception("a round of the loop failed")
            self._fail("internal", type(error).__name__)
        return time.perf_counter() - began

    async def close(self) -> None:
        """End after the present round, and end what is being performed."""
        self._closed = True
        self.wake()
        self._asked.set()
        await self.workqueue.close()
        self.decider.close()

    async def round(self) -> None:
        """Observe, plan, store, have it performed and tell, once."""
        self._unseen.look_begins()
        await self.observer.look()
        if self.observed_state.capacity_known:
            self._unseen.looked()
        async with self.ledger.lock:
            await self._adopt()
            await self.decider.record(self._parentless())
        await self.decider.decide(self._to_decide)
        self._alert()
        self.workqueue.compare(self.observed_state.observed)
        await self._foresee()
        self.rounds += 1
        snapshot = self.shown()  # a new one where something changed meanwhile
        self._keep_warm(snapshot)
        self._waits.look(snapshot, lambda _: self.outlook.forecasts)
        await self.publish(snapshot)
        self.problem = ""

    async def _decide_asks(self) -> None:
        """Give what is free, by the last look, to who waits; a round does and tells the rest."""
        await self.decider.decide(self._to_decide, only_waiting=True)
        self.wake()

    def _to_decide(self) -> Snapshot:
        state = self.observed_state
        return replace(self.snapshot(), devices=self._unseen.marked(state.devices, state.by_uuid))

    async def _foresee(self) -> None:
        """Find what who waits may expect; requests are answered meanwhile."""
        self._shown = self.snapshot()
        self.outlook = await self.decider.foresee(self._shown)

    def _keep_warm(self, snapshot: Snapshot) -> None:
        pods = self.provider.warm_pods
        wanted = ready_pods(snapshot) if pods is not None else None
        if pods is not None and wanted is not None:
            pods.keep(wanted, snapshot.devices)

    async def change(self, changes: Sequence[Change]) -> None:
        """Record what people and the hub changed, all or none, and have it performed.

        The caller holds the ledger's lock.
        """
        if changes:
            await self.ledger.record(changes, self.clock())
            self.decider.perform(changes)
            if any(_waits(change) for change in changes):
                self._asked.set()
            if not all(_waits(change) for change in changes):
                self.wake()

    def _alert(self) -> None:
        alerts = [*self.decider.plan_alerts, *self._orphans.alerts(), *self.links.alerts()]
        alerts += self.workqueue.alerts()
        known = {(alert.lease_id, alert.reason) for alert in self.alerts}
        self.alerts = alerts
        for alert in alerts:
            if (alert.lease_id, alert.reason) not in known:
                log.warning(
                    "%s", alert.sentence, extra={"lease": alert.lease_id, "reason": alert.reason}
                )

    async def _adopt(self) -> None:
        """Take in what runs and is not in the store."""
        found = await self._orphans.look(self.observed_state.observed, self.clock())
        for change in await self.decider.record(found):
            self._orphans.adopted(change.after)

    def _parentless(self) -> list[Change]:
        """Return the end of each lease whose supervisor said that its notebook server is gone."""
        return [
            Change(
                lease,
                lifecycle.left_behind(
                    lifecycle.server_gone(lease, self.clock()), *self.links.left_behind(lease.id)
                ),
                PLANNER,
                EndReason.SERVER_GONE,
            )
            for lease in self.ledger.live()
            if (link := self.links.state(lease.id)) is not None
            and link.bye == _PARENT_GONE
            and link.attempt == lease.attempt
            and lease.state in lifecycle.HOLDING
        ]

    def _fail(self, reason: str, sentence: str) -> None:
        self.problem = sentence
        self.metrics.refused(reason)
        log.error("the loop is degraded: %s", sentence, extra={"reason": reason})

    async def _rest(self) -> None:
        with contextlib.suppress(TimeoutError):
            # Not wait_for: before Python 3.12 it swallows a cancellation that meets the event.
            async with asyncio.timeout(self.tick):
                await self._wanted.wait()
        self._wanted.clear()


def _waits(change: Change) -> bool:
    """Whether a change is of a request that waited, or waits now, and holds nothing."""
    return change.before is None or change.before.state is LeaseState.QUEUED
