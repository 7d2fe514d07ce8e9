"""Whose turn it is where projects share a pool."""

from dataclasses import replace

from gpulease.policy.fairness import standing, turns
from gpulease.policy.model import Start
from gpulease.policy.planner import plan
from tests.policy.build import at, cards, snapshot
from tests.policy.fairness.build import asks, holds, limited, project, shared


def order(leases, policy, devices=4, **changed):
    return [x.id for x in turns(snapshot(leases, devices, policy=policy, **changed))]


def test_without_projects_first_come_first_served():
    leases = [asks(3, ""), asks(1, ""), asks(2, "")]
    assert order(leases, shared()) == ["r1", "r2", "r3"]


def test_a_project_below_its_guarantee_comes_before_one_that_asked_earlier():
    policy = shared(project("phys", 0), project("bio", 2))
    assert order([asks(1, "phys"), asks(2, "bio"), asks(3, "phys")], policy) == ["r2", "r1", "r3"]


def test_turns_alternate_instead_of_giving_a_hundred_to_who_asked_first():
    policy = shared(project("phys"), project("bio"))
    leases = [asks(n, "phys") for n in (1, 2, 3)] + [asks(n, "bio") for n in (4, 5)]
    assert order(leases, policy) == ["r1", "r4", "r2", "r5", "r3"]


def test_weights_count_twice_the_weight_twice_the_turns():
    policy = shared(project("phys", weight=2.0), project("bio"))
    leases = [asks(n, "phys") for n in range(1, 5)] + [asks(n, "bio") for n in range(5, 9)]
    first_six = order(leases, policy, 6)[:6]
    assert sum(x in {"r1", "r2", "r3", "r4"} for x in first_six) == 4


def test_a_department_shares_before_its_projects_do():
    policy = shared(
        project("science"), project("phys", parent="science"), project("bio", parent="science"),
        project("arts"),
    )  # fmt: skip
    leases = [asks(1, "phys"), asks(2, "phys"), asks(3, "bio"), asks(4, "arts"), asks(5, "arts")]
    assert order(leases, policy, 4) == ["r1", "r4", "r3", "r5", "r2"]


def test_people_of_a_project_take_turns_by_their_weight():
    policy = shared(project("phys", people=(("ann", limited(3.0)),)))
    leases = [asks(n, "phys", user="bob") for n in (1, 2, 3)]
    leases += [asks(n, "phys", user="ann") for n in (4, 5, 6)]
    assert sorted(order(leases, policy, 4)[:4]) == ["r1", "r4", "r5", "r6"]


def test_past_use_gives_way():
    policy = shared(project("phys"), project("bio"), strength=1.0)
    leases = [asks(1, "phys"), asks(2, "phys"), asks(3, "bio"), asks(4, "bio")]
    week = 7 * 86400
    view = snapshot(leases, 3, policy=policy, use={("phys", "user1", "cards"): 0.5 * week})
    tree = standing(view)["cards"].root.below
    assert (tree["phys"].share, tree["bio"].share) == (1, 2)


def test_an_admission_counts_at_once_and_one_that_never_became_active_does_not():
    policy = shared(project("phys"), project("bio"), strength=1.0)
    held = holds(0, "phys", active_since=at(-1), charged_from=at(-1))
    used = standing(snapshot([held], 2, policy=policy))["cards"].root.below["phys"].used
    later = replace(held, active_since=at(-600), charged_from=at(-600))
    more = standing(snapshot([later], 2, policy=policy))["cards"].root.below["phys"].used
    nothing = standing(snapshot([], 2, policy=policy))["cards"].root.below["phys"].used
    assert 0 == nothing < used < more


def test_a_limit_of_the_project_its_department_and_a_person_keeps_waiting():
    for changed in (
        {"policy": shared(project("phys", limit=1))},
        {"policy": shared(project("top", limit=1), project("phys", parent="top"))},
        {"policy": shared(project("phys", members=limited(1.0, 1)))},
    ):
        leases = [holds(0, "phys", user="ann"), asks(1, "phys", user="ann")]
        actions = {x.lease_id: x for x in plan(snapshot(leases, 2, **changed))}
        assert actions["r1"].reason in ("project_limit", "member_limit")
        assert not isinstance(actions["r1"], Start)


def test_a_limit_bounds_one_pool_and_one_project_only():
    policy = shared(project("phys", limit=1), project("bio"))
    leases = [holds(0, "phys"), asks(1, "phys", gpu_class="slice"), asks(2, "bio")]
    devices = (*cards(2), replace(cards(1)[0], uuid="S-0", pool="slices"))
    started = {x.lease_id for x in plan(snapshot(leases, devices, policy=policy))}
    assert started == {"r1", "r2"}


def test_who_asked_for_quota_only_waits_for_the_projects_own():
    policy = shared(project("phys", 1))
    leases = [holds(0, "phys"), asks(1, "phys", in_quota_only=True)]
    (action,) = plan(snapshot(leases, 2, policy=policy))
    assert action.reason == "quota_only"
