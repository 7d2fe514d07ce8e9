"""What the application is made of, as the handlers find it.

Two sentences that need all parts stand here too: health, and what a supervisor's activity feeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpulease import __version__
from gpulease.policy.model import Lease
from gpulease.protocol.reports import Activity
from gpulease.providers.base import Provider
from gpulease.texts import Text

if TYPE_CHECKING:
    from gpulease.service.agents import Agents
    from gpulease.service.control_loop.evidence import EvidenceCollector
    from gpulease.service.control_loop.incidents import Incidents
    from gpulease.service.control_loop.ledger import Ledger
    from gpulease.service.control_loop.policies import Policies, WhatIf
    from gpulease.service.control_loop.reconcile import Reconciler
    from gpulease.service.hubs.hubs import Hubs
    from gpulease.service.leases.commands import LeaseCommands
    from gpulease.service.leases.events import Events
    from gpulease.service.leases.history import History
    from gpulease.service.leases.servers import Environments, Servers
    from gpulease.service.leases.usage import UsageSums, WarmTime
    from gpulease.service.leases.views import Views
    from gpulease.service.metrics import Metrics
    from gpulease.service.notices import Messages
    from gpulease.service.rate_limit import RateLimit
    from gpulease.service.reservations.commands import Reservations
    from gpulease.service.reservations.watch import ReservationWatch
    from gpulease.service.runs.commands import Runs
    from gpulease.service.schemas.shapes import AlertView, HealthView
    from gpulease.service.supervisors.supervisor_connections import SupervisorConnections
    from gpulease.service.workers import Workers


#: The reason of an alert about a device whose use cannot be measured: it works all the same.
NOT_MEASURED: Final = "not_measured"


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


def _away(hub: str) -> Text:
    return Text(
        "Hub {hub} does not answer: its leases continue, its people cannot request GPUs.", hub=hub
    )
