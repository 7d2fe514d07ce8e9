"""A lease on several nodes: its pods come, go and are shown as one."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gpulease.policy.model import Lease, Observed
from gpulease.protocol import labels
from gpulease.providers.kubernetes.api.client import UnavailableError
from testcluster.lease_looks import GPU, begin, cards, shown, some_free, until
from testcluster.lease_world import LeaseWorld
from testcluster.pods import gpu_pod, wait_for_phase
from tests.contract.provider import active, ended, lease_on
from tests.helpers import wait_for_async

pytestmark = pytest.mark.cluster


def pods_of(world: LeaseWorld, lease: Lease) -> list[str]:
    found = world.api.items(world.pods_path, labelSelector=f"{labels.LEASE}={lease.id}")
    return sorted(str(each["metadata"]["name"]) for each in found)


async def both_run(world: LeaseWorld, lease: Lease) -> None:
    for rank in range(lease.nodes):
        await world.running(lease, rank)


async def all_gone(world: LeaseWorld, lease: Lease) -> None:
    await world.provider.stop(ended(lease))
    await wait_for_async(lambda: pods_of(world, lease) == [], 120, "all its pods to be gone")

    async def freed() -> bool:
        await world.provider.observe()
        return all(each.occupied_by != lease.id for each in await cards(world))

    await wait_for_async(freed, 120, "its cards to be free")


async def test_each_node_is_a_pod_with_its_part_of_the_devices(
    world: LeaseWorld, lease_id: Callable[[str], str]
) -> None:
    server = world.server("stu")
    lease = await begin(world, lease_id("two"), count=4, nodes=2)
    await both_run(world, lease)
    for rank in range(2):
        made = await world.running(lease, rank)
        assert made["spec"]["containers"][0]["resources"]["limits"][GPU] == "2"
        assert made["metadata"]["ownerReferences"][0]["uid"] == server["metadata"]["uid"]
    seen = await until(world, lease, stage="connecting", gone=False)
    assert seen.devices == lease.devices, "in the order of the ranks"
    assert {d.occupied_by for d in await cards(world)} == {lease.id}
    assert await world.provider.rank_of(lease, await world.token(lease)) == 0
    assert await world.provider.rank_of(lease, await world.token(lease, 1)) == 1
    await all_gone(world, lease)


@pytest.mark.parametrize("rank", [0, 1])
async def test_a_pod_that_goes_takes_the_lease_with_it(
    world: LeaseWorld, lease_id: Callable[[str], str], rank: int
) -> None:
    world.server("stu")
    lease = await begin(world, lease_id(f"lost{rank}"), count=2, nodes=2)
    await both_run(world, lease)
    await until(world, lease, gone=False, devices=lease.devices)
    name = labels.lease_pod_name(lease.id, lease.attempt, rank)
    world.api.delete(f"{world.pods_path}/{name}")
    await until(world, lease, gone=True)
    assert len(pods_of(world, lease)) >= 1, "the other one is the planner's to end"
    await all_gone(world, lease)


async def test_one_that_finds_no_place_fails_the_start_of_all(
    world: LeaseWorld, lease_id: Callable[[str], str]
) -> None:
    world.server("stu")
    free = await some_free(world, 4)
    for number in range(3):
        world.api.create(gpu_pod(world.namespace, f"other{number}"))
        wait_for_phase(world.api, world.namespace, f"other{number}")
    lease = replace(lease_on(*free[:2], name=lease_id("short")), nodes=2)
    await world.provider.start(lease)
    await until(world, lease, failed="capacity_taken")
    await all_gone(world, lease)


async def test_who_follows_a_service_that_died_makes_what_is_missing(
    world: LeaseWorld, lease_id: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.server("stu")
    real = world.provider._client.create

    async def first_alone(resource: Any, body: Any, namespace: str = "", **more: Any) -> Any:
        if body["metadata"]["labels"].get(labels.RANK) == "1":
            raise UnavailableError("nobody answers")
        return await real(resource, body, namespace, **more)

    monkeypatch.setattr(world.provider._client, "create", first_alone)
    lease = await begin(world, lease_id("half"), count=2, nodes=2)
    await world.running(lease)
    assert len(pods_of(world, lease)) == 1
    await world.restart()
    await world.provider.start(lease)
    await both_run(world, lease)
    await until(world, lease, stage="connecting", gone=False, devices=lease.devices)

    # Once it has begun nobody makes a pod of it anew.
    name = labels.lease_pod_name(lease.id, lease.attempt, 1)
    await world.provider.close()
    world.api.delete(f"{world.pods_path}/{name}")
    await wait_for_async(lambda: len(pods_of(world, lease)) == 1, 120, "the second to be gone")
    world.provider = world.fresh()
    await world.provider.open()
    await world.provider.start(active(lease))
    await until(world, lease, gone=True)
    await all_gone(world, lease)


async def test_pods_that_nobody_here_started_tell_the_whole_lease(
    world: LeaseWorld, lease_id: Callable[[str], str]
) -> None:
    world.server("stu")
    lease = await begin(world, lease_id("stranger"), count=2, nodes=2)
    await both_run(world, lease)
    await world.restart()

    async def told() -> Observed | None:
        seen = await shown(world, lease)
        # Which of a node's cards is whose nobody knows until somebody tells of the lease.
        return seen if sorted(seen.devices) == sorted(lease.devices) else None

    seen = await wait_for_async(told, 60, "both pods to be shown")
    assert seen.record is not None
    assert (seen.record.count, seen.record.nodes) == (2, 2)
    assert seen.record.devices == lease.devices
    await all_gone(world, lease)
