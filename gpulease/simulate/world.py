"""Replays a trace under one policy: the same plan, a virtual clock, simulated people and devices.

What the service and a provider do otherwise is done here: asks are answered, actions recorded,
starts and drains take their time, reserved sessions begin and end.  A plan is made whenever
something may have changed, and at least each minute while somebody waits.  ``policy`` decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import inf
from statistics import median

from gpulease.policy import admission_check, capacity, lifecycle
from gpulease.policy.budgets import Accounts, use_of
from gpulease.policy.calendar.reservation import Window, windows_of
from gpulease.policy.capacity import waits_for_node
from gpulease.policy.explanation.forecast import ExpectedWaits
from gpulease.policy.idleness import WINDOW
from gpulease.policy.model import (
    Action,
    Alert,
    Device,
    Evidence,
    Lease,
    LeaseState,
    Observed,
    PolicyDocument,
    Snapshot,
    TimeOuts,
)
from gpulease.policy.planner import plan
from gpulease.simulate import evidence
from gpulease.simulate.clock import Clock
from gpulease.simulate.crowd import Crowd
from gpulease.simulate.nodes import Nodes, Ready, devices_of
from gpulease.simulate.outcome import ReplayOutcome, Tally
from gpulease.simulate.people import Person, Phase
from gpulease.simulate.trace import Trace

#: A window that opens within this time is near.
_NEAR = timedelta(hours=1)
#: The planner sees windows whose hold begins within this time, as in the service.
_AHEAD = timedelta(days=1)


class Windows:
    """The windows of all reservations whose class is on offer.

    Args:
        trace: names the reservations.
        policy: says which classes there are.
    """

    def __init__(self, trace: Trace, policy: PolicyDocument) -> None:
        pools = {each.name: each.pool for each in policy.classes}
        self._all: list[Window] = [
            window
            for each in trace.reservations
            if each.gpu_class in pools
            for window in windows_of(each, policy.reservations, pools[each.gpu_class])
        ]

    def changes(self) -> Iterator[datetime]:
        """Yield the instants at which a window may change what is planned."""
        for window in self._all:
            yield from (window.hold_from - _NEAR, window.start, window.last_end)

    def is_near(self, now: datetime) -> bool:
        """Whether one is open, or opens soon."""
        return any(w.hold_from - _NEAR <= now <= w.last_end for w in self._all)

    def ahead(self, now: datetime) -> tuple[Window, ...]:
        """Return those that the planner sees."""
        return tuple([w for w in self._all if w.hold_from <= now + _AHEAD and w.last_end > now])


#: Seconds between two plans at most while somebody waits, or a window is open or near.
LOOK = 60.0


@dataclass(frozen=True)
class Assumptions:
    """What a replay takes for granted where the trace does not tell (seconds, but ``think``).

    ``think`` multiplies everybody's time to think, ``resolution`` is how finely time passes.
    ``claim`` is a start in a pod that stood ready; ``unneeded`` is how long an added node stays
    that nobody uses.
    """

    start: float = 5.0
    claim: float = 1.0
    drain: float = 2.0
    release: float = 2.0
    unneeded: float = 600.0
    think: float = 1.0
    resolution: float = 1.0


_AS_USUAL = Assumptions()


def replay(
    trace: Trace,
    policy: PolicyDocument,
    devices: Sequence[Device],
    assumed: Assumptions = _AS_USUAL,
    *,
    name: str = "",
    watch: str = "",
) -> ReplayOutcome:
    """Return what would have come of a trace under a policy, with the time line of one GPU.

    ``watch``: its identifier; "" is the one that was held most.

    Raises:
        BrokenPromise: the planner did what it must never do.
    """
    there = tuple(capacity.with_parts(map(_unused, devices), policy.parts))
    return _World(trace, policy, there, assumed, watch).run(name)


def _unused(device: Device) -> Device:
    """Return a device as a replay finds it: who used it when it was noted is not in the replay."""
    return replace(device, occupied_by=None, healthy=True, lost=False, leaving=False, warm="")


class _World:
    """State of one replay: ``crowd.Site`` for the people, the service and a provider for leases."""

    def __init__(
        self,
        trace: Trace,
        policy: PolicyDocument,
        devices: Sequence[Device],
        assumed: Assumptions,
        watch: str,
    ) -> None:
        self._policy = policy
        self._assumed = assumed
        self._leases: dict[str, Lease] = {}  # live, or ended with something left to do
        self._holder: dict[str, Person] = {}
        self._evidence: dict[str, Evidence] = {}
        self._observed: dict[str, Observed] = {}
        self._granted: dict[str, float] = {}
        self._lengths: deque[float] = deque(maxlen=50)
        self._expected = ExpectedWaits()
        self._tickets = 0
        self._plan_wanted = False
        self._next_look = 0.0
        self._windows = Windows(trace, policy)
        self._tally = Tally(trace.length, policy, watch)
        self._clock = Clock(trace.begin, trace.length, self._tally.pass_until)
        self._nodes = Nodes(
            policy, self._clock, devices, assumed.unneeded,
            arrived=self._landed, waits=self._waits_for_node, stood=self._tally.there,
            wanted=lambda: devices_of(self._leases.values()),
        )  # fmt: skip
        self._accounts = Accounts(policy.projects, self._clock.now)
        self._ready = Ready(policy, self._clock, assumed.start, self._tally.ready)
        people = [Person(each, assumed.think) for each in trace.sessions if each.bursts]
        self._crowd = Crowd(people, self._clock, self._tally, self, assumed.resolution)

    def run(self, name: str) -> ReplayOutcome:
        """Go through the whole trace."""
        clock = self._clock
        for at in self._windows.changes():
            clock.at(clock.seconds(at), self._look)
        for seconds in self._ready.changes():
            clock.at(seconds, self._look)
        while clock.step(self._assumed.resolution):
            if self._plan_wanted:
                self._plan_wanted = False
                self._plan()
        clock.go(clock.length)
        for lease_id, since in self._granted.items():
            self._tally.held(self._leases[lease_id], clock.t - since)
        return self._tally.outcome(name, self._crowd.people, clock.t)

    def _look(self) -> None:
        self._plan_wanted = True

    # --- what the people do

    def lease_of(self, person: Person) -> Lease | None:
        """Return the person's present lease or request."""
        return self._leases.get(person.lease or "")

    def ask(self, person: Person) -> None:
        """Answer an ask, as the service does."""
        self._tickets += 1
        session = person.session
        wish = admission_check.Ask(
            session.user,
            session.id,
            gpu_class=session.gpu_class or None,
            count=session.count,
            groups=session.groups or ((session.project,) if session.project else ()),
        )
        ticket = (self._clock.now, self._tickets)
        answer = admission_check.answer(wish, self._snapshot(), f"l{self._tickets:07}", ticket)
        person.lease = answer.lease.id
        self._holder[answer.lease.id] = person
        if answer.new or answer.changed:
            self._put(self._leases.get(answer.lease.id), answer.lease)

    def used(self, lease: Lease) -> None:
        """Plan again where the lease had been warned."""
        if lease.state is LeaseState.WARNED:
            self._look()

    def rests(self, person: Person, lease: Lease, until: float | None) -> None:
        """Look when an idle lease may be due, if its person has not come back before."""
        outs, clock = self._outs(lease), self._clock
        begins = max(
            (person.stopped or 0.0) + WINDOW,
            clock.seconds(lease.active_since or clock.now) + outs.warm_up,
            clock.seconds(lease.kept_until or lease.idle_from or clock.begin),
        )
        for seconds in sorted({outs.idle_under_pressure, outs.idle, outs.quiet}):
            due = begins + seconds
            if due > clock.t and (until is None or due < until):
                clock.at(due, self._look_at(lease, urgent=seconds < outs.idle))

    def closed(self, person: Person) -> None:
        """End the lease or request of a server that ended."""
        lease = self.lease_of(person)
        if lease is not None and lease.state is not LeaseState.ENDED:
            self._put(lease, lifecycle.server_gone(lease, self._clock.now))
            self._look()

    # --- the planner

    def _plan(self) -> None:
        self._see()
        view = self._snapshot()
        actions = plan(view)
        self._tally.planned(actions, self._leases)
        for action in actions:
            if not isinstance(action, Alert):
                self._perform(action)
        view = self._snapshot()
        self._tally.expected(self._expected.look(view))
        self._ready.stand(view)
        self._look_later()

    def _look_later(self) -> None:
        """Look again in a minute while anything may change without an event of ours."""
        now = self._clock.now
        near = self._windows.is_near(now)
        if (near or self._waits()) and self._next_look <= self._clock.t:
            self._next_look = self._clock.t + LOOK
            self._clock.at(self._next_look, self._look)

    def _look_at(self, lease: Lease, *, urgent: bool = False) -> Callable[[], None]:
        """Look at a lease unless it has moved on; ``urgent``: only while somebody waits."""
        state = lease.state

        def look() -> None:
            known = self._leases.get(lease.id)
            if known is not None and known.state is state and not (urgent and not self._waits()):
                self._look()

        return look

    def _waits(self) -> bool:
        return any(x.state is LeaseState.QUEUED for x in self._leases.values())

    def _snapshot(self) -> Snapshot:
        now = self._clock.now
        if self._accounts.is_over(now):
            self._accounts.renew(now)
        return Snapshot(
            now=now,
            policy=self._policy,
            devices=self._nodes.devices,
            leases=tuple(self._leases.values()),
            evidence=self._evidence,
            observed=self._observed,
            typical_length=median(self._lengths) if self._lengths else None,
            windows=self._windows.ahead(now),
            use=self._accounts.use(now),
            spent=self._accounts.spent(now),
            wait_spread=self._expected.spread,
            grows=self._nodes.grows,
        )

    def _see(self) -> None:
        """Bring the evidence of every lease up to now."""
        there = [(self._leases[each], self._holder[each]) for each in self._observed]
        self._evidence = evidence.of(there, self._evidence, self._clock, self._outs)

    def _perform(self, action: Action) -> None:
        before = self._leases[action.lease_id]
        after = lifecycle.apply(before, action, self._clock.now, self._outs(before))
        self._put(before, after)

    # --- leases

    def _put(self, before: Lease | None, after: Lease) -> None:
        """Record a lease and let its change have its effects."""
        self._leases[after.id] = after
        self._tally.lease(before, after)
        use = use_of(before, after)
        if use is not None:
            self._accounts.add(use)
        if before is None or before.state is not after.state:
            self._moved(before, after)

    def _moved(self, before: Lease | None, after: Lease) -> None:
        self._observe(after)
        clock, state = self._clock, after.state
        if state is LeaseState.QUEUED:
            self._look()
            if before is not None and before.devices:  # its start failed
                self._free(before)
            if after.not_before is not None:
                clock.at(clock.seconds(after.not_before), self._look)
        elif state is LeaseState.STARTING and waits_for_node(after, self._policy):
            self._nodes.add_for(after)
        elif state is LeaseState.STARTING:
            assumed = self._assumed
            takes = min(assumed.start, assumed.claim if self._ready.claim(after) else inf)
            self._starts(after, after.devices, takes)
        elif state is LeaseState.ACTIVE:
            self._active(before, after)
        elif state is LeaseState.WARNED and after.warned_until is not None:
            clock.at(clock.seconds(after.warned_until), self._look_at(after))
        elif state is LeaseState.DRAINING:
            self._crowd.drains(self._holder[after.id], after)
            clock.after(self._assumed.drain, self._seen(after, drained="done"))
        elif state is LeaseState.ENDED:
            self._ended(before, after)

    def _starts(self, lease: Lease, devices: Sequence[str], takes: float) -> None:
        """Let a lease start on its devices."""
        self._granted[lease.id] = self._clock.t
        self._nodes.show(devices, lease.id)
        self._clock.after(takes, self._seen(lease, connected=True, in_use=True))
        self._clock.after(self._outs(lease).start_max, self._look_at(lease))

    def _landed(self, lease: Lease, devices: Sequence[Device]) -> None:
        """Let a lease start on the nodes that were added for it, if it still waits for them."""
        if self._waits_for_node(lease):
            known, mine = self._leases[lease.id], tuple([each.uuid for each in devices])
            self._starts(known, mine, self._assumed.start)
            self._seen(known, devices=mine, stage="starting")()
        self._look()

    def _waits_for_node(self, lease: Lease) -> bool:
        """Tell whether an attempt of a lease still waits for its node."""
        known = self._leases.get(lease.id)
        same = known is not None and known.attempt == lease.attempt
        return known is not None and same and waits_for_node(known, self._policy)

    def _observe(self, lease: Lease) -> None:
        """Show of a lease what there is to see of it in its new state."""
        if lease.state in lifecycle.HOLDING:
            there = lease.state is not LeaseState.STARTING
            adding = not there and waits_for_node(lease, self._policy)
            stage = "adding_node" if adding else ""
            self._observed[lease.id] = Observed(
                lease.id, lease.attempt, connected=there, in_use=there, stage=stage
            )
        else:
            self._observed.pop(lease.id, None)

    def _active(self, before: Lease | None, after: Lease) -> None:
        person = self._holder[after.id]
        if before is not None and before.state is LeaseState.STARTING:
            self._leases[after.id] = lifecycle.claim(after, self._clock.now)
            if after.hard_end is not None:
                warned = after.hard_end - timedelta(seconds=self._outs(after).warning)
                self._clock.at(self._clock.seconds(warned), self._look_at(after))
        if person.phase is Phase.WAITING:
            self._crowd.granted(person)
        elif person.phase is Phase.THINKING:  # what was to be taken stays, and is still idle
            self.rests(person, after, None)

    def _ended(self, before: Lease | None, after: Lease) -> None:
        if before is not None and before.state in lifecycle.HOLDING:
            if after.active_since is not None:
                lasted = self._clock.now - after.active_since
                self._lengths.append(lasted.total_seconds())
            self._clock.after(self._assumed.release, lambda: self._released(after))
        else:
            self._forget(after)
        self._crowd.ended(self._holder[after.id], after)

    def _released(self, lease: Lease) -> None:
        """Let the devices of an ended lease be free."""
        self._free(lease)
        self._forget(lease)

    def _free(self, lease: Lease) -> None:
        if lease.id in self._granted:  # else it had waited for a node
            self._tally.held(lease, self._clock.t - self._granted.pop(lease.id))
        self._nodes.show(lease.devices, None)
        self._look()

    def _forget(self, lease: Lease) -> None:
        """Let go of an ended lease once the request that it was taken for waits no more."""
        nominee = self._leases.get(lease.nominated_for or "")
        if nominee is not None and nominee.state is LeaseState.QUEUED:
            self._clock.after(LOOK, lambda: self._forget(lease))
        else:
            # Not at once: who is told of the end looks at it still.
            self._clock.after(0.0, lambda: self._drop(lease.id))

    def _drop(self, lease_id: str) -> None:
        self._leases.pop(lease_id, None)
        self._holder.pop(lease_id, None)

    def _seen(self, lease: Lease, **what: object) -> Callable[[], None]:
        """Return what shows something of a lease's attempt, unless it has moved on."""

        def show() -> None:
            known = self._leases.get(lease.id)
            if known is None or (known.state, known.attempt) != (lease.state, lease.attempt):
                return
            shown = replace(self._observed[lease.id], **what)  # type: ignore[arg-type]
            self._observed[lease.id] = shown
            self._look()

        return show

    def _outs(self, lease: Lease) -> TimeOuts:
        return lifecycle.time_outs_of(self._policy, lease)
