"""A site in strides of two minutes: every start, warning and drain is over by the next one.

It does what the service and a provider do with a plan; its people keep their GPUs busy, and ask
again as soon as they have lost one.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gpulease.policy import lifecycle
from gpulease.policy.model import (
    EndReason,
    Lease,
    LeaseState,
    Observed,
    PolicyDocument,
    Snapshot,
    TimeOuts,
)
from gpulease.policy.planner import plan
from tests.policy.build import NOW, busy, cards
from tests.policy.fairness.build import asks

STRIDE = 120.0
OUTS = TimeOuts(minimum_runtime=300, warning=60, drain_max=50, interrupt_grace=5, claim=9e4)


@dataclass
class Site:
    """Everything; ``stride`` is one plan and what comes of it."""

    policy: PolicyDocument
    devices: int
    returns: float | None = None  # seconds after which everybody gives their GPU back
    now: datetime = NOW
    leases: dict[str, Lease] = field(default_factory=dict)
    preempted: Counter[str] = field(default_factory=Counter)  # device -> times taken
    remembers: bool = False  # what people used before counts
    use: dict[tuple[str, str, str], float] = field(default_factory=dict)  # decayed, of who is gone
    asked: int = 0

    def want(self, name: str, user: str, count: int = 1) -> Lease:
        self.asked += 1
        ticket = (self.now, self.asked)
        lease = asks(
            self.asked, name, user=user, count=count, ticket=ticket, created=self.now, claimed=NOW
        )
        self.leases[lease.id] = lease
        return lease

    def run(self, strides: int) -> None:
        for _ in range(strides):
            self.stride()

    def stride(self) -> None:
        self.now += timedelta(seconds=STRIDE)
        for key in self.use:
            self.use[key] *= 0.5 ** (STRIDE / self.policy.projects.half_life)
        for lease in list(self.leases.values()):
            held = self.now - (lease.active_since or self.now)
            if self.returns is not None and held >= timedelta(seconds=self.returns):
                self.put(lifecycle.end(lease, EndReason.RETURNED, self.now))
        for action in plan(self.snapshot()):
            lease = self.leases[action.lease_id]
            self.put(lifecycle.apply(lease, action, self.now, OUTS))

    def snapshot(self) -> Snapshot:
        holding = [x for x in self.leases.values() if x.state in lifecycle.HOLDING]
        used = [uuid for lease in holding for uuid in lease.devices]
        assert len(used) == len(set(used)), "no device is granted twice"
        return Snapshot(
            now=self.now,
            policy=self.policy,
            devices=cards(self.devices),
            leases=tuple(self.leases.values()),
            use=self.use,
            evidence={x.id: busy() for x in holding if x.active_since},
            observed={
                x.id: Observed(x.id, x.attempt, connected=True, in_use=True, drained=_drained(x))
                for x in holding
            },
        )

    def held(self, name: str) -> int:
        return sum(
            len(x.devices)
            for x in self.leases.values()
            if x.project == name and x.state in (LeaseState.STARTING, LeaseState.ACTIVE)
        )

    def put(self, lease: Lease) -> None:
        if lease.state is not LeaseState.ENDED:
            self.leases[lease.id] = lease
            return
        if self.remembers and lease.active_since is not None:
            key = lease.project, lease.user, "cards"
            held = len(lease.devices) * (self.now - lease.active_since).total_seconds()
            self.use[key] = self.use.get(key, 0.0) + held
        if lease.end_reason is EndReason.PREEMPTED:
            self.preempted.update(lease.devices)
        # Kept while its nominee waits: what it gave up is that one's.
        self.leases[lease.id] = lease
        waiting = {x.id for x in self.leases.values() if x.state is LeaseState.QUEUED}
        for each in [x for x in self.leases.values() if x.state is LeaseState.ENDED]:
            if each.nominated_for not in waiting:
                del self.leases[each.id]
        self.want(lease.project, lease.user, lease.count)


def _drained(lease: Lease) -> str:
    return "done" if lease.state is LeaseState.DRAINING else ""
