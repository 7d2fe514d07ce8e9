"""What tests of a provider on the cluster look for, and wait for."""

from dataclasses import replace
from typing import Any

from gpulease.policy.model import Device, Lease, Observed
from gpulease.protocol import labels
from testcluster.lease_world import LeaseWorld
from tests.contract.provider import lease_on
from tests.helpers import wait_for_async

GPU = "nvidia.com/gpu"


async def cards(world: LeaseWorld, node: str = "node1") -> list[Device]:
    shown = await world.provider.devices()
    return [device for device in shown if device.node == node and f"/{GPU}/" in device.uuid]


async def free(world: LeaseWorld) -> list[Device]:
    return [device for device in await cards(world) if device.occupied_by is None]


async def some_free(world: LeaseWorld, count: int = 1) -> list[Device]:
    """Return free cards; those of the test before may only just be coming free."""

    async def found() -> list[Device]:
        there = await free(world)
        return there[:count] if len(there) >= count else []

    return await wait_for_async(found, 90, f"{count} free cards")


async def shown(world: LeaseWorld, lease: Lease) -> Observed:
    await world.provider.devices()
    for seen in await world.provider.observe():
        if seen.lease_id == lease.id:
            return seen
    raise AssertionError(f"{lease.id} is not shown")


async def until(world: LeaseWorld, lease: Lease, seconds: float = 60, **wanted: Any) -> Observed:
    """Wait until the provider shows these of a lease."""

    async def found() -> Observed | None:
        seen = await shown(world, lease)
        have = {name: getattr(seen, name) for name in wanted}
        assert have == wanted, seen
        return seen

    return await wait_for_async(found, seconds, f"{lease.id} with {wanted}")


async def begin(world: LeaseWorld, name: str, *, user: str = "stu", **changed: Any) -> Lease:
    """Start a lease of a user on the first free devices."""
    count = changed.pop("count", 1)
    lease = replace(lease_on(*await some_free(world, count), name=name), user=user, **changed)
    await world.provider.start(lease)
    return lease


def fake_node(
    world: LeaseWorld, name: str, *, ready: str = "True", gpus: int = 2, tainted: bool = True
) -> str:
    """Register a machine that nobody runs, with GPUs, for one test."""
    path = f"/api/v1/nodes/{name}"
    marks = {labels.INSTANCE: labels.label_value(world.instance), "test": world.namespace}
    metadata = {"name": name, "labels": marks}
    taint = {"key": "test", "value": "nobody", "effect": "NoSchedule"}
    spec = {"taints": [taint]} if tainted else {}
    world.api.create({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec})
    amount = {GPU: str(gpus), "cpu": "8", "memory": "64Gi", "pods": "10"}
    condition = {"type": "Ready", "status": ready, "reason": "Test", "message": "said by a test"}
    status = {"capacity": amount, "allocatable": amount, "conditions": [condition]}
    world.api.patch(f"{path}/status", {"status": status})
    return path
