"""What the application is made of, as the handlers find it, and what needs all of its parts.

That is health, what a supervisor's activity feeds, and telling the readers of events and metrics of
each change as it is recorded.  Old history leaves the store while the service serves, in small
batches with pauses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from gpulease import __version__
from gpulease.errors import GPULeaseError
from gpulease.policy import budgets
from gpulease.policy.model import Lease, Snapshot
from gpulease.protocol.reports import Activity
from gpulease.providers.base import Provider
from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.leases import views
from gpulease.service.leases.views import newest
from gpulease.service.reservations.commands import Reservations
from gpulease.store import Ages, Change, retention
from gpulease.texts import Text

if TYPE_CHECKING:
    from gpulease.service.agents import Agents
    from gpulease.service.control_loop.evidence import EvidenceCollector
    from gpulease.service.control_loop.incidents import Incidents
    from gpulease.service.control_loop.policies import Policies, WhatIf
    from gpulease.service.control_loop.reconcile import Reconciler
    from gpulease.service.hubs.hubs import Hubs
    from gpulease.service.leases.commands import LeaseCommands
    from gpulease.service.leases.events import Events
    from gpulease.service.leases.history import History
    from gpulease.service.leases.requests import LeaseRequests
    from gpulease.service.leases.servers import Environments, Servers
    from gpulease.service.leases.usage import UsageSums, WarmTime
    from gpulease.service.leases.views import Views
    from gpulease.service.metrics import Metrics
    from gpulease.service.notices import Messages
    from gpulease.service.rate_limit import RateLimit
    from gpulease.service.reservations.watch import ReservationWatch
    from gpulease.service.runs.commands import Runs
    from gpulease.service.schemas.shapes import AlertView, HealthView
    from gpulease.service.supervisors.supervisor_connections import SupervisorConnections
    from gpulease.service.workers import Workers


log = logging.getLogger(__name__)

#: So many leases are told without a pause: a few milliseconds.
_AT_ONCE = 200
#: The reason of an alert about a device whose use cannot be measured: it works all the same.
NOT_MEASURED: Final = "not_measured"
#: Seconds between two looks for what is old.
EVERY = 60.0
#: Of the time, batches take this share at most while there is much to do: others write, too.
_SHARE = 0.2


@dataclass(frozen=True)
class Services:
    """The parts of one running lease service."""

    prefix: str  # with a slash at both ends
    ledger: Ledger
    provider: Provider
    links: SupervisorConnections
    watch: EvidenceCollector
    events: Events
    servers: Servers
    hub: Hubs
    loop: Reconciler
    requests: LeaseRequests
    commands: LeaseCommands
    policies: Policies
    views: Views
    history: History
    incidents: Incidents
    metrics: Metrics
    agents: Agents
    bounds: RateLimit
    workers: Workers
    reservations: Reservations
    reservation_watch: ReservationWatch
    messages: Messages
    usage: UsageSums
    whatif: WhatIf
    runs: Runs
    environments: Environments
    warm_time: WarmTime

    def heard(self, lease: Lease, samples: Sequence[Activity]) -> None:
        """Take one batch of a supervisor's activity."""
        self.watch.hear(lease.id, samples)
        if self.provider.server_started is not None:
            self.provider.server_started.heard(lease, samples)

    def health(self) -> HealthView:
        """Return how each part is; ``status`` is ``ok``, ``degraded`` or ``error``.

        It needs no log-in, so of the alerts it has the reasons alone.
        """
        state = self.loop.observed_state
        store = self.ledger.problem
        planning = self.loop.problem
        devices = self.provider.problem()
        hub = self.hub.problem
        others = self.hub.further()
        failing = bool(store or planning)
        alerts = self.alerts()
        wrong = [each for each in alerts if each["reason"] != NOT_MEASURED]
        worried = bool(devices or hub or state.problem or self.watch.gaps or wrong)
        return {
            "status": "error" if failing else "degraded" if worried else "ok",
            "version": __version__,
            "store": store or "ok",
            "planning": planning or "ok",
            "hub": hub or "ok",
            "hubs": {name: problem or "ok" for name, problem in others.items()},
            "provider": self.provider.name,
            "devices": len(state.devices),
            "simulated": bool(state.devices) and all(each.simulated for each in state.devices),
            "device_problem": devices or state.problem,
            "gaps": sorted(set(self.watch.gaps.values())),
            "pools": sorted({each.pool for each in state.devices}),
            "alerts": sorted({each["reason"] for each in alerts}),
            "policy_version": self.policies.text.version,
            "policy_pinned": self.policies.pinned,
            "supervisors": sum(seen.connected for seen in state.observed.values()),
        }

    def alerts(self) -> list[AlertView]:
        """Return what an admin should know, in words."""
        nodes = {each.node for each in self.loop.observed_state.devices if each.node}
        said = [
            *(("reservations", each) for each in self.reservation_watch.alerts()),
            *((("policy_file", self.policies.problem),) if self.policies.problem else ()),
            *(("hub", _away(hub)) for hub, problem in self.hub.further().items() if problem),
            *(("agents", each) for each in self.agents.problems(nodes)),
            *((NOT_MEASURED, each) for each in self.provider.limits()),
        ]
        found: list[AlertView] = [
            {"reason": each.reason, "lease": each.lease_id, "sentence": each.sentence}
            for each in self.loop.alerts
        ]
        return found + [
            {"reason": reason, "lease": "", "sentence": sentence} for reason, sentence in said
        ]

    def moved(self, changes: Sequence[Change], now: datetime) -> None:
        """Log and count each recorded change, and tell the readers at once."""
        self.usage.recorded(changes)
        for change in changes:
            self._note(change.before, change.after, now)
        leases = [change.after for change in changes]
        views = self.views.leases(leases, self.loop.shown())
        for lease, view in zip(leases, views, strict=True):
            self.events.publish(lease, view)

    def _note(self, before: Lease | None, after: Lease, now: datetime) -> None:
        source = before.state.value if before else "asked"
        log.info(
            "%s -> %s",
            source,
            after.state.value,
            extra={
                "lease": after.id,
                "user": after.user,
                "server": f"{after.user}/{after.server}",
                "reason": after.reason,
                "attempt": after.attempt,
            },
        )
        if before is not None:
            self.metrics.moved(before, after, now)

    async def publish(self, snapshot: Snapshot) -> None:
        """Tell what follows from a plan's snapshot, and forget what nobody asks about any more.

        Of thousands of leases some are told at once, and requests are answered between; what
        changed meanwhile was told as it changed.
        """
        self.usage.tell_of(snapshot, budgets.spent)
        leases = [each for each in snapshot.leases if not self.events.is_final(each)]
        for begin in range(0, len(leases), _AT_ONCE):
            some = leases[begin : begin + _AT_ONCE]
            now = [each for each in some if self.ledger.leases.get(each.id) is each]
            for lease, view in zip(now, self.views.leases(now, snapshot), strict=True):
                self.events.publish(newest(lease, snapshot.observed), view)
            await asyncio.sleep(0)
        self.events.publish_classes(self.views.classes(snapshot))
        live = self.ledger.live()  # with those that came meanwhile
        self.metrics.show(
            live,
            {each.name: each.pool for each in snapshot.policy.classes},
        )
        self.metrics.show_devices(self.views.uses(snapshot))
        self.metrics.show_standing(
            views.silences(snapshot),
            views.overdue(snapshot),
            [
                *(alert.reason for alert in self.loop.alerts),
                *(["policy_file"] if self.policies.problem else []),
            ],
        )
        self.ledger.forget(snapshot.now, self.loop.observed_state.observed)
        self.events.forget(set(self.ledger.leases))
        self.views.forget(self.ledger.leases)
        self.links.forget({each.id for each in live})


def _away(hub: str) -> Text:
    return Text(
        "Hub {hub} does not answer: its leases continue, its people cannot request GPUs.", hub=hub
    )


@dataclass(eq=False)
class Retention:
    """Looks once a minute, and continues while something is left."""

    ledger: Ledger
    reservations: Reservations
    ages: Ages
    _: KW_ONLY
    every: float = EVERY
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    async def run(self) -> None:
        """Run until cancelled; while the store is away, wait."""
        while True:
            await asyncio.sleep(self.every)  # a start has more urgent things to do
            try:
                gone = await self.once()
                if gone:
                    log.info("%d rows of old history are gone", gone)
            except GPULeaseError as error:
                log.warning("old history stays: %s", error.sentence, extra={"reason": error.reason})

    async def once(self) -> int:
        """Take away what is old now, all of it; return how many rows.

        Raises:
            GPULeaseError: the store cannot be used.
        """
        loop, gone = asyncio.get_running_loop(), 0
        while True:
            began = loop.time()
            batch = await self._batch(self.clock())
            if not batch:
                return gone
            gone += batch
            await asyncio.sleep((loop.time() - began) * (1 / _SHARE - 1))

    async def _batch(self, now: datetime) -> int:
        over = now - timedelta(days=self.ages.reservations)
        return await self.reservations.forget(over) or await self.ledger.write(
            retention.sweep, now, self.ages
        )
