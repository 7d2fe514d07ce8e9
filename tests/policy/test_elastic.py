"""Pools to which nodes are added when lease pods wait for them."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.errors import GPULeaseError
from gpulease.policy import admission_check, document, lifecycle
from gpulease.policy.capacity import promised_devices
from gpulease.policy.catalog import Elastic
from gpulease.policy.document.edit import differences
from gpulease.policy.explanation.explain import explain
from gpulease.policy.explanation.forecast import expected_start, next_starts
from gpulease.policy.model import (
    Bind,
    Device,
    LeaseState,
    Observed,
    Pool,
    Progress,
    Requeue,
    Snapshot,
    Start,
    Wait,
)
from gpulease.policy.planner import plan
from tests.policy.build import NOW, OUTS, active, at, policy, request, seen, starting

GROWS = Elastic(max=4, provision_time=360.0, max_pending=2)


def grown(elastic=GROWS, **changed):
    return policy(pools=(Pool("cards", elastic=elastic), Pool("slices")), **changed)


def shot(*leases, devices=0, observed=(), by=None, grows=True, now=NOW):
    return Snapshot(
        now=now,
        policy=by or grown(),
        devices=tuple(Device(f"GPU-{n}", "cards", node=f"n{n}") for n in range(devices)),
        leases=leases,
        evidence={},
        observed={each.lease_id: each for each in observed},
        grows=grows,
    )


def waiting(number, since=-30.0, **changed):
    return starting(
        number, devices=(), reason="adding_node", stage_since=at(since), pool="cards", **changed
    )


def test_who_finds_nothing_waits_for_a_node_to_be_added():
    (step,) = plan(shot(request(1)))
    assert isinstance(step, Start)
    assert (step.reason, step.devices, step.pool) == ("adding_node", (), "cards")
    after = lifecycle.apply(request(1), step, NOW, OUTS)
    assert after.state is LeaseState.STARTING
    said = explain(after, grown())
    assert said.sentence == "A machine with a GPU is being added, which usually takes 6 min."


@pytest.mark.parametrize("number", [2, 3])
def test_those_who_wait_for_nodes_do_not_take_a_free_device_from_each_other(number):
    """One goes back to the queue for it and gets it; it was taken from them there, for ever."""
    leases = {f"r{n}": waiting(n) for n in range(1, number + 1)}
    steps = []
    for _ in range(6):
        adding = [x for x in leases.values() if not x.devices]
        views = [seen(x, stage="adding_node", connected=False) for x in adding]
        done = plan(shot(*leases.values(), devices=1, observed=views))
        for step in done:
            leases[step.lease_id] = lifecycle.apply(leases[step.lease_id], step, NOW, OUTS)
        steps += [(step.lease_id, step.reason) for step in done]
    assert steps == [("r1", "came_free"), ("r1", "starting")]
    assert leases["r1"].devices == ("GPU-0",)


def test_what_is_free_is_given_first():
    first, second = plan(shot(request(1), request(2), devices=1))
    assert (first.lease_id, first.devices) == ("r1", ("GPU-0",))
    assert (second.lease_id, second.reason, second.devices) == ("r2", "adding_node", ())


def test_no_more_wait_at_once_than_the_pool_says_and_no_more_than_it_may_have():
    found = plan(shot(*(request(n) for n in range(1, 5))))
    assert [type(each) for each in found] == [Start, Start, Wait, Wait]
    assert found[2].reason == "no_capacity"
    held = [active(n, f"GPU-{n}") for n in range(3)]
    found = plan(shot(*held, request(5), request(6), devices=3))
    assert [(type(each), each.lease_id) for each in found] == [(Start, "r5"), (Wait, "r6")]


def test_where_machines_are_what_they_are_nothing_is_asked_for():
    found = plan(shot(active(0), request(1), devices=1, grows=False))
    assert found == [Wait("r1", "no_capacity")]


def test_who_waits_for_a_node_goes_back_for_a_device_that_came_free():
    """Its pod takes no device that is there already, so nobody is passed."""
    (back,) = plan(shot(waiting(1), devices=1))
    assert back == Requeue("r1", "came_free", NOW, failure=False)
    again = lifecycle.apply(waiting(1), back, NOW, OUTS)
    assert (again.state, again.ticket) == (LeaseState.QUEUED, waiting(1).ticket)
    (step,) = plan(shot(again, devices=1))
    assert (step.lease_id, step.devices) == ("r1", ("GPU-0",))
    # Nobody who asked later takes the device in the plan in which the first goes back.
    found = {each.lease_id: each for each in plan(shot(waiting(1), request(2), devices=1))}
    assert isinstance(found["r1"], Requeue)
    assert found["r2"].devices == ()


def test_once_its_node_is_there_it_is_bound_and_starts():
    lease = waiting(1)
    landed = seen(lease, connected=False, stage="pulling", devices=("GPU-0",))
    node = Device("GPU-0", "cards", node="n0", occupied_by="r1")
    found = plan(replace(shot(lease, observed=[landed]), devices=(node,)))
    assert found == [Progress("r1", "pulling", devices=("GPU-0",))]
    still = seen(lease, connected=False, stage="adding_node", devices=("GPU-0",))
    found = plan(replace(shot(lease, observed=[still]), devices=(node,)))
    assert found == [Bind("r1", "adding_node", ("GPU-0",))]


def test_a_node_that_does_not_come_is_given_up_in_bounded_time_and_is_nobodys_failure():
    lease = waiting(1, since=-1079.0)
    view = seen(lease, connected=False, stage="adding_node")
    assert plan(shot(lease, observed=[view])) == []
    late = replace(lease, stage_since=at(-1080.0))
    (step,) = plan(shot(late, observed=[view]))
    assert step == Requeue("r1", "node_not_added", NOW + timedelta(seconds=60), failure=False)


def test_what_can_be_added_counts_at_the_door_and_nothing_is_refused_that_may_come():
    ask = admission_check.Ask("ada", "", count=4)
    assert admission_check.answer(ask, shot(), "new", (NOW, 1)).new
    with pytest.raises(GPULeaseError, match="there are 0"):
        admission_check.answer(ask, shot(grows=False), "new", (NOW, 1))
    with pytest.raises(GPULeaseError, match="there are 3"):
        admission_check.answer(ask, shot(by=grown(replace(GROWS, max=3))), "new", (NOW, 1))


def test_it_is_expected_when_a_node_usually_comes():
    added = NOW + timedelta(minutes=6)
    assert next_starts(shot())["cards"] == added
    three = (waiting(1), waiting(2), request(3))
    assert expected_start(shot(*three), "r3") is None, "as many wait as may"
    assert expected_start(shot(waiting(1), request(3)), "r3") == added


def test_reservations_count_on_nothing_that_may_not_be_there():
    for elastic, there, sure in (
        (GROWS, 3, 0),
        (replace(GROWS, firm=2), 3, 2),
        (replace(GROWS, firm=2), 1, 1),
        (replace(GROWS, firm=2, spot=True), 3, 0),
        (None, 3, 3),
    ):
        assert promised_devices(grown(elastic), "cards", there) == sure


def test_who_has_a_machine_on_loan_is_told():
    by = grown(replace(GROWS, spot=True))
    assert "short notice" in explain(active(1, pool="cards"), by).sentence
    assert "short notice" not in explain(active(1, pool="cards"), grown()).sentence


DOCUMENT = """
pools:
  cards: {elastic: %s}
classes:
  t4: {pool: cards}
"""


def test_the_document_says_how_a_pool_grows():
    said = "{max: 16, firm: 4, provision_time: 4m, max_pending: 3, spot: true}"
    made = document.parse(DOCUMENT % said)
    assert made.elastic == {"cards": Elastic(16, 4, 240.0, 3, True)}
    assert document.parse(document.dump(made)) == made
    plain = document.parse(DOCUMENT % "{max: 16}")
    assert plain.elastic == {"cards": Elastic(16)}
    assert "for pool cards: set elastic.max from 16 to 8" in [
        str(each) for each in differences(plain, document.parse(DOCUMENT % "{max: 8}"))
    ]


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("{firm: 2}", "lacks the key 'max'"),
        ("{max: 2, firm: 3}", "2 devices at most"),
        ("{max: 0}", "max"),
        ("{max: 2, min: 1}", "min"),
    ],
)
def test_what_is_wrong_with_it_is_said(said, wrong):
    found = document.check(DOCUMENT % said)
    assert [each for each in found if wrong in each.message], found


@given(
    free=st.integers(0, 3),
    held=st.integers(0, 3),
    pending=st.integers(0, 3),
    asked=st.lists(st.integers(1, 3), max_size=6),
    most=st.integers(1, 8),
    pods=st.integers(1, 3),
)
def test_bounds_hold_and_no_free_device_lies_idle(free, held, pending, asked, most, pods):
    """Whatever is asked: never beyond ``max``, never more pods than may wait, and who waits for
    a node or in the queue never does so beside a device that would do.
    """
    elastic = Elastic(max=most, max_pending=pods)
    leases = [active(n, f"GPU-{n}") for n in range(held)]
    leases += [waiting(10 + n) for n in range(pending)]
    leases += [request(20 + n, count=count) for n, count in enumerate(asked)]
    before = shot(*leases, devices=held + free, by=grown(elastic))
    found = plan(before)
    assert max(Counter(each.lease_id for each in found).values(), default=1) == 1
    assert sorted(map(repr, plan(replace(before, leases=tuple(reversed(leases)))))) == sorted(
        map(repr, found)
    )
    by_id = {lease.id: lease for lease in leases}
    grows = [by_id[x.lease_id] for x in found if isinstance(x, Start) and not x.devices]
    granted = [uuid for x in found if isinstance(x, Start) for uuid in x.devices]
    back = [x for x in found if isinstance(x, Requeue)]
    if grows:
        total = held + free + pending + sum(lease.count for lease in grows)
        assert total <= most
        assert pending + len(grows) <= pods
    assert len(granted) == len(set(granted))
    left = free - len(granted) - len(back)
    assert left >= 0
    assert left == 0 or pending == len(back)
    if left > 0 and all(isinstance(x, Start) and x.devices for x in found):
        return
    ones = [x for x in found if isinstance(x, Start | Wait) and not getattr(x, "devices", ())]
    assert left == 0 or all(by_id[x.lease_id].count > 1 for x in ones)


def test_the_observed_attempt_is_the_present_one():
    old = Observed("r1", 0, devices=("GPU-0",))
    lease = waiting(1)
    (step,) = plan(shot(lease, devices=1, observed=[old]))
    assert isinstance(step, Requeue)
