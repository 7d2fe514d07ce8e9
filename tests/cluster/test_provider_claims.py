"""Leases whose GPU comes by a resource claim: real slices, scheduler and kubelet."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from gpulease.policy.model import Device, GPUClass
from gpulease.policy.pods import AskKind, PodAsk, Where
from gpulease.providers.kubernetes.api.client import UnavailableError
from testcluster.api import Object
from testcluster.cluster import Cluster
from testcluster.dra_driver import DRIVER, GROUP, Driver, driver
from testcluster.lease_looks import until
from testcluster.lease_world import LeaseWorld
from tests.contract.provider import lease_on
from tests.helpers import wait_for_async

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

LARGE = GPUClass(
    "any", "large", max_count=2, pod=PodAsk(AskKind.DRA, where=Where(memory_min=40 * 2**30))
)


@pytest.fixture(scope="module")
def dra(cluster: Cluster) -> Iterator[Driver]:
    with driver(cluster) as running:
        yield running


@pytest.fixture
async def claims(world: LeaseWorld, dra: Driver) -> LeaseWorld:
    """A world whose classes ask by claims; slices and claims are known."""
    world.classes = (LARGE,)
    await wait_for_async(lambda: _known(world), 120, "slices and claims listed")
    return world


async def _known(world: LeaseWorld) -> bool:
    try:
        return bool(await world.provider.devices())
    except UnavailableError:
        return False


async def large(world: LeaseWorld) -> list[Device]:
    return [d for d in await world.provider.devices() if d.pool == "large"]


async def all_free(world: LeaseWorld) -> list[Device]:
    found = await large(world)
    await world.provider.observe()  # as each round of a service does: what is over is let go
    return found if len(found) == 2 and not any(d.occupied_by for d in found) else []


async def test_slices_are_capacity_by_model_and_memory(claims: LeaseWorld) -> None:
    found = await wait_for_async(lambda: all_free(claims), 120, "the devices of the slices")
    assert {d.uuid for d in found} == {f"node1/{DRIVER}/gpu-0", f"node1/{DRIVER}/gpu-1"}
    assert {(d.name, d.memory, d.node, d.serves) for d in found} == {
        ("NVIDIA A100-SXM4-80GB", 80 * 2**30, "node1", ("any",))
    }
    others = [d for d in await claims.provider.devices() if f"/{DRIVER}/" in d.uuid]
    assert {d.uuid.rpartition("/")[2]: d.serves for d in others if d not in found} == {
        "gpu-2": (),
        "mig-3-0": (),
    }


async def test_a_lease_has_the_device_that_its_claim_was_given(
    claims: LeaseWorld, dra: Driver, lease_id: Callable[[str], str]
) -> None:
    world = claims
    world.server("stu")
    first, second = await wait_for_async(lambda: all_free(world), 120, "two free devices")
    plain, needy = lease_on(first, name=lease_id("one")), lease_on(second, name=lease_id("two"))
    leases = [plain, replace(needy, needs="memory>=50GiB")]
    landed = set()
    for lease in leases:
        await world.provider.start(lease)
        await world.running(lease)
        seen = await until(world, lease, stage="connecting", failed="")
        (device,) = seen.devices
        landed.add(device)
        (status,) = (world.lease_pod(lease) or {})["status"]["resourceClaimStatuses"]
        path = f"{GROUP}/namespaces/{world.namespace}/resourceclaims/"
        claim: Object = world.api.get(path + status["resourceClaimName"])
        assert dra.prepared[claim["metadata"]["uid"]] == [device.rpartition("/")[2]]
    assert landed == {first.uuid, second.uuid}
    assert {d.occupied_by for d in await large(world)} == {lease.id for lease in leases}
    for lease in leases:
        await world.provider.stop(lease)
    await wait_for_async(lambda: all_free(world), 90, "both devices free again")
    templates = f"{GROUP}/namespaces/{world.namespace}/resourceclaimtemplates"
    shared, own = sorted(
        world.api.items(templates), key=lambda each: "ownerReferences" in each["metadata"]
    )
    assert own["metadata"]["ownerReferences"][0]["name"] == "jupyter-stu"
    world.api.delete(f"{world.pods_path}/jupyter-stu")
    await wait_for_async(
        lambda: (
            [each["metadata"]["name"] for each in world.api.items(templates)]
            == [shared["metadata"]["name"]]
        ),
        90,
        "what one request needed to go with its server",
    )


async def test_several_devices_come_by_one_claim(
    claims: LeaseWorld, lease_id: Callable[[str], str]
) -> None:
    world = claims
    world.server("stu")
    both = await wait_for_async(lambda: all_free(world), 120, "two free devices")
    lease = lease_on(*both, name=lease_id("both"))
    await world.provider.start(lease)
    await world.running(lease)
    seen = await until(world, lease, stage="connecting")
    assert set(seen.devices) == {d.uuid for d in both}
    await world.provider.stop(lease)
    await wait_for_async(lambda: all_free(world), 90, "both devices free again")


async def test_a_device_that_others_claimed_is_theirs(claims: LeaseWorld) -> None:
    world = claims
    await wait_for_async(lambda: all_free(world), 120, "two free devices")
    asked = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "theirs", "namespace": world.namespace},
        "spec": {"devices": {"requests": [asked]}},
    }
    world.api.create(claim)
    world.server(
        "other",
        resourceClaims=[{"name": "gpu", "resourceClaimName": "theirs"}],
        containers=[
            {
                "name": "main",
                "image": "local.test/gpulease:1",
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait"],
                "resources": {"claims": [{"name": "gpu"}]},
            }
        ],
    )

    async def foreign() -> bool:
        shown = [d for d in await world.provider.devices() if f"/{DRIVER}/" in d.uuid]
        return [d.occupied_by for d in shown if d.occupied_by] == ["foreign"]

    await wait_for_async(foreign, 120, "the device to be somebody else's")
    world.api.delete(f"{world.pods_path}/jupyter-other")
    await wait_for_async(lambda: all_free(world), 90, "the device free again")
