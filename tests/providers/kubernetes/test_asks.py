from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.errors import GPULeaseError
from gpulease.policy.fitting import Needs, suits
from gpulease.policy.model import Device, GPUClass
from gpulease.policy.pods import (
    AskKind,
    PodAsk,
    Sharing,
    Toleration,
    Where,
    hami,
    slot_units_of,
)
from gpulease.providers.kubernetes.pod_resources.ask import ask_of, pod_fields
from gpulease.providers.kubernetes.pod_resources.claims import (
    claim_spec,
    claim_template,
    device_compute,
    device_fits,
    device_memory,
    device_text,
    quantity,
    template_name,
)
from gpulease.providers.kubernetes.pod_resources.nodes import (
    bears,
    compute_of,
    ecc_of,
    fits,
    fitting,
    narrowed,
    tolerations,
)
from tests.providers.kubernetes.expected import class_of, expected_asks

EXPECTED = expected_asks()
A100 = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/gpu.memory": "81920",
    "nvidia.com/gpu.compute.major": "8",
    "nvidia.com/gpu.compute.minor": "0",
}


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda e: e.name)
def test_each_kind_of_ask_says_what_the_table_says(expected):
    said = pod_fields(expected.gpu_class, expected.count)
    wanted = expected.words
    assert said.limits == wanted.get("limits", {})
    assert said.terms == wanted.get("terms", [[]])
    assert said.preferred == wanted.get("preferred", [])
    assert said.node_selector == wanted.get("node_selector", {})
    assert said.annotations == wanted.get("annotations", {})
    assert said.claims == wanted.get("claims", [])
    ask = ask_of(expected.gpu_class)
    if "claim" in wanted:
        assert claim_spec(ask, expected.count) == wanted["claim"]
        name = template_name("gpu", ask, expected.count)
        assert said.resource_claims == [{"name": "gpu", "resourceClaimTemplateName": name}]
    else:
        assert said.resource_claims == []
    assert slot_units_of(ask) == expected.slot_units


def test_the_table_has_every_kind():
    assert {ask_of(each.gpu_class).kind for each in EXPECTED} == set(AskKind)


def test_every_pod_bears_the_two_taints_of_gpu_nodes_and_each_once():
    ask = PodAsk(tolerations=(Toleration("nvidia.com/gpu"), Toleration("a", "b", "NoExecute")))
    assert tolerations(ask) == [
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": "gpulease/pool", "operator": "Exists"},
        {"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute"},
    ]


@pytest.mark.parametrize(
    ("taint", "borne"),
    [
        ({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}, True),
        ({"key": "gpulease/pool", "effect": "NoSchedule"}, True),
        ({"key": "a", "value": "b", "effect": "NoExecute"}, True),
        ({"key": "a", "value": "b", "effect": "NoSchedule"}, False),
        ({"key": "a", "value": "c", "effect": "NoExecute"}, False),
        ({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}, False),
        ({"key": "other", "effect": "PreferNoSchedule"}, True),
    ],
)
def test_a_taint_is_borne_as_the_scheduler_judges_it(taint, borne):
    ask = PodAsk(tolerations=(Toleration("a", "b", "NoExecute"),))
    assert bears(ask, [taint]) is borne
    assert bears(ask, [taint, {"key": "x", "effect": "NoSchedule"}]) is False


@pytest.mark.parametrize(
    ("where", "found"),
    [
        (Where(), True),
        (Where(memory_min=80 * 2**30), True),
        (Where(memory_min=80 * 2**30 + 1), False),
        (Where(memory_max=80 * 2**30), True),
        (Where(memory_max=80 * 2**30 - 1), False),
        (Where(compute_min="8.0"), True),
        (Where(compute_min="8.6"), False),
        (Where(compute_min="7.5", compute_max="8.0"), True),
        (Where(compute_max="7.5"), False),
        (Where(products=("NVIDIA A100-SXM4-80GB",)), True),
        (Where(products=("Tesla T4", "NVIDIA-A100-SXM4-80GB")), True),
        (Where(products=("Tesla T4",)), False),
    ],
)
def test_a_node_is_judged_by_its_labels(where, found):
    assert fits(PodAsk(where=where), A100) is found
    assert fits(PodAsk(where=where), {}) is (where == Where())


versions = st.tuples(st.integers(1, 12), st.integers(0, 9))


@given(versions, versions, versions)
def test_a_compute_capability_is_compared_as_a_version(lowest, highest, own):
    where = Where(compute_min="{}.{}".format(*lowest), compute_max="{}.{}".format(*highest))
    node = {
        "nvidia.com/gpu.compute.major": str(own[0]),
        "nvidia.com/gpu.compute.minor": str(own[1]),
    }
    wanted = lowest <= own <= highest
    assert fits(PodAsk(where=where), node) is wanted
    device = {"attributes": {"cudaComputeCapability": {"version": "{}.{}.0".format(*own)}}}
    assert device_fits(PodAsk(AskKind.DRA, where=where), "gpu.nvidia.com", device) is wanted


@given(st.integers(1, 2**40), st.integers(0, 2**20))
def test_memory_is_compared_in_whole_mebibytes(wanted, mib):
    node = {"nvidia.com/gpu.memory": str(mib)}
    assert fits(PodAsk(where=Where(memory_min=wanted)), node) is (mib * 2**20 >= wanted)
    assert fits(PodAsk(where=Where(memory_max=wanted)), node) is (mib * 2**20 <= wanted)


@given(
    st.integers(0, 100),
    versions,
    st.integers(0, 100),
    st.none() | versions,
    st.integers(0, 100),
    st.booleans(),
    st.none() | st.booleans(),
)
def test_a_request_that_demands_more_is_placed_where_the_planner_saw_it_met(
    least, compute, memory, own, wanted, ecc, corrects
):
    """The node's terms, the claim's and the planner's reading of what is there agree."""
    ask = PodAsk(where=Where(memory_min=least * 2**30, compute_min="7.5"))
    needs = str(Needs(memory=wanted * 2**30, compute=compute, ecc=ecc))
    labels = {"nvidia.com/gpu.memory": str(memory * 1024)}
    if corrects is not None:
        labels["gpulease/ecc"] = str(corrects).lower()
    device = {"capacity": {"memory": {"value": f"{memory}Gi"}}}
    if own is not None:
        labels["nvidia.com/gpu.compute.major"] = str(own[0])
        labels["nvidia.com/gpu.compute.minor"] = str(own[1])
        device["attributes"] = {"cudaComputeCapability": {"version": "{}.{}.0".format(*own)}}
    seen = Device(
        "d", "cards", memory=memory * 2**30, compute=compute_of(labels), ecc=ecc_of(labels)
    )
    assert seen.ecc is corrects
    assert seen.compute == device_compute(device) == own
    met = fits(ask, labels) and suits("t4", seen, needs)
    assert fits(narrowed(ask, needs), labels) is met
    claim = replace(narrowed(ask, needs), kind=AskKind.DRA)
    assert (fits(claim, labels) and device_fits(claim, "gpu.nvidia.com", device)) is met


def test_whole_cards_and_shares_keep_apart():
    sliced = {"nvidia.com/gpu.sharing-strategy": "time-slicing"}
    none = {"nvidia.com/gpu.sharing-strategy": "none"}
    share = PodAsk(AskKind.SHARED, sharing=Sharing.TIME_SLICING)
    assert [fits(PodAsk(), node) for node in (sliced, none, {})] == [False, True, True]
    assert [fits(share, node) for node in (sliced, none, {})] == [True, False, False]


def test_a_node_of_another_installation_is_left_alone():
    ours = fitting(PodAsk(), "a")
    assert ours({"gpulease/instance": "a"})
    assert ours({})
    assert not ours({"gpulease/instance": "b"})


def test_a_node_selector_is_obeyed():
    ask = PodAsk(node_selector=(("room", "north"),))
    assert fits(ask, {"room": "north"})
    assert not fits(ask, {"room": "south"})


@pytest.mark.parametrize(
    ("pod", "part"),
    [
        ({"kind": "shared"}, "one share of a card"),
        ({"kind": "extra", "extra_resources": {"a.b/c": 1}}, "not counted"),
        ({"gpushare": {"memory": "8GiB"}}, "part of one card"),
    ],
)
def test_several_of_what_cannot_be_had_together_are_refused(pod, part):
    assert pod_fields(class_of(pod), 1)
    with pytest.raises(GPULeaseError, match=part) as refused:
        pod_fields(class_of(pod), 2)
    assert refused.value.reason == "bad_count"
    with pytest.raises(GPULeaseError, match="0 GPUs"):
        pod_fields(class_of(pod), 0)


DEVICE = {
    "name": "gpu-0",
    "attributes": {
        "type": {"string": "gpu"},
        "gpu.nvidia.com/productName": {"string": "NVIDIA A100-SXM4-80GB"},
        "cudaComputeCapability": {"version": "8.0.0"},
        "uuid": {"string": "GPU-1"},
        "other.test/productName": {"string": "no"},
    },
    "capacity": {"memory": {"value": "80Gi"}},
}


def test_a_device_of_a_slice_is_judged_as_the_claim_would():
    good = Where(2**30, 80 * 2**30, "8.0", "8.0", ("NVIDIA-A100-SXM4-80GB",))
    assert device_fits(PodAsk(AskKind.DRA, where=good), "gpu.nvidia.com", DEVICE)
    assert not device_fits(PodAsk(AskKind.DRA, where=good), "gpu.amd.com", DEVICE)
    for bad in (
        Where(memory_min=81 * 2**30),
        Where(memory_max=79 * 2**30),
        Where(compute_min="8.6"),
        Where(products=("Tesla T4",)),
    ):
        assert not device_fits(PodAsk(AskKind.DRA, where=bad), "gpu.nvidia.com", DEVICE)
    assert not device_fits(PodAsk(AskKind.DRA, profile="1g.10gb"), "gpu.nvidia.com", DEVICE)
    slice_ = {"attributes": {"type": {"string": "mig"}, "profile": {"string": "1g.10gb"}}}
    assert device_fits(PodAsk(AskKind.DRA, profile="1g.10gb"), "gpu.nvidia.com", slice_)
    assert not device_fits(PodAsk(AskKind.DRA), "gpu.nvidia.com", slice_)
    assert device_memory(DEVICE) == 80 * 2**30
    assert device_text(DEVICE, "uuid") == "GPU-1"
    assert device_text(DEVICE, "architecture") == ""


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("80Gi", 80 * 2**30),
        ("1500m", 1),
        ("1.5k", 1500),
        ("2M", 2 * 10**6),
        ("100u", 0),
        ("2000000000n", 2),
        ("12e6", 12 * 10**6),
        ("5e-1", 0),
        (".5k", 500),
        ("-1", -1),
        ("1E", 10**18),
        ("1E3", 1000),
    ],
)
def test_quantities(text, number):
    assert quantity(text) == number


@pytest.mark.parametrize("text", ["", "x", "1Q", "Gi", "1 Gi"])
def test_what_is_no_quantity_is_refused(text):
    with pytest.raises(ValueError, match="no quantity"):
        quantity(text)


def test_a_template_stands_beside_the_servers_and_another_ask_has_another():
    ask = PodAsk(AskKind.DRA)
    template = claim_template("Big Card", ask, 1, namespace="hub", instance="x y")
    assert template["metadata"]["namespace"] == "hub"
    assert template["metadata"]["labels"]["gpulease/instance"].startswith("x-y--")
    assert template["spec"]["spec"] == claim_spec(ask, 1)
    other = PodAsk(AskKind.DRA, where=Where(memory_min=1))
    assert len({template_name("a", each, n) for each in (ask, other) for n in (1, 2)}) == 4


@pytest.mark.parametrize(("parts", "percent"), [(7, "70"), (4, "40"), (10, "100")])
def test_a_part_of_a_card_is_asked_of_hami(parts, percent):
    gpu_class = GPUClass("large", "cards", pod=hami(100, 0), parts=7, card_parts=10)
    said = pod_fields(gpu_class, parts)
    assert said.limits == {
        "nvidia.com/gpu": "1",
        "nvidia.com/gpumem-percentage": percent,
        "nvidia.com/gpucores": percent,
    }
    assert said.annotations == {"hami.io/gpu-scheduler-policy": "binpack"}


def test_a_part_that_nothing_keeps_to_is_refused():
    with pytest.raises(GPULeaseError, match="Nothing on this cluster keeps to a part"):
        pod_fields(GPUClass("large", "cards", parts=7, card_parts=10), 7)
