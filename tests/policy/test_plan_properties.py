"""Properties of a single plan, over snapshots that hypothesis invents."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from gpulease.policy import capacity, fitting, limits, queue
from gpulease.policy.fairness import turns
from gpulease.policy.health import reactions
from gpulease.policy.lifecycle import HOLDING, apply
from gpulease.policy.model import Alert, Drain, Lease, LeaseState, Start, Warn
from gpulease.policy.planner import admissions, plan
from gpulease.policy.remaining_capacity import gathers
from tests.helpers import draws
from tests.policy.build import (
    OUTS,
    active,
    at,
    busy,
    cards,
    draining,
    idle,
    policy,
    quiet,
    request,
    seen,
    snapshot,
    starting,
    unknown,
    warned,
)
from tests.policy.fairness.build import project, shared

POLICY = policy(leases_per_user=2)
#: The same, with a borrower, an owner, a limit and people in no project.
SHARED = replace(
    POLICY,
    projects=shared(project("phys", 1, 2), project("bio", 2), strength=0.5).projects,
)
evidences = st.one_of(
    st.just(busy()),
    st.builds(idle, st.sampled_from([5, 130, 400, 1000])),
    st.builds(quiet, st.sampled_from([5, 1000])),
    st.just(replace(quiet(1000), word_over=True)),
    st.builds(unknown, st.sampled_from([5, 400, 2000]), st.sampled_from([0, 900])),
)
flags = {
    "healthy": st.sampled_from([True, True, True, False]),
    "lost": st.sampled_from([False, False, False, True]),
    "occupied_by": st.sampled_from([None, None, None, "foreign", "ended"]),
    "leaving": st.sampled_from([False, False, False, True]),
    "serves": st.sampled_from([None, None, None, ("t4",), ("slice",)]),
}
#: One machine, or several of one, two or three devices.
layouts = st.sampled_from([0, 0, 1, 2, 3])
# Made once: most of an example's time went into making strategies anew.
few, many = st.integers(0, 6), st.integers(0, 9)
kinds = st.sampled_from([request, request, starting, active, warned, draining])
users = st.sampled_from(["ann", "bob", "cem"])
#: How many devices, and among how many nodes they are divided.
shapes = st.sampled_from([(1, 1), (1, 1), (1, 1), (2, 1), (2, 2), (4, 2)])
asks = {
    "server_ready": st.sampled_from([True, True, False]),
    "not_before": st.sampled_from([None, None, at(5), at(-5)]),
}
rarely = st.sampled_from([False, False, False, True])
kept_for = st.sampled_from([None] * 20 + [f"r{number}" for number in range(10)])
said = {
    "connected": st.booleans(),
    "drained": st.sampled_from(["", "", "done", "blocked"]),
    "gone": st.sampled_from([False, False, False, True]),
    "stage": st.sampled_from(["", "", "scheduling", "pulling"]),
}
projects = st.sampled_from(["phys", "bio", ""])
policies = st.sampled_from([POLICY, SHARED])
homes = st.sampled_from(["", "", "n0", "n1", "n9"])


@st.composite
def worlds(draw):
    apart = draw(layouts)
    devices = [
        replace(
            device,
            node=f"n{number // apart}" if apart else "",
            **{name: draw(choice) for name, choice in flags.items()},
        )
        for number, device in enumerate(cards(draw(few)))
    ]
    free = [d.uuid for d in draw(st.permutations(devices))]
    leases: list[Lease] = []
    evidence, observed = {}, []
    for number in range(draw(many)):
        common = {"user": draw(users), "server": f"s{number}", "project": draw(projects)}
        common["in_quota_only"] = draw(rarely)
        make = draw(kinds)
        if make is request or not free:
            common |= {name: draw(choice) for name, choice in asks.items()}
            common["count"], common["nodes"] = draw(shapes)
            leases.append(request(number, **common))
            continue
        kept = draw(kept_for)
        lease = make(number, devices=(free.pop(),), nominated_for=kept, **common)
        leases.append(lease)
        evidence[lease.id] = draw(evidences)
        observed.append(seen(lease, **{name: draw(choice) for name, choice in said.items()}))
    near = {x.id: node for x in leases if (node := draw(homes))}
    return snapshot(
        leases, tuple(devices), evidence, observed, policy=draw(policies), preferred_nodes=near
    )


def after(view):
    """Return the snapshot as it is once the plan is recorded."""
    leases = {lease.id: lease for lease in view.leases}
    for action in plan(view):
        if not isinstance(action, Alert):
            lease = leases[action.lease_id]
            leases[lease.id] = apply(lease, action, view.now, OUTS)
    return replace(view, leases=tuple(leases.values()))


def the_order_of_the_listing_does_not_matter(view, random):
    leases, devices = list(view.leases), list(view.devices)
    random.shuffle(leases)
    random.shuffle(devices)
    shuffled = replace(view, leases=tuple(leases), devices=tuple(devices))
    assert plan(shuffled) == plan(view)
    assert plan(view) == plan(view)


def every_planned_step_is_possible_and_single(view):
    acted = [a.lease_id for a in plan(view) if not isinstance(a, Alert)]
    assert len(acted) == len(set(acted))
    after(view)


def only_free_devices_are_granted_and_each_once(view):
    free = {d.uuid for each in capacity.free_devices(view).values() for d in each}
    granted = [uuid for a in plan(view) if isinstance(a, Start) for uuid in a.devices]
    assert len(granted) == len(set(granted))
    assert set(granted) <= free
    held = [u for x in after(view).leases if x.state in HOLDING for u in x.devices]
    assert len(held) == len(set(held))
    known, leases = {d.uuid: d for d in view.devices}, {x.id: x for x in view.leases}
    for action in plan(view):
        if isinstance(action, Start):
            given = [known[uuid] for uuid in action.devices]
            lease = leases[action.lease_id]
            each, parts = lease.per_node, range(0, lease.count, lease.per_node)
            assert all(len({d.node for d in given[at : at + each]}) == 1 for at in parts)
            assert all(fitting.suits("t4", d) and not d.leaving for d in given)


def between_two_plans_who_waits_gets_what_a_plan_would_give(view):
    acted = admissions(view)
    free = {d.uuid for each in capacity.free_devices(view).values() for d in each}
    granted = [uuid for a in acted if isinstance(a, Start) for uuid in a.devices]
    assert len(granted) == len(set(granted))
    assert set(granted) <= free
    assert {a.lease_id for a in acted} <= queue.waiting_ids(view)
    if not reactions(view):
        starts = [a for a in plan(view) if isinstance(a, Start)]
        assert [a for a in acted if isinstance(a, Start)] == starts


def where_servers_run_decides_where_and_never_who(view):
    """Requests for one device: with and without the nodes of their servers the same are served."""
    alone = replace(view, leases=tuple(replace(x, count=1, nodes=1) for x in view.leases))
    served = {a.lease_id for a in plan(alone) if isinstance(a, Start)}
    assert served == {
        a.lease_id for a in plan(replace(alone, preferred_nodes={})) if isinstance(a, Start)
    }


def the_first_in_line_is_served_where_its_server_runs(view):
    """It had the choice among all that is free and kept for nobody."""
    requests = turns(view)
    first = [a for a in plan(view) if isinstance(a, Start) and a.lease_id == requests[0].id]
    nominated = any(x.nominated_for for x in view.leases)
    if not first or nominated:
        return
    home, count = view.preferred_nodes.get(requests[0].id, ""), requests[0].count
    free = [d for d in capacity.free_devices(view)["cards"] if fitting.suits("t4", d)]
    known = {d.uuid: d for d in view.devices}
    if home and sum(d.node == home for d in free) >= count:
        assert {known[uuid].node for uuid in first[0].devices} == {home}


def no_end_is_granted_beyond_that_of_what_runs(view):
    seen = {i: replace(each, ends=at(60)) for i, each in view.observed.items()}
    bounded = replace(view, observed=seen)
    for lease in after(bounded).leases:
        if lease.state is LeaseState.ACTIVE and lease.active_since == view.now:
            assert lease.hard_end == at(60)


def work_conserving(view):
    """Who waits after the plan is limited, not ready, or does not fit what stays free."""
    done = after(view)
    # What a lease that ends in this very plan gives back (its device, its user's limit) is the next
    # plan's: so both are counted as if it still held them.
    started = [x for x in done.leases if x.state is LeaseState.STARTING]
    held_before = queue.holding(view)
    known = {x.id for x in held_before}
    held = [*held_before, *(x for x in started if x.id not in known)]
    bounds = limits.Limits(view.policy, held)
    queued = [x for x in queue.waiting(view) if x.id in {y.id for y in queue.waiting(done)}]
    admissible = [r for r in queued if limits.kept_waiting(r, view.now, bounds) is None]
    if any(gathers(r, view) for r in admissible):
        return
    taken = {uuid for x in started for uuid in x.devices}
    free = [d for d in capacity.free_devices(view).get("cards", []) if d.uuid not in taken]
    for lease in admissible:
        suiting = [d for d in free if fitting.suits(lease.gpu_class, d)]
        assert not fitting.room(suiting, lease.count, lease.nodes)


def nobody_busy_or_unheard_of_a_moment_is_asked_to_leave(view):
    for action in plan(view):
        if isinstance(action, Warn) and action.end_reason == "idle":
            evidence = view.evidence[action.lease_id]
            assert max(evidence.idle_for, evidence.quiet_for) > 0 or evidence.unknown_since


def reclaim_for_somebody_names_a_waiting_request_and_takes_no_more_than_it_needs(view):
    done = after(view)
    queued = {x.id: x for x in done.leases if x.state is LeaseState.QUEUED}
    for action in plan(view):
        by_itself = action.reason.startswith(("device", "node"))
        if isinstance(action, Warn | Drain) and action.nominated_for and not by_itself:
            assert action.nominated_for in queued
    for wanted in queued.values():
        fresh = [a for a in plan(view) if isinstance(a, Warn) and a.nominated_for == wanted.id]
        assert len(fresh) <= wanted.count


def a_plan_at_once_after_a_plan_grants_nothing_more(view):
    """What the first plan could do is done, unless it took something from somebody."""
    first = after(view)
    held = {x.id for x in queue.holding(first)}
    if all(x.id in held for x in queue.holding(view)):
        assert not [a for a in plan(first) if isinstance(a, Start)]


def without_capacity_nothing_is_granted_or_reclaimed(view):
    blind = replace(view, capacity_known=False)
    for action in plan(blind):
        assert not isinstance(action, Start)
        if isinstance(action, Warn):
            assert action.end_reason == "expired"


PROMISES = (
    every_planned_step_is_possible_and_single,
    only_free_devices_are_granted_and_each_once,
    between_two_plans_who_waits_gets_what_a_plan_would_give,
    where_servers_run_decides_where_and_never_who,
    the_first_in_line_is_served_where_its_server_runs,
    no_end_is_granted_beyond_that_of_what_runs,
    work_conserving,
    nobody_busy_or_unheard_of_a_moment_is_asked_to_leave,
    reclaim_for_somebody_names_a_waiting_request_and_takes_no_more_than_it_needs,
    a_plan_at_once_after_a_plan_grants_nothing_more,
    without_capacity_nothing_is_granted_or_reclaimed,
)


@settings(max_examples=draws(80), deadline=None)
@given(worlds(), st.randoms(use_true_random=False))
def test_every_promise_of_a_plan_is_kept(view, random):
    the_order_of_the_listing_does_not_matter(view, random)
    for promise in PROMISES:
        promise(view)
