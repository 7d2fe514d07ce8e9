"""What is taken back of what projects borrow, from whom, and what is protected."""

from collections import Counter
from dataclasses import replace

import pytest

from gpulease.policy.fairness import standing
from gpulease.policy.lifecycle import apply
from gpulease.policy.model import Clear, Drain, EndReason, LeaseState, Nominate, Warn
from gpulease.policy.planner import plan
from tests.policy.build import OUTS, at, busy, cards, idle, quiet, snapshot
from tests.policy.fairness.build import asks, holds, project, shared

GIB = 2**30
TWO = shared(project("phys", 2), project("bio", 2))


def warned_for(leases, policy=TWO, devices=4, evidence=None, **changed):
    """Return lease -> request of those that a plan asks to leave because they are borrowed."""
    evidence = {x.id: busy() for x in leases if x.devices} | (evidence or {})
    view = snapshot(leases, devices, evidence, policy=policy, **changed)
    found = {}
    for action in plan(view):
        if isinstance(action, Warn):
            assert (action.reason, action.end_reason) == ("preempted", EndReason.PREEMPTED)
            found[action.lease_id] = action.nominated_for
    return found


def test_a_request_within_its_guarantee_takes_back_what_is_borrowed():
    leases = [*(holds(n, "phys") for n in range(3)), holds(3, "bio"), asks(9, "bio")]
    taken = warned_for(leases)
    assert list(taken.values()) == ["r9"]
    assert set(taken) < {"r0", "r1", "r2"}


def test_use_within_quota_is_protected_whatever_it_is():
    leases = [*(holds(n, "phys") for n in range(2)), *(holds(n, "bio") for n in (2, 3))]
    assert warned_for([*leases, asks(9, "bio")]) == {}


def test_use_within_quota_is_protected_when_the_project_is_served_once_more():
    """Found by the state machine: what a plan promised counted as if it could be taken already."""
    leases = [holds(0, "bio"), asks(5, "phys", count=2), asks(8, "bio")]
    policy = shared(project("phys", 2), project("bio", 1))
    assert warned_for(leases, policy, devices=2) == {}


def test_what_is_free_is_given_before_anybody_is_asked_to_leave():
    leases = [*(holds(n, "phys") for n in range(3)), asks(9, "bio")]
    assert warned_for(leases) == {}


def test_a_lease_is_left_alone_for_its_minimum_runtime():
    young = {"active_since": at(1 - OUTS.minimum_runtime)}
    leases = [*(holds(n, "phys", **young) for n in range(4)), asks(9, "bio")]
    assert warned_for(leases) == {}
    leases[0] = replace(leases[0], active_since=at(-OUTS.minimum_runtime))
    assert warned_for(leases) == {"r0": "r9"}


def test_most_idle_first_then_most_over_the_share_then_the_youngest():
    policy = shared(project("phys"), project("bio"), project("chem", 1))
    leases = [
        holds(0, "phys"), holds(1, "phys"), holds(2, "bio", active_since=at(-900)),
        holds(3, "phys", active_since=at(-1000)), asks(9, "chem"),
    ]  # fmt: skip
    still = {"r2": replace(quiet(60), cells=1)}
    assert warned_for(leases, policy, evidence=still) == {"r2": "r9"}
    assert warned_for(leases, policy) == {"r3": "r9"}  # phys has three, bio one


def test_idle_leases_go_before_used_ones_and_for_being_idle():
    leases = [*(holds(n, "phys") for n in range(4)), asks(9, "bio")]
    evidence = {x.id: busy() for x in leases if x.devices} | {"r2": idle(200)}
    (action,) = [a for a in plan(snapshot(leases, 4, evidence, policy=TWO)) if isinstance(a, Warn)]
    assert (action.lease_id, action.reason, action.nominated_for) == ("r2", "idle", "r9")


def test_what_asked_to_stay_in_quota_is_never_taken():
    leases = [*(holds(n, "phys", in_quota_only=n < 2) for n in range(4)), asks(9, "bio")]
    assert set(warned_for(leases)) <= {"r2", "r3"}
    protected = [replace(x, in_quota_only=True) for x in leases[:4]]
    assert warned_for([*protected, leases[4]]) == {}


def test_without_guarantees_the_shares_count():
    policy = shared(project("phys"), project("bio"))
    leases = [*(holds(n, "phys") for n in range(4)), asks(8, "bio"), asks(9, "bio")]
    assert set(warned_for(leases, policy).values()) == {"r8", "r9"}
    even = [holds(0, "phys"), holds(1, "phys"), holds(2, "bio"), holds(3, "bio"), asks(9, "bio")]
    assert warned_for(even, policy) == {}


def test_nothing_moves_for_less_than_a_unit():
    """One GPU, two projects of equal weight: whoever has it keeps it."""
    policy = shared(project("phys"), project("bio"))
    assert warned_for([holds(0, "phys"), asks(9, "bio")], policy, 1) == {}


def test_a_departments_quota_protects_its_projects_from_others_not_from_each_other():
    policy = shared(
        project("science", 4), project("phys", 1, parent="science"),
        project("bio", 1, parent="science"), project("arts"),
    )  # fmt: skip
    mine = [holds(n, "phys") for n in range(4)]
    assert warned_for([*mine, asks(9, "arts")], policy) == {}
    assert list(warned_for([*mine, asks(9, "bio")], policy).values()) == ["r9"]


def test_people_of_a_project_share_what_it_borrows_not_what_is_its_own():
    leases = [*(holds(n, "phys", user="ann") for n in range(4)), asks(9, "phys", user="bob")]
    assert list(warned_for(leases, shared(project("phys"))).values()) == ["r9"]
    assert warned_for(leases, shared(project("phys", 4))) == {}


def test_a_request_for_several_takes_all_it_needs_or_nothing():
    leases = [*(holds(n, "phys") for n in range(4)), asks(9, "bio", count=2)]
    assert len(warned_for(leases)) == 2
    one = shared(project("phys", 2), project("bio", 1))
    assert warned_for(leases, one) == {}, "two would be more than is its own"
    young = [replace(x, active_since=at(-5)) for x in leases[:3]]
    assert warned_for([*young, *leases[3:]]) == {}, "only one of them may go"


def test_a_gang_gathers_on_one_machine():
    policy = shared(project("phys", 2), project("bio", 2))
    view = snapshot([], 4)
    devices = tuple(replace(d, node=f"n{n % 2}") for n, d in enumerate(view.devices))
    leases = [*(holds(n, "phys") for n in range(4)), asks(9, "bio", count=2)]
    assert set(warned_for(leases, policy, devices)) in ({"r0", "r2"}, {"r1", "r3"})


def test_several_nodes_are_taken_back_one_by_one_and_all_or_none():
    """Two devices on each of three machines; bio asks for two nodes with two each."""
    machines = tuple(replace(d, node=f"n{n // 2}") for n, d in enumerate(cards(6)))
    policy = shared(project("phys", 2), project("bio", 4))
    leases = [*(holds(n, "phys") for n in range(6)), asks(9, "bio", count=4, nodes=2)]
    taken = warned_for(leases, policy, machines)
    assert set(taken.values()) == {"r9"}
    assert len(taken) == 4
    assert sorted(Counter(int(each[1:]) // 2 for each in taken).values()) == [2, 2]
    kept = {"in_quota_only": True}
    leases[0:4:2] = [holds(0, "phys", **kept), holds(2, "phys", **kept)]
    assert warned_for(leases, policy, machines) == {}  # of n0 and n1 one device each: no node


def test_what_is_left_over_of_one_node_serves_the_next_one_there():
    """Nodes of one device each: a lease of two gives both, and nobody else has to leave."""
    machines = tuple(replace(d, node="n0") for d in cards(4))
    policy = shared(project("phys"), project("bio", 2))
    pair = holds(0, "phys", count=2, devices=("GPU-0", "GPU-1"), active_since=at(-400))
    leases = [pair, holds(2, "phys"), holds(3, "phys"), asks(9, "bio", count=2, nodes=2)]
    assert warned_for(leases, policy, machines) == {"r0": "r9"}


def test_smaller_leases_go_before_one_that_cuts_into_the_quota():
    big = holds(0, "phys", count=3, devices=("GPU-0", "GPU-1", "GPU-2"), active_since=at(-400))
    leases = [big, holds(3, "phys"), asks(9, "bio")]
    assert warned_for(leases, shared(project("phys", 3), project("bio", 1))) == {"r3": "r9"}


def test_one_too_large_lease_is_no_way_to_keep_what_is_guaranteed_to_others():
    big = holds(0, "phys", count=4, devices=tuple(f"GPU-{n}" for n in range(4)))
    assert warned_for([big, asks(9, "bio")]) == {"r0": "r9"}


def test_what_does_not_suit_one_request_may_suit_the_next():
    small, large = cards(2, memory=16 * GIB), replace(cards(3)[2], memory=80 * GIB)
    leases = [holds(0, "phys"), holds(1, "phys"), holds(2, "bio")]
    wants = [asks(8, "bio", needs="memory>=40GiB"), asks(9, "bio")]
    policy = shared(project("phys"), project("bio", 3))
    taken = warned_for([*leases, *wants], policy, (*small, large))
    assert list(taken.values()) == ["r9"]


def test_several_requests_take_several_and_no_more_than_is_theirs():
    leases = [*(holds(n, "phys") for n in range(4)), *(asks(n, "bio") for n in (7, 8, 9))]
    assert sorted(warned_for(leases).values()) == ["r7", "r8"]


def after(leases, policy=TWO, **changed):
    evidence = {x.id: busy() for x in leases if x.devices}
    view = snapshot(leases, 4, evidence, policy=policy, **changed)
    known = {x.id: x for x in view.leases}
    actions = plan(view)
    for action in actions:
        known[action.lease_id] = apply(known[action.lease_id], action, view.now, OUTS)
    return list(known.values()), actions


def test_a_repeated_plan_takes_no_second_lease():
    leases, _ = after([*(holds(n, "phys") for n in range(4)), asks(9, "bio")])
    again, actions = after(leases)
    assert not [a for a in actions if isinstance(a, Warn | Clear | Nominate)]
    assert [x.state for x in again].count(LeaseState.WARNED) == 1


def test_the_warning_ends_in_a_drain_for_the_same_request():
    leases, _ = after([*(holds(n, "phys") for n in range(4)), asks(9, "bio")])
    _, actions = after(leases, now=at(OUTS.warning))
    (drain,) = [a for a in actions if isinstance(a, Drain)]
    assert (drain.reason, drain.end_reason, drain.nominated_for, drain.park) == (
        "preempted", EndReason.PREEMPTED, "r9", True,
    )  # fmt: skip
    assert drain.until == at(OUTS.warning + OUTS.drain_max + OUTS.interrupt_grace)


def test_the_lease_stays_when_the_request_is_withdrawn():
    leases, _ = after([*(holds(n, "phys") for n in range(4)), asks(9, "bio")])
    _, actions = after([x for x in leases if x.id != "r9"])
    (clear,) = actions
    assert isinstance(clear, Clear)
    assert clear.reason == "nobody_waits"


def test_who_was_told_to_leave_goes_for_the_next_one():
    leases, _ = after([*(holds(n, "phys") for n in range(4)), asks(9, "bio")])
    told = next(x.id for x in leases if x.state is LeaseState.WARNED)
    swapped = [x for x in leases if x.id != "r9"] + [asks(8, "bio")]
    _, actions = after(swapped)
    (action,) = [a for a in actions if a.lease_id != "r8"]
    assert (action.lease_id, action) == (told, Nominate(told, "preempted", "r8"))


@pytest.mark.parametrize(
    "kept", [{"capacity_known": False}, {"contended": {"cards": (at(-5), at(-1))}}]
)
def test_nothing_is_taken_where_what_is_seen_is_not_trusted(kept):
    leases = [*(holds(n, "phys") for n in range(4)), asks(9, "bio")]
    assert warned_for(leases, **kept) == {}


def test_a_department_within_its_quota_is_protected_though_a_device_was_lost():
    policy = shared(
        project("science", 4), project("phys", 1, parent="science"), project("arts", 1)
    )  # fmt: skip
    assert warned_for([*(holds(n, "phys") for n in range(4)), asks(9, "arts")], policy) == {}


def test_past_use_moves_nothing_for_less_than_a_unit():
    """Targets of 1.2 and 1.8: the shares are one and two, and yet both are less than one off."""
    policy = shared(project("phys"), project("bio"), strength=0.4)
    leases = [holds(0, "phys"), holds(1, "phys"), holds(2, "bio"), asks(9, "bio"), asks(8, "phys")]
    used = {("phys", "x", "cards"): 3 * 7 * 86400.0}
    tree = standing(snapshot(leases, 3, policy=policy, use=used))["cards"].root.below
    assert (tree["phys"].share, tree["bio"].share) == (1, 2)
    assert 1 < tree["phys"].target < 1.5
    assert warned_for(leases, policy, 3, use=used) == {}


def test_who_has_its_share_takes_nothing_that_another_one_lacks():
    """A gang finds no machine for itself; a third project does not get its part instead."""
    policy = shared(project("phys"), project("bio"), project("chem"))
    devices = tuple(replace(d, node=f"n{n}") for n, d in enumerate(snapshot([], 6).devices))
    leases = [*(holds(n, "phys") for n in range(4)), *(holds(n, "chem") for n in (4, 5))]
    assert warned_for([*leases, asks(8, "bio", count=2), asks(9, "chem")], policy, devices) == {}


def test_who_is_above_the_projects_share_takes_from_the_own_project_only():
    """Phys and bio both hold more than theirs; what chem lacks is of no use to bob of phys."""
    policy = shared(project("phys"), project("bio"), project("chem"))
    apart = tuple(replace(device, node=f"n{n}") for n, device in enumerate(cards(6)))
    mine = [holds(n, "phys", user="ann") for n in (0, 1, 2)]
    # The youngest of those who are as far above their share goes first: that would be theirs.
    theirs = [holds(n, "bio", active_since=at(-900)) for n in (3, 4, 5)]
    waiting = [asks(7, "chem", count=2), asks(8, "phys", user="bob")]
    found = warned_for([*mine, *theirs, *waiting], policy, apart)
    assert list(found.values()) == ["r8"]
    assert found.keys() <= {x.id for x in mine}
