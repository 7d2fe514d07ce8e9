"""What nodes offer and what their pods take, as slots."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.policy.model import GPUClass
from gpulease.policy.pods import AskKind, PodAsk, Toleration, Where, hami
from gpulease.protocol import labels
from gpulease.providers.kubernetes.capacity.slots import Inventories, Placing
from gpulease.providers.kubernetes.observed.cluster import leaving, upgrading
from gpulease.providers.kubernetes.observed.pods import Part, use_of
from tests.providers.kubernetes.objects import INSTANCE, lease_pod, node, pod

GPU = "nvidia.com/gpu"
CARD = GPUClass("card", "cards")


def shown(nodes, pods=(), granted=None, classes=(CARD,)):
    uses = [use_of(each, INSTANCE) for each in pods]
    offered = Inventories().of(nodes, classes, INSTANCE)
    return Placing().place(offered, uses, granted or {})


def occupied(placement):
    return {d.uuid.removeprefix("n"): d.occupied_by for d in placement.devices if d.occupied_by}


def slot(number, where="n1"):
    return f"{where}/{GPU}/{number}"


def test_each_unit_of_each_node_is_a_device():
    placed = shown([node("n2", 1), node("n1", 2)])
    assert [d.uuid for d in placed.devices] == [slot(0), slot(1), slot(0, "n2")]
    assert {d.node for d in placed.devices} == {"n1", "n2"}
    assert {d.pool for d in placed.devices} == {"cards"}
    assert all(d.healthy and not d.lost and d.occupied_by is None for d in placed.devices)
    assert all(d.serves == ("card",) for d in placed.devices)


@pytest.mark.parametrize(
    ("marks", "corrects"),
    [
        ({}, None),
        ({labels.ECC: "true"}, True),
        ({labels.ECC: "false"}, False),
        ({labels.ECC: "?"}, None),
    ],
)
def test_a_node_says_whether_its_memory_corrects_errors(marks, corrects):
    assert [d.ecc for d in shown([node(gpus=2, marks=marks)]).devices] == [corrects] * 2


def test_what_others_hold_is_foreign_and_leaves_granted_slots_alone():
    granted = {Part("l1", 1): (slot(3),)}
    placed = shown([node(gpus=4)], [pod("other", node="n1", gpus=2)], granted)
    found = {d.uuid: d.occupied_by for d in placed.devices}
    assert found == {slot(0): None, slot(1): "foreign", slot(2): "foreign", slot(3): "l1"}


@pytest.mark.parametrize("where", ["n1", "n2"])
def test_each_pod_of_a_lease_keeps_the_slots_of_its_own_node(where):
    parts = [Part("l1", 1, 0), Part("l1", 1, 1)]
    granted = {parts[0]: (slot(1),), parts[1]: (slot(3, where),)}
    bound = [
        lease_pod("l1", node=there, count=2, nodes=2, rank=rank)
        for rank, there in enumerate(("n1", where))
    ]
    assert shown([node("n1"), node("n2")], bound, granted).held == granted
    first = shown([node("n1"), node("n2")], bound[:1], granted)
    assert first.held == {parts[0]: (slot(1),)}
    occupied = {d.uuid for d in first.devices if d.occupied_by == "l1"}
    assert occupied == {slot(1), slot(3, where)}, "the other's wait for its pod"


def test_others_may_take_even_what_was_granted():
    granted = {Part("l1", 1): (slot(1),)}
    placed = shown([node(gpus=2)], [pod("other", node="n1", gpus=2)], granted)
    assert [d.occupied_by for d in placed.devices] == ["foreign", "foreign"]


def test_pods_that_are_over_or_nowhere_take_nothing_of_a_node():
    pods = [pod("done", node="n1", phase="Succeeded"), pod("waits")]
    assert occupied(shown([node()], pods)) == {}


def test_our_own_pod_holds_its_slot_until_the_object_is_gone():
    over = lease_pod("l1", node="n1", phase="Failed")
    placed = shown([node(gpus=1)], [over], {Part("l1", 1): (slot(0),)})
    assert placed.devices[0].occupied_by == "l1"


def test_a_pod_that_landed_where_it_was_granted_keeps_its_slots():
    granted = {Part("l1", 1): (slot(2), slot(3))}
    placed = shown([node(gpus=4)], [lease_pod("l1", node="n1", count=2)], granted)
    assert placed.held == {Part("l1", 1): (slot(2), slot(3))}


def test_a_pod_that_landed_elsewhere_takes_slots_there_that_nobody_waits_for():
    granted = {Part("l1", 1): (slot(0),), Part("l2", 1): (slot(0, "n2"),)}
    placed = shown([node("n1", 1), node("n2", 2)], [lease_pod("l1", node="n2")], granted)
    assert placed.held == {Part("l1", 1): (slot(1, "n2"),)}
    found = {d.uuid: d.occupied_by for d in placed.devices}
    assert found == {slot(0): None, slot(0, "n2"): "l2", slot(1, "n2"): "l1"}


def test_a_pod_takes_the_slot_of_one_that_still_waits_when_there_is_no_other():
    granted = {Part("l1", 1): (slot(0),), Part("l2", 1): (slot(0, "n2"),)}
    placed = shown([node("n1", 1), node("n2", 1)], [lease_pod("l1", node="n2")], granted)
    assert placed.held == {Part("l1", 1): (slot(0, "n2"),)}


def test_two_attempts_of_one_lease_are_two_pods():
    pods = [lease_pod("l1", attempt=1, node="n1"), lease_pod("l1", attempt=2, node="n1")]
    placed = shown([node(gpus=2)], pods, {Part("l1", 2): (slot(0),)})
    assert placed.held == {Part("l1", 1): (slot(1),), Part("l1", 2): (slot(0),)}


def test_a_device_that_the_kubelet_withdrew_is_not_one_that_is_held():
    placed = shown(
        [node(gpus=3, ready=2)], [lease_pod("l1", node="n1")], {Part("l1", 1): (slot(2),)}
    )
    assert [(d.healthy, d.occupied_by) for d in placed.devices] == [
        (True, None), (False, None), (True, "l1"),
    ]  # fmt: skip


def test_a_plugin_that_is_away_frees_nothing_and_ends_nothing():
    placed = shown([node(gpus=0)], [lease_pod("l1", node="n1")], {Part("l1", 1): (slot(0),)})
    assert placed.devices == ()
    placed = shown(
        [node(gpus=1, ready=0)], [lease_pod("l1", node="n1")], {Part("l1", 1): (slot(0),)}
    )
    assert [(d.healthy, d.occupied_by) for d in placed.devices] == [(True, "l1")]


def test_a_slot_stays_while_its_pod_runs_although_capacity_shrank():
    placed = shown([node(gpus=1)], [lease_pod("l1", node="n1")], {Part("l1", 1): (slot(3),)})
    assert placed.held == {Part("l1", 1): (slot(3),)}
    assert placed.devices[3].occupied_by == "l1"


def test_nodes_that_are_away_cordoned_or_announced():
    placed = shown(
        [
            node("n1", 1, state="Unknown"),
            node("n2", 1, cordoned=True),
            node(
                "n3", 1, taints=[{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]
            ),
            node("n4", 1, state="False"),
        ]
    )
    assert [(d.lost, d.leaving) for d in placed.devices] == [
        (True, False), (False, True), (False, True), (True, False),
    ]  # fmt: skip


def test_a_taint_that_a_class_does_not_bear_keeps_its_leases_out():
    bears = GPUClass("bears", "cards", pod=PodAsk(tolerations=(Toleration("team", "a"),)))
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    placed = shown([node(gpus=1, taints=[taint])], classes=(CARD, bears))
    assert placed.devices[0].serves == ("bears",)


def test_each_node_belongs_to_the_pool_of_the_first_class_that_fits_it():
    big = GPUClass("big", "large", pod=PodAsk(where=Where(products=("NVIDIA A100",))))
    small = GPUClass("small", "small")
    marks = {"nvidia.com/gpu.product": "NVIDIA-A100", "nvidia.com/gpu.memory": "81920"}
    placed = shown([node("n1", 1, marks=marks), node("n2", 1)], classes=(big, small))
    assert [(d.pool, d.serves) for d in placed.devices] == [
        ("large", ("big",)), ("small", ("small",)),
    ]  # fmt: skip
    assert placed.devices[0].memory == 80 * 2**30
    assert placed.devices[0].name == "NVIDIA-A100"


def test_two_classes_of_one_pool_may_want_different_nodes():
    any_card = GPUClass("any", "cards")
    a100 = GPUClass("a100", "cards", pod=PodAsk(where=Where(products=("NVIDIA A100",))))
    marks = {"nvidia.com/gpu.product": "NVIDIA-A100"}
    placed = shown([node("n1", 1, marks=marks), node("n2", 1)], classes=(any_card, a100))
    assert [d.serves for d in placed.devices] == [("any", "a100"), ("any",)]


def test_resources_that_no_class_asks_for_are_shown_under_their_model():
    marks = {"nvidia.com/gpu.product": "Tesla-T4"}
    placed = shown([node("n1", 1, marks=marks), node("n2", 1)], classes=())
    assert [(d.pool, d.serves) for d in placed.devices] == [
        ("tesla-t4", None),
        ("nvidia-com-gpu", None),
    ]


def test_several_units_may_make_one_slot():
    half = GPUClass(
        "half", "halves",
        pod=PodAsk(AskKind.EXTRA, resource=GPU, slot_units=5),
    )  # fmt: skip
    placed = shown([node(gpus=10)], [pod("other", node="n1", gpus=1)], classes=(half,))
    assert [d.occupied_by for d in placed.devices] == [None, "foreign"]


def test_a_node_of_another_installation_offers_nothing():
    mine = node("n1", 1, marks={labels.INSTANCE: INSTANCE})
    theirs = node("n2", 1, marks={labels.INSTANCE: "hub-b"})
    assert [d.node for d in shown([mine, theirs]).devices] == ["n1"]


def test_a_lease_pod_of_another_installation_is_foreign():
    placed = shown([node(gpus=1)], [lease_pod("l1", instance="hub-b", node="n1")])
    assert placed.devices[0].occupied_by == "foreign"


crowds = st.lists(
    st.tuples(st.sampled_from(["n1", "n2", ""]), st.integers(1, 3), st.booleans()), max_size=8
)


@given(crowds, st.permutations(range(8)), st.integers(0, 4), st.integers(1, 6))
def test_no_slot_is_ever_held_twice_and_order_does_not_matter(crowd, order, ready, gpus):
    pods = [
        lease_pod(f"l{i}", node=where, count=count)
        if ours
        else pod(f"o{i}", node=where, gpus=count)
        for i, (where, count, ours) in enumerate(crowd)
    ]
    granted = {
        Part(f"l{i}", 1): tuple(slot(k, "n1" if i % 2 else "n2") for k in range(count))
        for i, (_, count, ours) in enumerate(crowd)
        if ours
    }
    nodes = [node("n1", gpus, ready=min(ready, gpus)), node("n2", gpus)]
    placed = shown(nodes, pods, granted)
    taken = [name for names in placed.held.values() for name in names]
    assert len(taken) == len(set(taken))
    bound = {
        Part(f"l{i}", 1): count for i, (where, count, ours) in enumerate(crowd) if ours and where
    }
    assert {key: len(names) for key, names in placed.held.items()} == bound
    occupants = {d.uuid: d.occupied_by for d in placed.devices}
    assert all(occupants[name] == key[0] for key, names in placed.held.items() for name in names)
    shuffled = [pods[i] for i in order if i < len(pods)]
    assert shown(list(reversed(nodes)), shuffled, granted) == placed
    assert shown(nodes, pods, {**granted, **placed.held}).held == placed.held, "it stays so"


changes = st.lists(
    st.tuples(
        st.sampled_from(["pod", "gone", "grant", "node", "classes"]),
        st.integers(0, 5),
        st.sampled_from(["n1", "n2", "n3", ""]),
    ),
    max_size=12,
)


@given(changes)
def test_what_changed_alone_is_worked_out_anew_and_it_comes_out_the_same(steps):
    kept, placing = Inventories(), Placing()
    nodes, pods, granted, classes = {name: node(name, 3) for name in ("n1", "n2")}, {}, {}, (CARD,)
    for what, number, where in steps:
        if what == "pod":
            make = lease_pod if number % 2 else pod
            pods[number] = make(f"l{number}", node=where)
        elif what == "gone":
            pods.pop(number, None)
        elif what == "grant":
            granted[Part(f"l{number}", 1)] = (slot(number % 3, where or "n1"),)
        elif what == "node" and where:
            nodes[where] = node(where, number)
        elif what == "classes":
            classes = (GPUClass(f"c{number}", "cards"),)
        uses = [use_of(each, INSTANCE) for each in pods.values()]
        offered = kept.of(nodes.values(), classes, INSTANCE)
        assert offered == Inventories().of(nodes.values(), classes, INSTANCE)
        assert placing.place(offered, uses, granted) == Placing().place(offered, uses, granted)


def test_one_pod_costs_one_node():
    nodes, kept, placing = [node(f"n{n}", 8) for n in range(50)], Inventories(), Placing()
    uses = [use_of(lease_pod(f"l{n}", node=f"n{n}"), INSTANCE) for n in range(50)]
    placing.place(kept.of(nodes, (CARD,), INSTANCE), uses, {})
    assert placing.worked_out == 50
    nodes[3] = node("n3", 8)  # a heartbeat: another object that says the same
    placing.place(kept.of(nodes, (CARD,), INSTANCE), uses[1:], {})
    assert placing.worked_out == 51


@pytest.mark.parametrize(
    "key",
    [
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "cloud.google.com/impending-node-termination",
        "aws-node-termination-handler/spot-itn",
        "aws-node-termination-handler/asg-lifecycle-termination",
        "node.kubernetes.io/out-of-service",
    ],
)
def test_a_node_that_is_announced_to_go_leaves(key):
    taint = {"key": key, "effect": "NoSchedule"}
    assert leaving({"metadata": {"name": "n"}, "spec": {"taints": [taint]}})
    kept = {"key": "gpulease/pool", "value": "cards", "effect": "NoSchedule"}
    assert not leaving({"metadata": {"name": "n"}, "spec": {"taints": [kept]}})


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("upgrade-required", False),  # in the queue; the old driver runs on
        ("wait-for-jobs-required", True),
        ("pod-restart-required", True),
        ("upgrade-done", False),
        ("", False),
    ],
)
def test_the_gpu_operator_says_when_it_replaces_a_driver(state, expected):
    marks = {"nvidia.com/gpu-driver-upgrade-state": state} if state else {}
    assert upgrading({"metadata": {"name": "n", "labels": marks}}) is expected


def ready(name, gpu_class="card"):
    """A pod on n1 that stands ready."""
    marks = {
        labels.WARM: gpu_class,
        labels.INSTANCE: labels.label_value(INSTANCE),
        labels.COMPONENT: labels.LEASE_COMPONENT,
    }
    return pod(name, node="n1", marks=marks, notes={labels.GPU_CLASS: gpu_class})


def test_where_a_pod_stands_ready_is_free_and_named():
    found = shown([node(gpus=2)], [ready("w")])
    assert [each.occupied_by for each in found.devices] == [None, None]
    assert sorted(each.warm for each in found.devices) == ["", "card"]
    assert not found.held


@pytest.mark.parametrize("granted", range(4))
def test_of_what_works_still_a_ready_pod_and_who_waits_have_the_first(granted):
    """The one device that works is the ready pod's, and once it is granted that lease's."""
    nodes = [node(gpus=4, ready=1)]
    (working,) = [each for each in shown(nodes, [ready("w")]).devices if each.healthy]
    assert working.warm == "card"
    wanted = slot(granted)
    found = shown(nodes, [ready("w")], {Part("lease", 1): (wanted,)})
    assert [each.uuid for each in found.devices if each.healthy] == [wanted]


# Parts of cards


LARGE = GPUClass("large", "cards", pod=replace(hami(100, 0), slot_units=1), parts=7, card_parts=10)


def test_the_tenths_of_a_card_are_devices_that_stand_together():
    devices = shown([node(gpus=20)], classes=(LARGE,)).devices
    assert len(devices) == 20
    assert {d.card_parts for d in devices} == {10}
    found = Counter(d.card for d in devices)
    assert found == {f"n1/{GPU}/card-0": 10, f"n1/{GPU}/card-1": 10}
    assert {d.place for d in devices} == found.keys()


def test_a_pod_that_landed_elsewhere_takes_parts_of_one_card():
    """The fullest one with room, though not what another lease waits for."""
    waits = {Part("l2", 1): tuple(slot(n) for n in range(10, 17))}
    first = lease_pod("l1", node="n1", count=4)
    both = [first, lease_pod("l3", node="n1", count=4)]
    held = shown([node(gpus=20)], both, waits, (LARGE,)).held
    assert {slot(int(n)) for n in range(8)} == {
        s for p, found in held.items() for s in found if p.lease != "l2"
    }
    third = shown([node(gpus=20)], [*both, lease_pod("l4", node="n1", count=7)], {}, (LARGE,)).held
    assert {s.rpartition("/")[2] for s in third[Part("l4", 1)]} == set(map(str, range(10, 17)))


def test_what_nothing_keeps_to_its_part_serves_nobody():
    bare = replace(LARGE, pod=None)
    assert {d.serves for d in shown([node(gpus=10)], classes=(bare,)).devices} == {None}
    assert {d.pool for d in shown([node(gpus=10)], classes=(bare,)).devices} != {"cards"}
