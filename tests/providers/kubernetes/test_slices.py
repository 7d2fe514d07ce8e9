"""What ResourceSlices publish and who holds it, as devices."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpulease.policy.model import GPUClass
from gpulease.policy.pods import AskKind, PodAsk, Toleration, Where
from gpulease.protocol import labels
from gpulease.providers.kubernetes.capacity.capacity import published
from gpulease.providers.kubernetes.observed.pods import Part, use_of
from tests.providers.kubernetes.objects import INSTANCE, lease_pod, node, pod

DRIVER = "gpu.nvidia.com"
BIG = GPUClass("big", "large", pod=PodAsk(AskKind.DRA, where=Where(memory_min=40 * 2**30)))
ANY = GPUClass("any", "cards", pod=PodAsk(AskKind.DRA))


def card(name, memory="80Gi", product="NVIDIA A100", *, kind="gpu", taint="", **attributes):
    told = {"type": {"string": kind}, "productName": {"string": product}}
    found = {
        "name": name,
        "attributes": told | {key: {"string": value} for key, value in attributes.items()},
        "capacity": {"memory": {"value": memory}},
    }
    return found | ({"taints": [{"key": "gpu", "effect": taint}]} if taint else {})


def slice_of(*devices, where="n1", generation=1, number=0, pool=None, driver=DRIVER):
    return {
        "metadata": {"name": f"{where}-{driver}-{pool}-{generation}-{number}"},
        "spec": {
            "driver": driver,
            "nodeName": where,
            "pool": {"name": pool or where, "generation": generation},
            "devices": list(devices),
        },
    }


def claim(*devices, holder="", pool="n1", admin=False):
    results = [
        {"driver": DRIVER, "pool": pool, "device": each, **({"adminAccess": True} if admin else {})}
        for each in devices
    ]
    return {
        "metadata": {"name": "-".join(devices)},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "uid": holder}] if holder else [],
        },
    }


def shown(slices, claims=(), pods=(), *, classes=(ANY,), nodes=None, granted=None):
    return published(
        slices,
        claims,
        [node()] if nodes is None else nodes,
        uses=[use_of(each, INSTANCE) for each in pods],
        classes=classes,
        granted=granted or {},
        instance=INSTANCE,
    )


def occupied(placement):
    return {d.uuid.rpartition("/")[2]: d.occupied_by for d in placement.devices if d.occupied_by}


def test_each_device_of_a_slice_is_one_device_with_its_model_and_memory():
    (device,) = shown([slice_of(card("gpu-0"))]).devices
    assert device.uuid == f"n1/{DRIVER}/gpu-0"
    assert (device.name, device.memory, device.node) == ("NVIDIA A100", 80 * 2**30, "n1")
    assert (device.pool, device.serves, device.healthy) == ("cards", ("any",), True)


def test_the_node_says_whether_its_memory_corrects_errors():
    nodes = [node(marks={labels.ECC: "true"})]
    found = shown([slice_of(card("gpu-0"))], nodes=nodes).devices
    assert [each.ecc for each in found] == [True]
    assert [each.ecc for each in shown([slice_of(card("gpu-0"))]).devices] == [None]


def test_without_a_class_that_claims_slices_show_nothing():
    """The same cards may be offered by a device plugin."""
    assert shown([slice_of(card("gpu-0"))], classes=(GPUClass("card", "cards"),)).devices == ()


def test_a_device_belongs_to_the_pool_of_the_first_class_that_it_meets():
    slices = [slice_of(card("gpu-0"), card("gpu-1", "16Gi"), card("mig-0", kind="mig"))]
    found = {d.uuid.rpartition("/")[2]: d for d in shown(slices, classes=(BIG, ANY)).devices}
    assert (found["gpu-0"].pool, found["gpu-0"].serves) == ("large", ("big",))
    assert (found["gpu-1"].pool, found["gpu-1"].serves) == ("cards", ("any",))
    assert (found["mig-0"].pool, found["mig-0"].serves) == ("gpu-nvidia-com", ())


def test_only_the_newest_generation_of_a_drivers_pool_counts():
    old = slice_of(card("gpu-0"), card("gone"), generation=1)
    new = [slice_of(card("gpu-0"), generation=2), slice_of(card("b"), generation=2, number=1)]
    other = slice_of(card("x"), pool="second", generation=1)
    names = {d.uuid for d in shown([old, *new, other]).devices}
    assert names == {f"n1/{DRIVER}/gpu-0", f"n1/{DRIVER}/b", f"n1/{DRIVER}/second:x"}


def test_a_claim_tells_which_device_a_lease_has_whatever_it_was_granted():
    ours = lease_pod("l1", node="n1", gpus=0)
    found = shown(
        [slice_of(card("gpu-0"), card("gpu-1"))],
        [claim("gpu-1", holder=ours["metadata"]["uid"])],
        [ours],
    )
    assert found.held == {Part("l1", 1): (f"n1/{DRIVER}/gpu-1",)}
    assert occupied(found) == {"gpu-1": "l1"}


def test_several_devices_of_one_claim_are_all_the_leases():
    ours = lease_pod("l1", node="n1", gpus=0, count=2)
    found = shown(
        [slice_of(card("gpu-0"), card("gpu-1"), card("gpu-2"))],
        [claim("gpu-0", "gpu-2", holder=ours["metadata"]["uid"])],
        [ours],
    )
    assert found.held == {Part("l1", 1): (f"n1/{DRIVER}/gpu-0", f"n1/{DRIVER}/gpu-2")}


def test_what_others_claimed_is_foreign_also_where_their_pod_is_not_known():
    slices = [slice_of(card("gpu-0"), card("gpu-1"), card("gpu-2"))]
    other = pod("other", node="n1", gpus=0)
    claims = [
        claim("gpu-0", holder=other["metadata"]["uid"]),
        claim("gpu-1", holder="never seen"),
        claim("gpu-2"),
    ]
    found = shown(slices, claims, [other])
    assert occupied(found) == dict.fromkeys(("gpu-0", "gpu-1", "gpu-2"), "foreign")
    assert found.held == {}


def test_a_lease_of_another_installation_is_foreign():
    theirs = lease_pod("l1", node="n1", gpus=0, instance="hub-b")
    claims = [claim("gpu-0", holder=theirs["metadata"]["uid"])]
    assert occupied(shown([slice_of(card("gpu-0"))], claims, [theirs])) == {"gpu-0": "foreign"}


def test_an_admins_look_at_a_device_takes_it_from_nobody():
    claims = [claim("gpu-0", holder="monitoring", admin=True)]
    assert occupied(shown([slice_of(card("gpu-0"))], claims)) == {}


def test_what_was_granted_and_is_not_claimed_yet_is_held_for_its_lease():
    slot = f"n1/{DRIVER}/gpu-0"
    assert occupied(shown([slice_of(card("gpu-0"))], granted={Part("l1", 1): (slot,)})) == {
        "gpu-0": "l1"
    }


def test_a_taint_on_a_device_keeps_new_leases_off_and_one_that_evicts_is_a_fault():
    slices = [slice_of(card("a", taint="NoSchedule"), card("b", taint="NoExecute"), card("c"))]
    found = {d.uuid[-1]: (d.serves, d.healthy) for d in shown(slices).devices}
    assert found == {"a": ((), True), "b": ((), False), "c": (("any",), True)}


def test_devices_follow_their_node():
    slices = [slice_of(card("gpu-0"))]
    away = shown(slices, nodes=[node(state="Unknown")]).devices
    cordoned = shown(slices, nodes=[node(cordoned=True)]).devices
    assert [(d.lost, d.leaving) for d in (*away, *cordoned)] == [(True, False), (False, True)]
    assert shown(slices, nodes=[]).devices == ()
    marks = {labels.INSTANCE: "hub-b"}
    assert shown(slices, nodes=[node(marks=marks)]).devices == ()


def test_a_nodes_taint_is_borne_by_some_classes_only():
    tainted = node(taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])
    assert ANY.pod is not None
    bears = replace(ANY, name="bears", pod=replace(ANY.pod, tolerations=(Toleration("gpu"),)))
    (device,) = shown([slice_of(card("gpu-0"))], classes=(ANY, bears), nodes=[tainted]).devices
    assert device.serves == ("bears",)


@given(
    st.permutations([f"gpu-{n}" for n in range(5)]),
    st.lists(st.sampled_from(["ours", "other", ""]), min_size=5, max_size=5),
)
def test_no_device_has_two_holders_and_order_does_not_matter(order, holders):
    ours = lease_pod("l1", node="n1", gpus=0, uid="ours")
    slices = [slice_of(*[card(name) for name in order])]
    pairs = zip(sorted(order), holders, strict=True)
    claims = [claim(name, holder=who) for name, who in pairs if who]
    found = shown(slices, claims, [ours])
    assert found == shown([slice_of(*[card(name) for name in sorted(order)])], claims[::-1], [ours])
    assert sorted(found.held.get(Part("l1", 1), ())) == [
        d.uuid for d in found.devices if d.occupied_by == "l1"
    ]
    taken = [d for d in found.devices if d.occupied_by]
    assert len(taken) == len(claims)
