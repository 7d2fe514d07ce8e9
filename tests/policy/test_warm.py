"""How many lease pods stand ready, and what the policy may say of them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.errors import GPULeaseError
from gpulease.policy import document
from gpulease.policy.capacity import planned_pods, ready_pods
from gpulease.policy.catalog import Warm, WarmHours
from gpulease.policy.document.edit import differences
from gpulease.policy.model import Device, Observed, Pool, Snapshot, Start
from gpulease.policy.planner import plan
from tests.policy.build import NOW, policy, request, starting

TEXT = """
pools: {cards: {}}
classes:
  card:
    pool: cards
    pod: {image: example.org/gpu:1}
    warm: {pods: 1, hours: {Mon-Fri 08:00-18:00: 4, Sat-Mon 20:00-24:00: 2}, zone: Europe/Berlin}
"""
MONDAY = datetime(2026, 3, 2, tzinfo=UTC)


def warm(**changed):
    by = policy(pools=(Pool("cards"),), **changed)
    return replace(
        by,
        classes=tuple(
            replace(each, pool="cards", warm=Warm(2)) if n < 2 else each
            for n, each in enumerate(by.classes)
        ),
    )


def shot(*leases, devices=(), by=None, observed=()):
    return Snapshot(
        now=NOW,
        policy=by or warm(),
        devices=tuple(devices),
        leases=leases,
        evidence={},
        observed={each.lease_id: each for each in observed},
    )


def cards(number, *ready, node="n1"):
    marks = [*ready, *[""] * number]
    return [Device(f"{node}/r/{n}", "cards", node=node, warm=marks[n]) for n in range(number)]


@pytest.mark.parametrize(
    ("day", "hour", "pods"),
    [(0, "07:59", 1), (0, "08:00", 4), (4, "17:59", 4), (4, "18:00", 1), (5, "12:00", 1),
     (5, "23:59", 2), (0, "21:00", 2), (1, "21:00", 1)],
)  # fmt: skip
def test_the_hours_of_the_week_say_how_many_by_the_clock_on_the_wall(day, hour, pods):
    found = document.parse(TEXT).classes[0].warm
    clock = timedelta(hours=int(hour[:2]) - 1, minutes=int(hour[3:]))  # Berlin's in winter
    assert planned_pods(found, MONDAY + timedelta(days=day) + clock) == pods


@given(
    st.builds(
        Warm,
        st.integers(0, 9),
        st.lists(
            st.builds(
                lambda first, length, start, more, pods: WarmHours(
                    tuple(sorted((first + n) % 7 for n in range(length))),
                    start,
                    min(start + more, 1440),
                    pods,
                ),
                st.integers(0, 6),
                st.integers(1, 7),
                st.integers(0, 1438),
                st.integers(1, 600),
                st.integers(0, 9),
            ),
            max_size=3,
            unique_by=lambda each: (each.days, each.start, each.end),
        ).map(tuple),
        st.sampled_from(["UTC", "Europe/Berlin"]),
    )
)
def test_what_is_written_is_read_back(warm):
    before = document.parse(TEXT)
    changed = replace(before, classes=(replace(before.classes[0], warm=warm),))
    assert document.parse(document.dump(changed)).classes == changed.classes


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("pod: {image: x}, warm: {hours: {Mon 8-18: 2}}", "'Mon 8-18' is not a part of the week."),
        ("pod: {image: x}, warm: {hours: {Mon 18:00-08:00: 2}}", "is not a part of the week."),
        ("pod: {image: x}, warm: {zone: Berlin}", "'Berlin' is not a time zone."),
        ("warm: {pods: 1}", "needs an image before it is known whose it will be"),
        ("pod: {kind: dra, image: x}, warm: {pods: 1}", "Pods of kind dra cannot stand ready."),
        ("pod: {image: x, queue: {kueue: q}}, warm: {pods: 1}", "What a cluster's queue admits"),
    ],
)
def test_what_cannot_stand_ready_is_refused_with_a_sentence(line, message):
    with pytest.raises(GPULeaseError) as refused:
        document.parse(f"pools: {{cards: {{}}}}\nclasses:\n  card: {{pool: cards, {line}}}\n")
    found = refused.value.numbers["findings"]
    assert any(message in each["message"] for each in found), found


def test_a_change_is_told():
    before = document.parse(TEXT)
    after = document.parse(TEXT.replace("pods: 1", "pods: 3"))
    assert [str(each) for each in differences(before, after)] == [
        "for class card: set warm.pods from 1 to 3"
    ]


def test_never_more_than_are_free_and_classes_of_a_pool_share_them_in_their_order():
    first, second = (each.name for each in warm().classes[:2])
    assert ready_pods(shot(devices=cards(5))).pods == {first: 2, second: 2}
    assert ready_pods(shot(devices=cards(3))).pods == {first: 2, second: 1}
    held = [replace(each, occupied_by="x") for each in cards(3)]
    assert ready_pods(shot(devices=held)).pods == {first: 0, second: 0}


def test_none_while_the_pool_is_paused_a_quota_is_full_or_nobody_knows_what_is_free():
    full = shot(request(1, reason="quota_exceeded"), devices=cards(4))
    assert not ready_pods(full).pods
    by = replace(warm(), pools=(Pool("cards", paused=True),))
    assert set(ready_pods(shot(devices=cards(4), by=by)).pods.values()) == {0}
    assert ready_pods(replace(shot(devices=cards(4)), capacity_known=False)) is None


def test_a_device_that_is_granted_is_named_until_something_of_its_lease_is_there():
    lease = starting(1, devices=("n1/r/0",))
    told = ready_pods(shot(lease, devices=cards(2)))
    assert told.granted == {"n1/r/0": (lease.id, lease.gpu_class)}
    landed = Observed(lease.id, lease.attempt, devices=("n1/r/0",))
    assert not ready_pods(shot(lease, devices=cards(2), observed=[landed])).granted


def test_a_request_goes_where_a_pod_of_its_class_stands_ready():
    name = request(1).gpu_class
    there = [*cards(2, node="a"), *cards(3, name, node="b")]
    (step,) = plan(shot(request(1), devices=there))
    assert isinstance(step, Start)
    assert step.devices[0].startswith("b/")


def test_a_pod_of_another_class_is_given_away_only_if_it_must_be():
    there = [*cards(1, "other", node="a"), *cards(3, node="b")]
    (step,) = plan(shot(request(1), devices=there))
    assert step.devices[0].startswith("b/")
    (step,) = plan(shot(request(1), devices=cards(1, "other")))
    assert step.devices == ("n1/r/0",)
