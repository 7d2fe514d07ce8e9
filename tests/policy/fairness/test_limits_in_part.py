"""Requests of people who can live with fewer GPUs, where their limits leave no room for all."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.errors import GPULeaseError
from gpulease.policy import capacity as dividing
from gpulease.policy.admission_check import answer, check
from gpulease.policy.catalog import Elastic
from gpulease.policy.lifecycle import apply
from gpulease.policy.limits import Limits
from gpulease.policy.model import Device, GPUClass, Pool, Start, Warn
from gpulease.policy.planner import plan
from gpulease.policy.pods import ClusterQueue, PodAsk, QueueEngine
from gpulease.policy.projects import Share
from gpulease.policy.queue import Ask
from tests.policy.build import NOW, OUTS, busy, cards, idle, snapshot, warned
from tests.policy.fairness.build import asks, holds, limited, project, shared

LIMITED = shared(project("phys", limit=2), project("bio", 1))


def planned(leases, devices=4, policy=LIMITED, **changed):
    view = snapshot(
        leases, devices, {x.id: busy() for x in leases if x.devices}, policy=policy, **changed
    )
    return {each.lease_id: each for each in plan(view)}


@pytest.mark.parametrize(
    "policy",
    [
        LIMITED,
        shared(project("top", limit=2), project("phys", parent="top")),
        shared(project("phys", members=limited(1.0, 2))),
    ],
)
def test_a_request_starts_with_as_many_as_its_limits_have_room_for(policy):
    asked = asks(9, "phys", count=4, min_count=1)
    start = planned([asked], policy=policy)["r9"]
    assert isinstance(start, Start)
    assert len(start.devices) == 2
    assert apply(asked, start, NOW, OUTS).asked_count == 4


def test_who_asked_for_quota_only_starts_with_what_is_left_of_it():
    policy = shared(project("phys", 2))
    start = planned([asks(9, "phys", count=3, min_count=1, in_quota_only=True)], policy=policy)
    assert len(start["r9"].devices) == 2


def test_below_its_least_and_without_one_it_waits():
    for least in (0, 3, 4):
        waits = planned([asks(9, "phys", count=4, min_count=least)])["r9"]
        assert (type(waits).__name__, waits.reason) == ("Wait", "project_limit")


def test_nobody_leaves_for_more_than_the_limits_have_room_for():
    """All of phys may be taken back for bio, which may have only one."""
    policy = shared(project("phys"), project("bio", 4, limit=1))
    held = [holds(n, "phys") for n in range(4)]
    steps = planned([*held, asks(9, "bio", count=3, min_count=1)], policy=policy)
    assert sum(isinstance(each, Warn) for each in steps.values()) == 1


def idle_under_pressure():
    return idle(200)


def _taken_for(requests, policy, evidence=busy, **held_by):
    held = [holds(n, "phys", **held_by) for n in range(4)]
    view = snapshot([*held, *requests], 4, {x.id: evidence() for x in held}, policy=policy)
    named = [each.nominated_for for each in plan(view) if isinstance(each, Warn)]
    assert None not in named
    return named


@pytest.mark.parametrize("evidence", [busy, idle_under_pressure])
@pytest.mark.parametrize("wish", [{}, {"count": 3, "min_count": 1}])
def test_one_limit_takes_back_once_however_many_wait_for_it(wish, evidence):
    waiting = [asks(n, "bio", **wish) for n in range(10, 15)]
    policy = shared(project("phys"), project("bio", 4, limit=1))
    assert _taken_for(waiting, policy, evidence) == ["r10"]
    policy = shared(project("phys"), project("bio", 4, members=limited(1.0, 1)))
    mine = [replace(each, user="ann") for each in waiting]
    assert _taken_for(mine, policy, evidence) == ["r10"]


def test_who_asks_from_two_servers_takes_back_for_one_where_that_is_the_limit():
    policy = replace(shared(project("phys"), project("bio", 4)), leases_per_user=1)
    mine = [asks(n, "bio", user="ann") for n in (10, 11)]
    assert _taken_for(mine, policy, idle_under_pressure) == ["r10"]
    later = _taken_for([*mine, asks(12, "bio")], policy, idle_under_pressure)
    assert sorted(later) == ["r10", "r12"], "whoever comes after is not held back by them"


def test_who_was_given_something_already_goes_before_whoever_asked_first():
    """What leaves for the second is not taken for the first, and nothing else either."""
    policy = shared(project("phys"), project("bio", 4, limit=1))
    leaving = warned(0, nominated_for="r11", project="phys", pool="cards")
    view = snapshot(
        [leaving, holds(1, "phys"), asks(10, "bio"), asks(11, "bio")],
        2,
        {"r0": idle(200), "r1": idle(200)},
        policy=policy,
    )
    assert not [each for each in plan(view) if isinstance(each, Warn)]


def test_its_pods_are_as_few_where_a_node_is_added_or_the_clusters_queue_decides():
    pod = PodAsk(queue=ClusterQueue(QueueEngine.KUEUE, "students"))
    t4 = replace(LIMITED.classes[0], pod=pod)
    queued = replace(LIMITED, classes=(t4, *LIMITED.classes[1:]))
    elastic = Elastic(max=8, provision_time=60.0)
    growing = replace(LIMITED, pools=(Pool("cards", elastic=elastic), Pool("slices")))
    asked = asks(9, "phys", count=4, min_count=1)
    for policy in (queued, growing):
        start = planned([asked], 0, policy, grows=True)["r9"]
        assert isinstance(start, Start)
        after = apply(asked, start, NOW, OUTS)
        assert (start.devices, after.count, after.asked_count) == ((), 2, 4)


def test_a_fall_back_serves_it_in_part():
    """Both by the other pool's limit and by what is free there, never with more than it takes."""
    t4, slices = LIMITED.classes
    classes = (replace(t4, fallback=("slice",)), replace(slices, max_count=2))
    there = tuple(Device(f"S-{n}", "slices") for n in range(3))
    asked = asks(9, "bio", count=4, min_count=1)
    busy_cards = [holds(n, "phys") for n in range(2)]
    for free, got in ((there, 2), (there[:1], 1)):
        policy = replace(LIMITED, classes=classes)
        view = planned([*busy_cards, asked], policy=policy, devices=(*cards(2), *free))
        assert (view["r9"].gpu_class, len(view["r9"].devices)) == ("slice", got)


@given(
    limit=st.integers(0, 5),
    held=st.integers(0, 3),
    count=st.integers(1, 4),
    least=st.integers(0, 4),
)
def test_what_is_granted_is_within_every_limit_and_no_fewer_than_it_could_be(
    limit, held, count, least
):
    """The property: as many as there is room for, and never beyond a limit."""
    policy = shared(project("phys", limit=limit))
    mine = [holds(n, "phys") for n in range(held)]
    asked = asks(9, "phys", count=count, min_count=min(least, count))
    step = planned([*mine, asked], 8, policy)["r9"]
    room = limit - held
    if room >= asked.least:
        assert isinstance(step, Start)
        assert len(step.devices) == min(count, room)
    else:
        assert step.reason == "project_limit"


def test_a_mutant_without_the_cut_goes_beyond_the_limit(monkeypatch):
    monkeypatch.setattr(Limits, "within", lambda self, request: request)
    with pytest.raises(AssertionError):
        test_a_request_starts_with_as_many_as_its_limits_have_room_for(LIMITED)


def refusal(policy, devices=4, **wish):
    ask = Ask("ann", "", groups=("phys",), **wish)
    view = snapshot([], devices, policy=policy)
    for asked in (lambda: answer(ask, view, "r1", (NOW, 1)), lambda: check(ask, view)):
        with pytest.raises(GPULeaseError) as error:
            asked()
        assert error.value.reason == "bad_count"
    return f"{error.value} {error.value.next_step}"


@pytest.mark.parametrize(
    ("policy", "wish", "said"),
    [
        (LIMITED, {"count": 4}, "asked for 4 GPUs, and project phys may hold 2 GPUs at once"),
        (LIMITED, {"count": 4, "min_count": 3}, "asked for 3 GPUs"),
        (
            shared(project("top", limit=2), project("phys", parent="top")),
            {"count": 3},
            "project phys may hold 2 GPUs",
        ),
        (
            shared(project("phys", limit=3, members=limited(1.0, 1))),
            {"count": 3},
            "may hold 1 GPU at once in project phys. Ask for no more than that.",
        ),
        (
            shared(project("phys", 1)),
            {"count": 2, "in_quota_only": True},
            "within the guarantee of project phys, which is 1 GPU.",
        ),
        (shared(project("phys", limit=0)), {}, "may hold 0 GPUs at once. Ask for another class"),
    ],
)
def test_what_a_limit_never_has_room_for_is_refused_and_does_not_wait_for_ever(policy, wish, said):
    assert said in refusal(policy, **wish)


def test_what_fits_when_others_have_left_waits():
    held = [holds(0, "phys"), holds(1, "phys")]
    view = snapshot(held, 4, policy=LIMITED)
    for wish in ({"count": 2}, {"count": 4, "min_count": 1}):
        assert answer(Ask("ann", "", groups=("phys",), **wish), view, "r1", (NOW, 1)).new


def test_a_part_of_a_card_above_a_limit_is_refused_in_percent():
    share = project("phys", pools=(("cards", Share(0, 5)),))
    offered = GPUClass("t4", "cards", "T4", parts=7, card_parts=10, steps=(4,))
    policy = replace(shared(share), classes=(offered,))
    devices = tuple(dividing.with_parts([Device("GPU-0", "cards")], {"cards": 10}))
    said = refusal(policy, devices)
    assert "You asked for 70% of a card, and project phys may hold 50% of a card at once" in said
    fits = Ask("ann", "", groups=("phys",), at_least=40)
    assert answer(fits, snapshot([], devices, policy=policy), "r1", (NOW, 1)).new
