"""The loop: observe, plan, store the intent, perform, tell.

Owns that order and when it runs: on every event and on a tick.  After a crash it begins with what
the store intends and what the provider shows, so nothing is granted twice and nothing leaks.
Refuses to decide: ``policy.planner`` does.  When the store does not take a change, nothing of it is
performed and the service says that it is degraded.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

from gpulease.errors import GPULeaseError
from gpulease.policy import lifecycle, queue
from gpulease.policy.model import (
    Action,
    Alert,
    Device,
    EndReason,
    Evidence,
    Lease,
    LeaseState,
    Observed,
    Snapshot,
    Verdict,
)
from gpulease.policy.planner import plan
from gpulease.providers.base import Provider
from gpulease.service import effects
from gpulease.service.evidence import Watch
from gpulease.service.incidents import Incidents
from gpulease.service.ledger import Ledger
from gpulease.service.links import Links
from gpulease.service.metrics import Metrics
from gpulease.service.minutes import Minutes
from gpulease.service.policies import Policies
from gpulease.service.strangers import Strangers, Thefts
from gpulease.store import Change, VerdictChange

log = logging.getLogger(__name__)

PLANNER = "planner"
_PARENT_GONE = "parent_gone"


@dataclass
class Sight:
    """What the provider showed last."""

    devices: Sequence[Device] = ()
    observed: dict[str, Observed] = field(default_factory=dict)
    evidence: dict[str, Evidence] = field(default_factory=dict)
    capacity_known: bool = False
    problem: str = "not looked yet"


class Reconciler:
    """Runs rounds until ``close``.

    Args:
        publish: called at the end of each round with its snapshot.
        tick: seconds between rounds when nothing wakes the loop.
        clock: the time, UTC.
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
    ) -> None:
        self._ledger = ledger
        self._provider = provider
        self._links = links
        self._watch = watch
        self._policies = policies
        self._metrics = metrics
        self._publish = publish
        self._tick = tick
        self.clock = clock
        self.sight = Sight()
        self.alerts: list[Alert] = []
        self.rounds = 0
        self.problem = ""
        self._minutes = Minutes()
        self._strangers = Strangers(ledger, PLANNER)
        self._thefts = Thefts()
        self._wanted = asyncio.Event()
        self._closed = False

    def wake(self) -> None:
        """Ask for a round soon; many calls make one round."""
        self._wanted.set()

    def busy_share(self, lease_id: str) -> float | None:
        """Return the share of its time that a lease was busy, ``None`` when that is not known."""
        return self._minutes.busy_share(lease_id)

    def snapshot(self) -> Snapshot:
        """Return what is known now; a plan reads more of those who wait: bounds and homes."""
        sight = self.sight
        return Snapshot(
            now=self.clock(),
            policy=self._policies.current,
            devices=tuple(sight.devices),
            leases=tuple(self._ledger.leases.values()),
            evidence=sight.evidence,
            observed=sight.observed,
            capacity_known=sight.capacity_known,
            typical_length=self._ledger.typical_length(),
            thefts=self._thefts.times,
        )

    def _near(self) -> dict[str, str]:
        queued = [x for x in self._ledger.leases.values() if x.state is LeaseState.QUEUED]
        return {x.id: node for x in queued if (node := self._provider.near(x))}

    async def recover(self, devices: Sequence[Device] = ()) -> None:
        """Tell the provider what the store intends; called once, before the first round.

        ``devices`` are what is shown of them until then.
        """
        self.sight.devices = devices
        known = list(self._ledger.leases)
        self._minutes.begin(await self._ledger.call(self._ledger.store.busy_seconds, known))
        await Incidents(self._ledger).recall(
            self._policies.current, self._thefts, self._strangers, self._provider, self.clock()
        )
        for lease in self._ledger.leases.values():
            if lease.state in lifecycle.HOLDING:
                await self._provider.start(lease)
            elif lease.state is LeaseState.ENDED and lease.devices:
                await self._provider.stop(lease)

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
        """End after the present round."""
        self._closed = True
        self.wake()

    async def round(self) -> None:
        """Observe, plan, store, perform and tell, once."""
        await self._look()
        done: list[Change] = []
        try:
            async with self._ledger.lock:
                await self._adopt(done)
                await self._record(self._parentless(), done)
                await self._record(self._planned(), done)
        finally:
            for change in done:
                await self._perform(change)
        await self._finish_stops()
        self.rounds += 1
        self._publish(self.snapshot())

    async def change(self, before: Lease, after: Lease, who: str, why: str) -> Lease:
        """Record a person's change and perform it; the caller holds the ledger's lock."""
        if after == before:
            return before
        change = Change(before, after, who, why)
        await self._ledger.record([change], self.clock())
        await self._perform(change)
        self.wake()
        return after

    async def _look(self) -> None:
        sight = Sight(capacity_known=True, problem="")
        try:
            sight.devices = await self._provider.devices()
        except OSError as error:
            sight.devices = self.sight.devices
            sight.capacity_known, sight.problem = False, str(error)
        sight.observed = {seen.lease_id: seen for seen in await self._provider.observe()}
        now = self.clock()
        simulated = {device.uuid for device in sight.devices if device.simulated}
        live, policy = self._ledger.live(), self._policies.current
        sight.evidence = dict(self._watch.judge(live, policy, now, simulated))
        before, self.sight = self.sight.evidence, sight
        await self._note(before, sight.evidence, now)

    async def _note(
        self, before: Mapping[str, Evidence], after: Mapping[str, Evidence], now: datetime
    ) -> None:
        """Store each change of verdict, and each minute that is over."""
        changed = []
        for lease_id, evidence in after.items():
            known = before.get(lease_id)
            if known is None or known.verdict is not evidence.verdict:
                self._metrics.judged(evidence.verdict)
                log.info("verdict %s", evidence.verdict.value, extra={"lease": lease_id})
                changed.append(VerdictChange(lease_id, now, evidence.verdict))
        self._minutes.add(after, now)
        self._minutes.forget(self._ledger.leases)
        over = self._minutes.due(now)
        if changed or over:
            await self._ledger.call(self._ledger.store.record_evidence, changed, over)
            self._minutes.written(over)

    async def _adopt(self, done: list[Change]) -> None:
        """Take in what runs and is not in the store, and let the provider know that it is ours."""
        found: list[Change] = []
        await self._record(await self._strangers.look(self.sight.observed, self.clock()), found)
        for change in found:
            self._strangers.adopted(change.after)
            await self._provider.start(change.after)
        done += found

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

    def _planned(self) -> list[Change]:
        snapshot = self.snapshot()
        bounds = self._provider.bounds(queue.waiting(snapshot))
        actions = plan(replace(snapshot, bounds=tuple(bounds), near=self._near()))
        alerts = [action for action in actions if isinstance(action, Alert)]
        self._alert([*alerts, *self._strangers.alerts(), *self._links.alerts()])
        changes = []
        for action in actions:
            if not isinstance(action, Alert):
                lease = self._ledger.leases[action.lease_id]
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

    async def _record(self, changes: Sequence[Change], done: list[Change]) -> None:
        """Store all changes at once; those that the store refuses are left out, and said."""
        while changes:
            try:
                await self._ledger.record(changes, self.clock())
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
                self._recorded(changes, done)
                return

    def _recorded(self, changes: Sequence[Change], done: list[Change]) -> None:
        pools = {device.uuid: device.pool for device in self.sight.devices}
        for change in changes:
            held = change.before.devices if change.before is not None else ()
            pool = next((pools.get(uuid, "") for uuid in held), "")
            if self._thefts.moved(change, pool, self.clock()):
                self._metrics.stolen(pool)
        done += changes

    async def _perform(self, change: Change) -> None:
        await effects.perform(change.before, change.after, self._provider, self._links)

    def _alert(self, alerts: list[Alert]) -> None:
        known = {(alert.lease_id, alert.reason) for alert in self.alerts}
        self.alerts = alerts
        for alert in alerts:
            if (alert.lease_id, alert.reason) not in known:
                log.warning(
                    "%s", alert.sentence, extra={"lease": alert.lease_id, "reason": alert.reason}
                )

    async def _finish_stops(self) -> None:
        """Go on stopping what is still seen of leases that are over or went back to the queue.

        While the store is away nothing is ended: somebody else may be the writer by now.
        """
        if self._ledger.problem:
            return
        for seen in self.sight.observed.values():
            lease = self._ledger.leases.get(seen.lease_id)
            if lease is not None and lease.state not in lifecycle.HOLDING:
                await self._provider.stop(lease)

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


def busy_since(evidence: Evidence | None) -> datetime | None:
    """Return since when a lease is busy without interruption, ``None`` when it is not."""
    busy = evidence is not None and evidence.verdict is Verdict.BUSY
    return evidence.since if busy and evidence else None


def within(since: datetime, now: datetime, seconds: float) -> bool:
    """Tell whether ``now`` is less than ``seconds`` after ``since``."""
    return now - since < timedelta(seconds=seconds)
