"""Requests that another class serves while their own is full."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.policy import lifecycle
from gpulease.policy.admission_check import Ask, answer
from gpulease.policy.explanation.explain import explain
from gpulease.policy.model import Device, Drain, LeaseState, Requeue, Start, Wait, Warn
from gpulease.policy.planner import plan
from gpulease.policy.projects import Project, Projects
from tests.policy.build import NOW, OUTS, active, at, cards, idle, policy, request, snapshot


def offer(fallback=("slice",), most=1):
    base = policy()
    t4, slices = base.classes
    return replace(base, classes=(replace(t4, fallback=fallback), replace(slices, max_count=most)))


def slices(count, **changed):
    return tuple(Device(f"SLICE-{n}", "slices", **changed) for n in range(count))


def view(leases, devices, policy=None, **more):
    return snapshot(leases, devices=devices, policy=policy or offer(), **more)


def starts(view):
    return [(a.lease_id, a.gpu_class, a.devices) for a in plan(view) if isinstance(a, Start)]


def test_a_full_class_is_served_by_its_fallback():
    seen = view([active(0), request(1)], (*cards(1), *slices(1)))
    assert starts(seen) == [("r1", "slice", ("SLICE-0",))]
    assert not [a for a in plan(seen) if isinstance(a, Wait)]


def test_its_own_class_comes_first():
    assert starts(view([request(1)], (*cards(1), *slices(1)))) == [("r1", "", ("GPU-0",))]


def test_without_a_fallback_it_waits():
    seen = view([active(0), request(1)], (*cards(1), *slices(1)), offer(()))
    assert starts(seen) == []


def test_who_asks_for_the_class_itself_comes_first_even_later():
    later = request(2, gpu_class="slice")
    seen = view([active(0), request(1), later], (*cards(1), *slices(1)))
    assert starts(seen) == [("r2", "", ("SLICE-0",))]


def test_a_project_is_not_served_by_a_class_that_it_may_not_have():
    both = (*cards(1), *slices(1))
    for classes, served in (("t4",), []), (("t4", "slice"), ["r1"]), ((), ["r1"]):
        projects = Projects((Project("phys", group="phys", classes=classes),))
        wish = request(1, project="phys")
        seen = view([active(0), wish], both, replace(offer(), projects=projects))
        assert [each[0] for each in starts(seen)] == served


def test_the_order_of_the_fallbacks_counts():
    base = offer(("slice", "third"))
    third = replace(base.classes[1], name="third", pool="thirds")
    base = replace(base, classes=(*base.classes, third), pools=(*base.pools,))
    both = (*cards(1), *slices(1), Device("THIRD-0", "thirds"))
    assert starts(view([active(0), request(1)], both, base)) == [("r1", "slice", ("SLICE-0",))]
    only = (*cards(1), Device("THIRD-0", "thirds"))
    assert starts(view([active(0), request(1)], only, base)) == [("r1", "third", ("THIRD-0",))]


def test_a_fallback_serves_no_more_at_once_than_it_may():
    wants = request(1, count=2)
    devices = (*cards(1), *slices(2))
    assert starts(view([active(0), wants], devices)) == []
    assert starts(view([active(0), wants], devices, offer(most=2))) == [
        ("r1", "slice", ("SLICE-0", "SLICE-1"))
    ]


def test_what_comes_free_by_itself_is_waited_for():
    ending = active(0, state=LeaseState.ENDED, ended=NOW)
    leaving = cards(1, occupied_by="r0")
    assert starts(view([ending, request(1)], (*leaving, *slices(1)))) == []


def test_nobody_is_asked_to_leave_for_a_fallback():
    holder = active(0, gpu_class="slice", device="SLICE-0")
    seen = view([holder, request(1)], slices(1), evidence={"r0": idle(1000)})
    assert not [a for a in plan(seen) if isinstance(a, (Warn, Drain)) and a.nominated_for]


def test_a_limit_stands_for_a_fallback_too():
    one, two = (request(n, user="same", server=str(n)) for n in (1, 2))
    seen = view([one, two], (*cards(1), *slices(1)), replace(offer(), leases_per_user=1))
    assert starts(seen) == [("r1", "", ("GPU-0",))]


def granted():
    queued = request(1)
    return lifecycle.apply(queued, Start("r1", "starting", ("SLICE-0",), "slice"), NOW, OUTS)


def test_the_lease_is_of_the_class_that_serves_it_and_remembers_what_was_asked():
    lease = granted()
    assert (lease.gpu_class, lease.asked_class) == ("slice", "t4")
    assert "t4 was full: you got slice." in explain(lease, offer()).sentence
    back = lifecycle.apply(lease, Requeue("r1", "evicted", at(5), False), NOW, OUTS)
    assert (back.gpu_class, back.asked_class) == ("t4", "")
    plain = lifecycle.apply(request(1), Start("r1", "starting", ("GPU-0",)), NOW, OUTS)
    assert (plain.gpu_class, plain.asked_class) == ("t4", "")


@pytest.mark.parametrize("name", ["t4", "slice"])
def test_asking_again_for_either_class_is_answered_by_the_lease(name):
    lease = granted()
    seen = view([lease], (*cards(1), *slices(1)))
    ask = Ask(lease.user, lease.server, gpu_class=name)
    assert answer(ask, seen, "new", (NOW, 9)).lease is lease


def test_a_request_may_be_for_a_class_that_only_its_fallback_can_serve():
    seen = view([], slices(1))
    assert answer(Ask("jane", "", gpu_class="t4"), seen, "new", (NOW, 9)).new


@given(st.integers(0, 3), st.integers(0, 3), st.lists(st.sampled_from(["t4", "slice"]), max_size=8))
def test_nothing_stays_free_that_somebody_waiting_could_use(cards_, slices_, wanted):
    requests = [request(n, gpu_class=name) for n, name in enumerate(wanted)]
    seen = view(requests, (*cards(cards_), *slices(slices_)))
    given_ = starts(seen)
    devices = [uuid for _, _, uuids in given_ for uuid in uuids]
    assert len(devices) == len(set(devices))
    t4 = wanted.count("t4")
    direct = min(slices_, len(wanted) - t4)
    overflow = max(0, t4 - cards_)
    assert len(devices) == min(cards_, t4) + direct + min(overflow, slices_ - direct)
    assert starts(seen) == given_
