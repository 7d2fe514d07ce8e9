"""A small world on a virtual clock: people ask, use, idle, block and leave; the plan decides.

The world does what the service and a provider do (apply actions, show what it sees) and checks in
each tick what must hold always.  No wall clock, no I/O.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from gpulease.policy import admission_check, lifecycle
from gpulease.policy.health import MAX_BACK_OFF, MAX_FAILURES
from gpulease.policy.idleness import ActivitySample, DeviceSample, IdleState, advance, begin
from gpulease.policy.model import (
    Action,
    Alert,
    Device,
    Lease,
    LeaseState,
    Observed,
    PolicyDocument,
    Reshape,
    Snapshot,
    Start,
)
from gpulease.policy.planner import plan
from tests.policy.build import NOW

TICK = 5.0


@dataclass(frozen=True)
class Habit:
    """How a lease behaves: seconds it needs to start and is used, then how it drains."""

    start: float = 5
    works: float = 30
    cells_only: bool = False  # a sleeping cell instead of device use
    fails: int = 0  # starts that fail first
    drain: str = "done"  # done | blocked | silent
    claims: bool = True
    returns: float | None = None
    release: float = 5  # seconds until the last process is gone
    hears: bool = True  # evidence comes


@dataclass
class World:
    """State of everything; ``step`` is one tick."""

    policy: PolicyDocument
    devices: list[Device]
    now: datetime = NOW
    leases: dict[str, Lease] = field(default_factory=dict)
    habits: dict[str, Habit] = field(default_factory=dict)
    idleness: dict[str, IdleState] = field(default_factory=dict)
    since: dict[str, datetime] = field(default_factory=dict)
    drain_sent: dict[str, datetime] = field(default_factory=dict)
    old: dict[str, tuple[tuple[str, ...], datetime]] = field(default_factory=dict)
    grants: list[tuple[str, datetime]] = field(default_factory=list)
    alerts: list[Alert] = field(default_factory=list)
    tickets: int = 0

    def ask(self, user: str, habit: Habit, count: int = 1) -> Lease:
        self.tickets += 1
        wish = admission_check.Ask(user, "", count=count)
        ticket = (self.now, self.tickets)
        answer = admission_check.answer(wish, self.snapshot(), f"l{self.tickets:03}", ticket)
        self._put(answer.lease)
        if answer.new:
            self.habits[answer.lease.id] = habit
        return answer.lease

    def step(self) -> list[Action]:
        self.now += timedelta(seconds=TICK)
        self._people()
        self._evidence()
        actions = plan(self.snapshot())
        assert len({a.lease_id for a in actions if not isinstance(a, Alert)}) == len(
            [a for a in actions if not isinstance(a, Alert)]
        ), "one action a lease and plan"
        for action in actions:
            self._perform(action)
        self._check()
        return actions

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds / TICK)):
            self.step()

    def snapshot(self) -> Snapshot:
        live = [x for x in self.leases.values() if self._remembered(x)]
        return Snapshot(
            now=self.now,
            policy=self.policy,
            devices=tuple(replace(d, occupied_by=self._occupant(d)) for d in self.devices),
            leases=tuple(live),
            evidence={i: self.idleness[i].evidence for i in self.idleness},
            observed={x.id: self._observe(x) for x in live if x.state in lifecycle.HOLDING},
        )

    def _remembered(self, lease: Lease) -> bool:
        if lease.state is not LeaseState.ENDED:
            return True
        nominee = self.leases.get(lease.nominated_for or "")
        return nominee is not None and nominee.state is LeaseState.QUEUED

    def _occupant(self, device: Device) -> str | None:
        for lease in self.leases.values():
            if device.uuid not in lease.devices:
                continue
            if lease.state in lifecycle.HOLDING:
                return lease.id
            released = self.habits[lease.id].release
            if lease.ended and (self.now - lease.ended).total_seconds() < released:
                return lease.id
        for lease_id, (devices, since) in self.old.items():  # of what became another shape
            released = self.habits[lease_id].release
            if device.uuid in devices and (self.now - since).total_seconds() < released:
                return lease_id
        return device.occupied_by

    def _observe(self, lease: Lease) -> Observed:
        habit = self.habits[lease.id]
        age = self._age(lease)
        failed = lease.attempt <= habit.fails and lease.state is LeaseState.STARTING
        answered = self.now - self.drain_sent.get(lease.id, self.now) >= timedelta(seconds=TICK)
        drained = ""
        if lease.state is LeaseState.DRAINING and answered and habit.drain != "silent":
            drained = "parked" if lease.park and habit.drain == "blocked" else habit.drain
        return Observed(
            lease.id,
            lease.attempt,
            connected=not failed and (lease.state is not LeaseState.STARTING or age >= habit.start),
            failed="supervisor_failed" if failed else "",
            drained=drained,
            in_use=habit.claims,
        )

    def _people(self) -> None:
        for lease in list(self.leases.values()):
            habit = self.habits[lease.id]
            if lease.state in (LeaseState.ACTIVE, LeaseState.WARNED) and lease.active_since:
                held = (self.now - lease.active_since).total_seconds()
                if habit.claims and lease.claimed is None:
                    lease = self._put(lifecycle.claim(lease, self.now))
                if habit.returns is not None and held >= habit.returns:
                    outs = lifecycle.time_outs_of(self.policy, lease)
                    self._put(lifecycle.give_back(lease, self.now, outs))
                    self.drain_sent[lease.id] = self.now

    def _evidence(self) -> None:
        for lease in self.leases.values():
            if lease.state not in lifecycle.HOLDING or lease.active_since is None:
                self.idleness.pop(lease.id, None)
                continue
            habit = self.habits[lease.id]
            works = (self.now - lease.active_since).total_seconds() < habit.works
            use = 0.8 if works and not habit.cells_only else 0.0
            samples = (
                [DeviceSample(self.now, use)],
                [ActivitySample(self.now, 1 if works else 0)],
            )
            self.idleness[lease.id] = advance(
                self.idleness.get(lease.id) or begin(self.now),
                *(samples if habit.hears else ([], [])),
                self.now,
                time_outs=lifecycle.time_outs_of(self.policy, lease),
                active_since=lease.active_since,
            )

    def _perform(self, action: Action) -> None:
        if isinstance(action, Alert):
            self.alerts.append(action)
            return
        lease = self.leases[action.lease_id]
        outs = lifecycle.time_outs_of(self.policy, lease)
        after = self._put(lifecycle.apply(lease, action, self.now, outs))
        if isinstance(action, Reshape):
            self.old[lease.id] = lease.devices, self.now
        if isinstance(action, Start):
            self.grants.append((lease.id, self.now))
        if after.state is LeaseState.DRAINING:
            self.drain_sent[lease.id] = self.now

    def _put(self, lease: Lease) -> Lease:
        before = self.leases.get(lease.id)
        if before is None or before.state is not lease.state:
            self.since[lease.id] = self.now
        self.leases[lease.id] = lease
        return lease

    def _age(self, lease: Lease) -> float:
        return (self.now - self.since[lease.id]).total_seconds()

    def _check(self) -> None:
        holders = [x for x in self.leases.values() if x.state in lifecycle.HOLDING]
        held = [uuid for lease in holders for uuid in lease.devices]
        assert len(held) == len(set(held)), "no device is granted twice"
        for lease in self.leases.values():
            outs = lifecycle.time_outs_of(self.policy, lease)
            bound = self._bound(lease)
            assert bound is None or self._age(lease) <= bound + 3 * TICK, (lease, self._age(lease))
            over = (LeaseState.ENDED, LeaseState.STARTING)  # what starts is warned once it is there
            if lease.hard_end is not None and lease.state not in over:
                last = outs.warning + outs.drain_max + 2 * outs.interrupt_grace
                late = (self.now - lease.hard_end).total_seconds()
                assert late <= last + 4 * TICK, ("the hard end is the end", lease)

    def _bound(self, lease: Lease) -> float | None:
        outs = lifecycle.time_outs_of(self.policy, lease)
        draining = outs.drain_max + 2 * outs.interrupt_grace
        return {
            LeaseState.STARTING: outs.start_max,
            # A run that gives way finishes its cell first.
            LeaseState.WARNED: outs.warning + (self.policy.batch_cell if lease.batch else 0),
            LeaseState.DRAINING: draining,
            LeaseState.ACTIVE: outs.hard_length,
        }.get(lease.state)


#: How long (seconds) a request may need from a free device to its end, whatever it does.
def longest_life(policy: PolicyDocument) -> float:
    outs = policy.time_outs
    tries = MAX_FAILURES * (outs.start_max + MAX_BACK_OFF)
    return tries + outs.hard_length + outs.warning + outs.drain_max + 2 * outs.interrupt_grace
