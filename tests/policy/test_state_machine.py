"""The whole core under whatever may happen to it, in any order, and what must hold after each step.

People ask, use, idle and leave; servers go; policies change under running leases; labs are booked;
devices and machines fail, leave and come; the clock jumps; the service dies between what it wrote
down and what it did.  The promises are those that every replay checks too.  Each mutant below
breaks one of them and is found.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gpulease.errors import GPULeaseError
from gpulease.policy import admission as wishes_of_leases
from gpulease.policy import admission_check, capacity, fitting, lifecycle, limits, planner, queue
from gpulease.policy.calendar.reservation import Window
from gpulease.policy.model import Action, Alert, Lease, LeaseState, Requeue, Snapshot, Start
from gpulease.policy.planner import plan
from gpulease.policy.projects import Member
from gpulease.policy.reclaim import over_quota, reclaim_candidates
from tests.policy.build import NOW, cards, policy
from tests.policy.fairness.build import project, shared
from tests.policy.reservations.build import window
from tests.policy.test_world import OUTS
from tests.policy.world import TICK, Habit, World
from tests.simulate.invariants import check_plan, check_state

GIB = 2**30
GROUPS = ("", "phys", "cs101", "phys", "bio")
#: So that what is held over quota can be taken within a story.
OUTS = replace(OUTS, minimum_runtime=40)
#: Policies of one site over the years: what bounds the states of a lease is the same in all.
BASE = policy(OUTS, leases_per_user=3)
SHARED = replace(
    shared(
        project("phys", guarantee=2, limit=3),
        project("bio", guarantee=1, members=Member(limit=2)),
        project("rest", group="", everyone=True),
    ),
    classes=BASE.classes,
    time_outs=OUTS,
)
HASTY = replace(OUTS, idle=10, idle_under_pressure=5, quiet=20, keep=10)
POLICIES = {
    "base": BASE,
    "shared": SHARED,
    "one each": replace(BASE, leases_per_user=1),
    "hasty": replace(
        BASE, time_outs=HASTY, classes=tuple(replace(c, time_outs=HASTY) for c in BASE.classes)
    ),
    "paused": replace(BASE, pools=tuple(replace(p, paused=True) for p in BASE.pools)),
    "class gone": replace(BASE, classes=BASE.classes[1:], default_class="slice"),
    "gangs wait": replace(SHARED, gang_hold_max=0),
}
habits = st.builds(
    Habit,
    start=st.sampled_from([0, 0, 5, 5, 29, 1000]),
    works=st.sampled_from([0, 20, 200, 10_000, 10_000]),
    cells_only=st.sampled_from([False, False, True]),
    fails=st.sampled_from([0, 0, 0, 0, 1, 3]),
    drain=st.sampled_from(["done", "blocked", "silent"]),
    claims=st.sampled_from([True, True, True, False]),
    returns=st.sampled_from([None, None, None, 50]),
    release=st.sampled_from([5, 30]),
    hears=st.sampled_from([True, True, True, True, False]),
).map(lambda habit: habit if habit.claims else replace(habit, works=0))  # who uses it took it


wishes = st.tuples(
    habits,
    st.integers(0, 1),
    st.sampled_from(GROUPS),
    st.fixed_dictionaries(
        {
            "count": st.sampled_from([1, 1, 1, 2, 3, 4]),
            "min_count": st.sampled_from([None, None, 1, 2]),
            "nodes": st.sampled_from([1, 1, 2]),
            "batch": st.sampled_from([False, False, False, True]),
            "needs": st.sampled_from(["", "", "", "memory>=30GiB"]),
            "in_quota_only": st.integers(0, 9).map(lambda n: n == 9),
        }
    ),
)


@dataclass
class Site(World):
    """A world with labs, people in groups, and a service that may die; checks what is promised."""

    windows: list[Window] = field(default_factory=list)

    def ask_as(self, user: str, habit: Habit, **wish: object) -> None:
        """Ask, and take a refusal for an answer."""
        self.tickets += 1
        ask = admission_check.Ask(user, f"s{self.tickets % 4}", **wish)  # type: ignore[arg-type]
        ticket = (self.now, self.tickets)
        try:
            answer = admission_check.answer(ask, self.snapshot(), f"l{self.tickets:03}", ticket)
        except GPULeaseError:
            return
        self._put(answer.lease)
        if answer.new:
            self.habits[answer.lease.id] = habit

    def snapshot(self) -> Snapshot:
        near = [w for w in self.windows if w.last_end > self.now]
        return replace(super().snapshot(), windows=tuple(near), several_nodes=True)

    def step(self) -> None:
        self.now += timedelta(seconds=TICK)
        self._people()
        self._evidence()
        view = self.snapshot()
        again = {x.id for x in queue.reshaping(view)}
        actions = plan(view)
        assert plan(shuffled(view)) == actions, "whatever the listing"
        check_plan(view, actions)
        for action in actions:
            self._perform(action)
        self._check_starts(actions, again)
        self._check()
        if not any(isinstance(a, Requeue) for a in actions):  # what it held is the next plan's
            check_state(self.snapshot(), 4 * TICK)

    def _check_starts(self, actions: list[Action], again: set[str]) -> None:
        """Nobody is let in beyond what the policy allows, and into no pool that is paused: but for
        those who are let in ``again``, as what their lease has become.
        """
        paused = {each.name for each in self.policy.pools if each.paused}
        holders = [x for x in self.live() if x.state in lifecycle.HOLDING]
        for start in (a for a in actions if isinstance(a, Start) and a.lease_id not in again):
            assert start.pool not in paused, "nothing of a paused pool is granted"
            lease = self.leases[start.lease_id]
            mine = sum(x.user == lease.user for x in holders)
            assert mine <= self.policy.leases_per_user, "as many as one person may have"
            home = self.policy.projects.home(lease.project)
            most = home.share(start.pool).limit
            used = sum(x.count for x in holders if x.project == lease.project)
            assert most is None or used <= most, "as many as the project may have"

    def die(self, written: int) -> None:
        """Plan, write down so many of the actions and do none: then forget all but the leases."""
        actions = [a for a in plan(self.snapshot()) if not isinstance(a, Alert)]
        for action in actions[:written]:
            lease = self.leases[action.lease_id]
            outs = lifecycle.time_outs_of(self.policy, lease)
            after = self._put(lifecycle.apply(lease, action, self.now, outs))
            if isinstance(action, Start):  # nobody was told: this attempt never comes up
                habit = self.habits[after.id]
                self.habits[after.id] = replace(habit, fails=max(habit.fails, after.attempt))
        self.idleness.clear()
        self.since.update({x.id: max(self.since[x.id], x.state_since or NOW) for x in self.live()})

    def live(self) -> list[Lease]:
        return [x for x in self.leases.values() if x.state is not LeaseState.ENDED]


def shuffled(view: Snapshot) -> Snapshot:
    pick = random.Random(len(view.leases))
    leases, devices = list(view.leases), list(view.devices)
    pick.shuffle(leases)
    pick.shuffle(devices)
    return replace(view, leases=tuple(leases), devices=tuple(devices))


class Core(RuleBasedStateMachine):
    """Everything that may happen, by the hand of hypothesis."""

    policies = POLICIES

    @initialize(
        devices=st.integers(2, 6),
        nodes=st.integers(1, 3),
        crowd=st.lists(wishes, min_size=2, max_size=6),
    )
    def begin(self, devices: int, nodes: int, crowd) -> None:
        """A site with people on it: an empty one is a story of nothing."""
        made = [
            replace(d, node=f"n{n % nodes}", memory=(16 + 24 * (n % 2)) * GIB)
            for n, d in enumerate(cards(devices))
        ]
        self.site = Site(self.policies["shared"], made)
        self.joined = devices
        self.people_ask(crowd)

    @rule(wishes=st.lists(wishes, min_size=1, max_size=4))
    def people_ask(self, wishes):
        for habit, user, group, wish in wishes:
            groups = (group,) if group else ()
            self.site.ask_as(f"{group}{user}", habit, groups=groups, **wish)

    # Hypothesis leaves some rules out of each story: whatever it leaves out, time goes on and
    # people come.
    @rule(ticks=st.sampled_from([6, 1, 3, 30]), comes=wishes)
    def somebody_comes_and_time_passes(self, ticks, comes):
        self.people_ask([comes])
        self.time_passes(ticks)

    @rule(ticks=st.sampled_from([2, 1, 5, 12, 40]))
    def time_passes(self, ticks):
        for _ in range(ticks):
            self.site.step()

    @rule(name=st.sampled_from(["base", "shared", *sorted(POLICIES)]))
    def policy_changes(self, name):
        self.site.policy = self.policies[name]

    @precondition(lambda self: len(self.site.windows) < 3)
    @rule(seats=st.integers(1, 3), start=st.sampled_from([0, 60, 300]), exam=st.booleans())
    def a_lab_is_booked(self, seats, start, exam):
        begins = (self.site.now - NOW).total_seconds() + start
        name = f"lab{len(self.site.windows)}"
        self.site.windows.append(window(name, begins, 300.0, seats=seats, exam=exam, lead=60))

    @rule(which=st.integers(0, 9), what=st.sampled_from(["lost", "healthy", "leaving", "gone"]))
    def a_device_changes(self, which, what):
        devices = self.site.devices
        if not devices:
            return
        at = which % len(devices)
        if what == "gone":
            holder = {u for x in self.site.live() for u in x.devices}
            if devices[at].uuid not in holder:
                del devices[at]
        else:
            devices[at] = replace(devices[at], **{what: not getattr(devices[at], what)})

    @rule()
    def a_device_joins(self):
        (new,) = cards(1, node="n9", memory=40 * GIB)
        self.site.devices.append(replace(new, uuid=f"GPU-{self.joined}"))
        self.joined += 1

    @rule(
        least=st.integers(1, 2),
        drain=st.sampled_from(["done", "done", "blocked", "silent"]),
        release=st.sampled_from([5, 30]),
        ticks=st.integers(2, 25),
    )
    def what_is_borrowed_is_asked_for_in_part(self, least, drain, release, ticks):
        """One of phys borrows with several GPUs, all others fail, and bio wants what it owns.
        Whatever comes next meets them in any stage of it.
        """
        self.site.policy = self.policies["shared"]
        uses = Habit(start=0, works=10_000, drain=drain, release=release)
        self.site.ask_as("phys9", uses, groups=("phys",), count=3, min_count=least)
        self.time_passes(10)
        held = {u for x in self.site.live() if x.user == "phys9" for u in x.devices}
        self.site.devices = [replace(d, healthy=d.uuid in held) for d in self.site.devices]
        self.site.ask_as("bio9", replace(uses, start=5), groups=("bio",))
        self.time_passes(ticks)

    @rule(which=st.integers(0, 9), how=st.sampled_from(["server", "return", "keep", "wish"]))
    def a_person_acts(self, which, how):
        live = self.site.live()
        if not live:
            return
        lease = live[which % len(live)]
        outs = lifecycle.time_outs_of(self.site.policy, lease)
        try:
            if how == "server":
                after = lifecycle.server_gone(lease, self.site.now)
            elif how == "return":
                after = lifecycle.give_back(lease, self.site.now, outs)
            elif how == "wish":
                shape = wishes_of_leases.granted(self.site.snapshot(), lease)
                after = lifecycle.reshape(lease, shape, self.site.now, outs)
            else:
                after = lifecycle.keep(lease, self.site.now, outs)
        except GPULeaseError:
            return
        if after.state is LeaseState.DRAINING and lease.state is not after.state:
            self.site.drain_sent[after.id] = self.site.now
        self.site._put(after)

    @rule(seconds=st.sampled_from([30, 30, 30, 300, 3600]))
    def the_clock_jumps(self, seconds):
        """The machine slept: nobody planned, nothing was seen, and all bounds start again."""
        self.site.now += timedelta(seconds=seconds)
        self.site.idleness.clear()
        awake(self.site)

    @rule(written=st.integers(0, 3))
    def the_service_dies(self, written):
        self.site.die(written)


def awake(site: Site) -> None:
    """Plan until what fell due in the sleep is done; states are late until then, and only so."""
    for _ in range(60):
        site.now += timedelta(seconds=TICK)
        site._people()
        view = site.snapshot()
        actions = plan(view)
        check_plan(view, actions)
        for action in actions:
            site._perform(action)
    site.idleness.clear()


QUICK = settings(
    max_examples=8, stateful_step_count=20, deadline=None,
    suppress_health_check=list(HealthCheck), derandomize=True, database=None,
)  # fmt: skip
NIGHTLY = settings(QUICK, max_examples=2000, stateful_step_count=60, derandomize=False)
#: A mutant is to be found, not to be told of in the shortest way.
FOUND = settings(QUICK, max_examples=500, phases=[Phase.generate])


def test_whatever_happens_the_promises_hold():
    run_state_machine_as_test(Core, settings=QUICK)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_whatever_happens_the_promises_hold_in_long_stories():
    run_state_machine_as_test(Core, settings=NIGHTLY)


def everything(snapshot):
    """All devices that work, in use or not."""
    found = {}
    for device in capacity.known_devices(snapshot).values():
        if capacity.grantable(device):
            found.setdefault(device.pool, []).append(device)
    return found


def anywhere(nodes, count, *_rest, **_named):
    return [device for there in nodes.values() for device in there][:count]


def parts_anywhere(nodes, request, *_rest, **_named):
    return anywhere(nodes, request.count)


def as_listed(snapshot):
    return tuple(x for x in snapshot.leases if x.state is LeaseState.QUEUED)


def never(*_arguments, **_named):
    return None


def all_kept(snapshot, _ending=frozenset()):
    """All that is free is kept for somebody who does not come."""
    return {d.uuid: "nobody" for free in capacity.free_devices(snapshot).values() for d in free}


def hasty(policy_in_force, lease):
    return replace(lifecycle.time_outs_of(policy_in_force, lease), warning=1.0)


#: The rule -> where it stands, its name, and what stands there in its place.
MUTANTS = {
    "a device is granted to one": (capacity, "free_devices", everything),
    "devices of one machine": (fitting, "of_one_node", anywhere),
    "each node's devices of one machine": (fitting, "for_request", parts_anywhere),
    "devices that suit": (fitting, "suits", lambda *_: True),
    "limits of people and projects": (limits, "kept_waiting", never),
    "in the order of the queue": (queue, "waiting", as_listed),
    "what is free is given": (fitting.Inventory, "line", lambda *_: {}),
    "kept is only what was given up": (planner, "holds", all_kept),
    "who is in use is not idle": (reclaim_candidates, "idle_case", lambda *_, **__: "idle"),
    "a minimum runtime": (over_quota, "may_go", lambda *_: True),
    "a quota": (over_quota.Borrowed, "_is_over_quota", lambda *_: True),
    "a hard end": (planner, "_expiring", never),
    "a full warning": (planner, "time_outs_of", hasty),
    "a drain has a bound": (planner, "_draining", never),
}


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rule_broken", MUTANTS)
def test_a_mutant_of_a_rule_is_found(rule_broken, monkeypatch):
    where, name, mutant = MUTANTS[rule_broken]
    monkeypatch.setattr(where, name, mutant)
    with pytest.raises(Exception) as broken:  # noqa: PT011 - what it says is looked at below
        run_state_machine_as_test(Core, settings=FOUND)
    assert isinstance(broken.value, AssertionError), broken.value
