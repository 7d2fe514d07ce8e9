"""Classes on offer: what is free of each, and what can be added."""

from dataclasses import replace

from gpulease.policy.catalog import Elastic
from gpulease.policy.model import Device, GPUClass, Pool, Snapshot
from gpulease.service.leases.class_views import on_offer
from tests.policy.build import NOW, policy, request, starting


def shown(*leases, devices=(), elastic=None, grows=True, classes=("small", "large")):
    known = policy(
        pools=(Pool("cards", elastic=elastic),),
        classes=tuple(GPUClass(name, "cards", name.title()) for name in classes),
        default_class=classes[0],
    )
    found = on_offer(
        Snapshot(
            now=NOW,
            policy=known,
            devices=devices,
            leases=leases,
            evidence={},
            observed={},
            grows=grows,
        ),
        {},
    )
    return {each["name"]: each for each in found}


def test_a_device_is_free_for_the_classes_that_it_can_serve():
    found = shown(
        devices=(
            Device("GPU-0", "cards", serves=("small",)),
            Device("GPU-1", "cards", serves=None),
            Device("GPU-2", "cards", serves=("small",), occupied_by="foreign"),
        )
    )
    assert (found["small"]["free"], found["small"]["total"]) == (2, 3)
    assert (found["large"]["free"], found["large"]["total"]) == (1, 1)


def test_a_pool_that_grows_says_what_adding_takes_as_long_as_it_can():
    elastic = Elastic(max=2, provision_time=360.0, spot=True)
    assert "provision" not in shown()["small"]
    assert "provision" not in shown(elastic=elastic, grows=False)["small"]
    found = shown(elastic=elastic)["small"]
    assert (found["total"], found["provision"], found["spot"]) == (0, 360.0, True)
    full = tuple(Device(f"GPU-{n}", "cards", occupied_by="foreign") for n in range(2))
    assert shown(elastic=elastic, devices=full)["small"]["provision"] is None


def test_who_waits_is_counted_with_the_class_asked_for():
    lease = replace(request(1), gpu_class="large")
    assert shown(lease)["large"]["queued"] == 1
    assert shown(starting(1))["small"]["queued"] == 0
