"""What an ask becomes."""

from dataclasses import replace

import pytest

from gpulease.errors import GPULeaseError
from gpulease.policy import lifecycle
from gpulease.policy.admission_check import Ask, answer
from gpulease.policy.model import Device, EndReason, LeaseState, Shape, Start
from gpulease.policy.planner import plan
from gpulease.policy.pods import ClusterQueue, PodAsk, QueueEngine
from tests.policy.build import (
    NOW,
    active,
    at,
    cards,
    draining,
    policy,
    request,
    snapshot,
    starting,
    warned,
)

TICKET = (NOW, 99)
ASK = Ask("ann", "lab")
MINE = {"user": "ann", "server": "lab"}


def asked(view, ask=ASK):
    return answer(ask, view, "new", TICKET)


def refused(view, ask):
    with pytest.raises(GPULeaseError) as error:
        asked(view, ask)
    return error.value


def test_a_new_request():
    ask = replace(ASK, count=2, wanted=60.0, kernel_id="k", origin="page", groups=("g",))
    got = asked(snapshot([], 2), ask)
    assert (got.new, got.changed) == (True, False)
    lease = got.lease
    assert (lease.id, lease.ticket, lease.state) == ("new", TICKET, LeaseState.QUEUED)
    assert (lease.gpu_class, lease.count, lease.wanted) == ("t4", 2, 60.0)
    assert (lease.kernel_id, lease.origin, lease.groups) == ("k", "page", ("g",))


@pytest.mark.parametrize("make", [request, starting, active, warned])
def test_a_repeated_ask_is_the_same_ask(make):
    mine = make(1, **MINE)
    got = asked(snapshot([mine], 2))
    assert (got.lease, got.new, got.changed) == (mine, False, False)


def test_another_server_and_another_user_are_others():
    for theirs in (active(1, user="ann", server=""), active(1, user="bob", server="lab")):
        assert asked(snapshot([theirs], 2)).new


@pytest.mark.parametrize("why", [EndReason.IDLE, EndReason.RETURNED])
def test_an_ask_during_a_drain_nobody_waits_for_takes_it_back(why):
    mine = draining(1, end_reason_wanted=why, park=True, **MINE)
    got = asked(snapshot([mine]))
    assert (got.lease.id, got.new, got.changed) == (mine.id, False, True)
    assert (got.lease.state, got.lease.park) == (LeaseState.ACTIVE, False)


@pytest.mark.parametrize(
    "others",
    [
        [request(9)],  # nobody is nominated yet, but somebody waits for it
        [request(9, server="x")],
    ],
)
def test_under_pressure_it_is_a_new_request(others):
    mine = draining(1, **MINE)
    assert asked(snapshot([mine, *others])).new
    assert asked(snapshot([replace(mine, nominated_for="r9"), *others])).new


@pytest.mark.parametrize(
    "other",
    [request(9, server_ready=False), request(9, gpu_class="slice")],
)
def test_who_waits_for_something_else_is_no_pressure(other):
    assert asked(snapshot([draining(1, **MINE), other])).changed


def test_a_nomination_that_lapsed_is_none():
    assert asked(snapshot([draining(1, nominated_for="gone", **MINE)])).changed


@pytest.mark.parametrize("why", [EndReason.FORCED, EndReason.EXPIRED, EndReason.FAILED])
def test_what_an_admin_or_the_clock_ended_is_not_taken_back(why):
    assert asked(snapshot([draining(1, end_reason_wanted=why, **MINE)])).new


@pytest.mark.parametrize(("left", "new"), [(60, False), (0, True)])
def test_an_ask_while_a_lease_gives_a_part_is_for_what_it_goes_on_as(left, new):
    """Without this a cell that runs meanwhile has a second request, and the person two leases."""
    mine = draining(
        1, devices=("GPU-0", "GPU-1"), count=2, min_count=1, becomes=Shape("t4", ("GPU-0",)),
        end_reason_wanted=EndReason.PREEMPTED, nominated_for="r9", hard_end=at(left), **MINE,
    )  # fmt: skip
    got = asked(snapshot([mine, request(9)], 2), replace(ASK, count=2))
    assert (got.new, got.changed) == (new, False)
    assert new or got.lease == mine


def test_asking_twice_during_a_drain_under_pressure_is_one_request():
    mine, new = draining(1, nominated_for="r9", **MINE), request(2, **MINE)
    assert asked(snapshot([mine, request(9), new])).lease == new


def test_asking_and_withdrawing_at_once():
    got = asked(snapshot([]))
    gone = lifecycle.give_back(got.lease, NOW, policy().time_outs)
    assert gone.end_reason is EndReason.WITHDRAWN
    assert asked(snapshot([gone])).new


def test_returning_asks_before_it_stops_a_cell_or_loses_a_value():
    outs, lease = policy().time_outs, active(1, **MINE)
    with pytest.raises(GPULeaseError) as refusal:
        lifecycle.give_back(lease, NOW, outs, cells=1)
    assert refusal.value.reason == "cell_running"
    asked_to = lifecycle.give_back(lease, NOW, outs)
    assert (asked_to.state, asked_to.park) == (LeaseState.DRAINING, False)
    assert lifecycle.give_back(asked_to, NOW, outs) == asked_to
    for forced in (
        lifecycle.give_back(lease, NOW, outs, force=True, cells=1),
        lifecycle.give_back(asked_to, NOW, outs, force=True),
    ):
        assert (forced.state, forced.park) == (LeaseState.DRAINING, True)
        assert forced.end_reason_wanted is EndReason.RETURNED


@pytest.mark.parametrize("name", ["t5", "", "T4", "../t4"])
def test_an_unknown_class(name):
    ask = replace(ASK, gpu_class=name or "?")
    error = refused(snapshot([]), ask)
    assert (error.reason, error.status) == ("unknown_class", 422)
    assert "t4, slice" in error.next_step


@pytest.mark.parametrize("count", [0, -1, 5, 10**9])
def test_a_count_that_cannot_be(count):
    error = refused(snapshot([], 8), replace(ASK, count=count))
    assert (error.reason, error.numbers["max"]) == ("bad_count", 4)


def test_a_count_above_what_exists():
    devices = (*cards(2), Device("MIG-0", "slices"))
    error = refused(snapshot([], devices), replace(ASK, count=3))
    assert (error.reason, error.numbers["max"]) == ("bad_count", 2)
    assert error.next_step == "Ask for 1 to 2."
    alone = refused(snapshot([], cards(1)), replace(ASK, count=3))
    assert alone.next_step == "Ask for 1."
    # What exists is not known: it waits and sees.
    assert asked(snapshot([], devices, capacity_known=False), replace(ASK, count=3)).new


def test_the_gpus_of_several_nodes_are_granted_together_and_divided_equally():
    view = snapshot([], 4, several_nodes=True)
    got = asked(view, replace(ASK, count=4, nodes=2)).lease
    assert (got.count, got.nodes) == (4, 2)
    uneven = refused(view, replace(ASK, count=3, nodes=2))
    assert uneven.reason == "bad_nodes"
    assert "3 GPUs cannot be divided equally among 2 nodes" in uneven.sentence
    assert uneven.next_step == "Ask for 2 or 4."
    assert refused(view, replace(ASK, count=5, nodes=5)).reason == "bad_count"
    short = snapshot([active(1, user="bob"), got], 4, several_nodes=True)
    assert not [each for each in plan(short) if isinstance(each, Start)], "all or none"


def test_several_nodes_are_refused_where_a_request_is_of_one_machine():
    error = refused(snapshot([], 4), replace(ASK, count=4, nodes=2))
    assert (error.reason, error.status) == ("bad_nodes", 422)
    assert "severalNodes.enabled" in error.next_step


@pytest.mark.parametrize("engine", QueueEngine)
def test_several_nodes_are_refused_where_a_queue_of_the_clusters_admits_pod_by_pod(engine):
    queued = replace(policy().classes[0], pod=PodAsk(queue=ClusterQueue(engine, "students")))
    rules = policy(classes=(queued, *policy().classes[1:]))
    view = snapshot([], 4, several_nodes=True, policy=rules)
    ask = replace(ASK, count=4, nodes=2)
    if engine is QueueEngine.KUEUE:  # it admits groups of pods
        assert asked(view, ask).lease.nodes == 2
        return
    error = refused(view, ask)
    assert (error.reason, error.status) == ("bad_nodes", 422)
    assert "queue" in error.sentence


@pytest.mark.parametrize(("nodes", "serves"), [(1, True), (2, True), (4, False)])
def test_a_cell_that_names_no_nodes_or_the_same_is_served_by_the_lease(nodes, serves):
    mine = replace(active(1, **MINE), count=4, nodes=2)
    view = snapshot([mine], 4, several_nodes=True)
    ask = replace(ASK, count=nodes, nodes=nodes)
    if serves:
        assert asked(view, ask).lease is mine
    else:
        assert refused(view, ask).reason == "other_lease"


@pytest.mark.parametrize("wanted", [0, -5])
def test_a_length_that_cannot_be(wanted):
    assert refused(snapshot([]), replace(ASK, wanted=wanted)).reason == "bad_duration"


def test_another_class_while_one_is_held():
    view = snapshot([active(1, **MINE)], (*cards(1), Device("MIG-0", "slices")))
    error = refused(view, replace(ASK, gpu_class="slice"))
    assert (error.reason, error.status) == ("other_lease", 409)
    two = replace(view, policy=policy(leases_per_server=2))
    assert asked(two, replace(ASK, gpu_class="slice")).new


def test_more_devices_than_the_lease_has_is_another_lease():
    assert refused(snapshot([active(1, **MINE)], 2), replace(ASK, count=2)).reason == "other_lease"
    assert not asked(snapshot([active(1, count=2, **MINE)], 2)).new


def test_as_many_requests_of_one_person_wait_as_may():
    mine = [request(n, user=ASK.user, server=f"other-{n}") for n in (1, 2)]
    view = snapshot([*mine, request(3)], policy=policy(waiting_per_user=2))
    error = refused(view, ASK)
    assert (error.reason, error.status) == ("too_many_waiting", 429)
    assert asked(replace(view, policy=policy(waiting_per_user=3)), ASK).new


def test_a_full_queue():
    view = snapshot([request(1), request(2)], policy=policy(queue_max=2))
    error = refused(view, ASK)
    assert (error.reason, error.status) == ("queue_full", 429)
