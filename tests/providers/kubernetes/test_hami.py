"""Fractions under HAMi: our count of slots is what its scheduler has room for.

HAMi itself was not run: the form of its annotations, the rule by which its scheduler fits a share
to a card and its words are those of its documentation and source, 2.10.
"""

from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.policy.model import GPUClass
from gpulease.policy.pods import AskKind, PodAsk, hami
from gpulease.providers.kubernetes.capacity.slots import Inventories, Placing
from gpulease.providers.kubernetes.observed.cluster import _kept_node
from gpulease.providers.kubernetes.observed.hami import CARDS, no_room, shares_of
from gpulease.providers.kubernetes.observed.pods import Part, use_of
from tests.providers.kubernetes.objects import INSTANCE, lease_pod, node, pod

GPU = "nvidia.com/gpu"
#: As docs/develop/protocol.md shows it: two cards of 32 GiB.
PUBLISHED = (
    "GPU-00552014-5c87-89ac-b1a6-7b53aa24b0ec,10,32768,100,NVIDIA-Tesla V100-PCIE-32GB,0,true,0,"
    "hami-core:GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448,10,32768,100,NVIDIA-Tesla V100-PCIE-32GB,"
    "0,true,1,hami-core:"
)
PERCENT = st.integers(1, 100)


def told(cards):
    """The annotation of cards: replicas, MiB, cores, health."""
    return "".join(
        f"GPU-{number},{replicas},{memory},{cores},NVIDIA-A100,0,{str(healthy).lower()},{number},"
        "hami-core:"
        for number, (replicas, memory, cores, healthy) in enumerate(cards)
    )


def hami_node(text="", gpus=20, **more):
    made = node(gpus=gpus, **more)
    made["metadata"]["annotations"] = {CARDS: text, "hami.io/node-handshake": "Requesting_x"}
    return _kept_node(made)


def fraction(ask):
    return GPUClass("part", "cards", pod=ask)


def shown(nodes, ask, pods=(), granted=None):
    found = Inventories().of(nodes, [fraction(ask)], INSTANCE)
    return Placing().place(found, [use_of(each, INSTANCE) for each in pods], granted or {})


def placed_by_hami(cards, memory_percent, cores):
    """Let pods come one by one until its scheduler's rule lets none in; return how many came."""
    used = [[0, 0, 0] for _ in cards]
    for came in count():
        for card, (replicas, memory, most, healthy) in zip(used, cards, strict=True):
            asked = memory * memory_percent // 100
            full = most != 0 and card[2] == most and cores == 0
            alone = most == 100 and cores == 100 and card[0] > 0
            fits = card[0] < replicas and memory - card[1] >= asked and most - card[2] >= cores
            if healthy and fits and not full and not alone:
                card[0] += 1
                card[1] += asked
                card[2] += cores
                break
        else:
            return came
    raise AssertionError


@given(
    st.lists(
        st.tuples(st.integers(1, 12), st.integers(1000, 90000), st.just(100), st.booleans()),
        min_size=1,
        max_size=8,
    ),
    PERCENT,
    st.integers(0, 100),
)
def test_we_count_as_many_slots_as_hami_has_room_for(cards, memory, cores):
    found = shares_of(hami_node(told(cards)), GPU, hami(memory, cores))
    assert found is not None
    assert found.ready == placed_by_hami(cards, memory, cores)
    assert found.total == placed_by_hami([(*each[:3], True) for each in cards], memory, cores)


@given(st.integers(1, 16), PERCENT, st.integers(0, 100))
def test_before_hami_tells_of_its_cards_we_count_its_default_replicas(number, memory, cores):
    devices = shown([hami_node(gpus=number * 10)], hami(memory, cores)).devices
    assert len(devices) == placed_by_hami([(10, 100, 100, True)] * number, memory, cores)


def test_the_published_annotation_is_read():
    devices = shown([hami_node(PUBLISHED)], hami(30, 30)).devices
    assert [each.healthy for each in devices] == [True] * 6, "three to a card, not seven to two"


def test_shares_of_a_card_that_is_ill_are_out_of_service():
    text = PUBLISHED.replace(",0,true,1,", ",0,false,1,")
    devices = shown([hami_node(text)], hami(40, 40)).devices
    assert sorted(each.healthy for each in devices) == [False, False, True, True]


def test_a_share_in_mebibytes_is_counted_too():
    ask = PodAsk(AskKind.EXTRA, resource=GPU, extra_resources=(("nvidia.com/gpumem", "10000"),))
    assert len(shown([hami_node(PUBLISHED)], ask).devices) == 6


def test_two_leases_share_a_card_and_the_third_finds_it_full():
    text = PUBLISHED.partition(":")[0]
    granted = {Part(each, 1): (f"n1/{GPU}/{n}",) for n, each in enumerate(("l1", "l2"))}
    pods = [lease_pod(each, node="n1") for each in ("l1", "l2")]
    found = shown([hami_node(text, gpus=10)], hami(40, 40), pods, granted)
    assert [each.occupied_by for each in found.devices] == ["l1", "l2"]


@pytest.mark.parametrize(
    ("asked", "free"),
    [
        ({}, 3),  # a whole card, as HAMi takes a pod that names no memory
        ({"nvidia.com/gpumem-percentage": "25"}, 5),
        ({"nvidia.com/gpumem-percentage": "40"}, 4),
        ({"nvidia.com/gpumem": "8192"}, 5),
        ({"nvidia.com/gpumem-percentage": "10", "nvidia.com/gpucores": "60"}, 4),
    ],
)
def test_what_others_take_of_a_card_is_taken_of_our_shares(asked, free):
    other = pod("other", node="n1")
    other["spec"]["containers"][0]["resources"]["limits"] |= asked
    devices = shown([hami_node(PUBLISHED)], hami(30, 30), [other]).devices
    assert sum(each.occupied_by is None for each in devices) == free


def test_a_class_may_still_say_how_many_replicas_a_share_is():
    ask = hami(50, 50)
    own = PodAsk(ask.kind, ask.resource, slot_units=2, extra_resources=ask.extra_resources)
    assert len(shown([hami_node(gpus=8)], own).devices) == 4


def test_whole_cards_are_counted_as_ever():
    assert shares_of(hami_node(PUBLISHED), GPU, PodAsk()) is None


def event(message):
    return {"reason": "FilteringFailed", "message": message}


@pytest.mark.parametrize(
    ("message", "events", "waits"),
    [
        ("0/2 nodes are available: 1 NodeUnfitPod, 1 node unregistered.", [], True),
        ("0/1 nodes are available: 1 CardInsufficientMemory.", [], True),
        (
            "0/1 nodes are available: 1 NodeUnfitPod.",
            [event("1 nodes CardInsufficientCore(n1)"), event("no available node, 1 nodes do not")],
            True,
        ),
        (
            "0/2 nodes are available: 2 NodeUnfitPod.",
            [event("1 nodes CardTypeMismatch(n1)"), event("1 nodes CardTimeSlicingExhausted(n2)")],
            True,
        ),
        ("0/1 nodes are available: 1 NodeUnfitPod.", [event("1 nodes CardTypeMismatch(n)")], False),
        ("0/1 nodes are available: 1 node unregistered.", [], False),
        ("0/1 nodes are available: 1 node(s) had untolerated taint(s).", [], False),
    ],
)
def test_a_share_that_finds_no_room_waits_and_one_that_never_fits_fails(message, events, waits):
    assert no_room(message, events) is waits


def test_the_parts_of_a_card_are_counted_as_hami_tells_of_it():
    """A part is a percent of a card, whatever the class's lease has of them."""
    large = GPUClass(
        "large", "cards", pod=replace(hami(100, 0), slot_units=1), parts=7, card_parts=10
    )
    (found,) = Inventories().of([node("n1", 20)], (large,), INSTANCE)
    assert (found.total, found.card_parts) == (20, 10)
    assert found.shares is not None
    assert found.shares.room == (10, 10)
    assert {found.card(found.slot(n)).rpartition("-")[2] for n in range(10, 20)} == {"1"}
