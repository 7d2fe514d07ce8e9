"""Where a lease's pod lands beside its server, and a node whose kubelet dies under a lease."""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gpulease.policy.model import Lease, PolicyDocument, Pool, Snapshot, Start
from gpulease.policy.planner import plan
from gpulease.policy.pods import PodAsk, Toleration
from testcluster.api import Object
from testcluster.cluster import Cluster
from testcluster.kwok import LABEL, TAINT, add_nodes, remove_nodes
from testcluster.lease_looks import begin, cards, shown, until
from testcluster.lease_world import CARD, LeaseWorld
from tests.contract.provider import lease_on
from tests.helpers import wait_for_async

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

#: Seconds after which the node counts as not ready: the node controller's 50 and some for a look.
NOT_READY_MAX = 90.0
BACK_MAX = 60.0
ON_KWOK = replace(
    CARD, pod=PodAsk(node_selector=tuple(LABEL.items()), tolerations=(Toleration(TAINT["key"]),))
)


def granted(world: LeaseWorld, lease: Lease, devices: tuple) -> tuple[str, ...]:
    """Return what the planner grants to one request."""
    document = PolicyDocument(1, (Pool("cards"),), (ON_KWOK,), "any")
    near = {lease.id: world.provider.preferred_node(lease)}
    view = Snapshot(datetime.now(UTC), document, devices, (lease,), {}, {}, preferred_nodes=near)
    (action,) = plan(view)
    assert isinstance(action, Start)
    return action.devices


def one_node_home(world: LeaseWorld) -> Object:
    """Return a claim that only one node may mount, bound to a volume."""
    name = f"home-{world.namespace}"
    rest = {"accessModes": ["ReadWriteOnce"], "storageClassName": name}
    volume = rest | {"capacity": {"storage": "1Gi"}, "hostPath": {"path": f"/tmp/{name}"}}
    metadata = {"name": name}
    world.api.create(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": volume}
    )
    claim = rest | {"resources": {"requests": {"storage": "1Gi"}}, "volumeName": name}
    metadata = {"name": "home", "namespace": world.namespace}
    return world.api.create(
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim}
    )


async def test_a_home_that_one_node_may_mount_is_mounted_where_the_server_runs(
    world: LeaseWorld, cluster: Cluster, lease_id: Callable[[str], str]
) -> None:
    """Three machines have room; nothing but the server's place speaks for the third."""
    names = add_nodes(cluster, 3, gpus=2)
    world.classes = (ON_KWOK,)
    claim = one_node_home(world)
    try:
        path = f"/api/v1/namespaces/{world.namespace}/persistentvolumeclaims/home"

        def bound() -> bool:
            return bool(world.api.get(path)["status"].get("phase") == "Bound")

        await wait_for_async(bound, 120, "the claim to be bound")
        tolerant = [{"operator": "Exists"}]
        mount = {"name": "home", "mountPath": "/home/jovyan"}
        notebook = {"name": "notebook", "image": "i", "volumeMounts": [mount]}
        world.server(
            "stu",
            nodeSelector={"kubernetes.io/hostname": names[2]},
            tolerations=tolerant,
            containers=[notebook],
            volumes=[{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}],
        )
        request = lease_on(name=lease_id("near"))
        request = replace(request, count=1, state=type(request.state).QUEUED)

        async def near() -> bool:
            await world.provider.devices()
            return world.provider.preferred_node(request) == names[2]

        await wait_for_async(near, 120, "the server's place")
        assert world.provider.preferred_node(replace(request, user="nobody")) == ""
        world.server("far", nodeSelector={"kubernetes.io/hostname": names[2]}, tolerations=tolerant)
        assert world.provider.preferred_node(replace(request, user="far")) == "", (
            "it has no such home"
        )
        devices = tuple(
            d for d in await world.provider.devices() if d.node in names and not d.occupied_by
        )
        (slot,) = granted(world, request, devices)
        assert slot.startswith(f"{names[2]}/")
        (device,) = [d for d in devices if d.uuid == slot]
        lease = lease_on(device, name=request.id)
        await world.provider.start(lease)
        made = await world.running(lease)
        assert made["spec"]["nodeName"] == names[2]
        mounted = [v for v in made["spec"]["volumes"] if "persistentVolumeClaim" in v]
        assert [v["persistentVolumeClaim"]["claimName"] for v in mounted] == ["home"]

        # When it is gone is kwok's part, which forgets a pod now and then.
        await wait_for_async(lambda: deleting(world, lease), 120, "the pod to be deleted")
    finally:
        remove_nodes(cluster)
        world.api.delete(f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}")


async def deleting(world: LeaseWorld, lease: Lease) -> bool:
    """Ask for its end as each round of the service does (a delete may fail); say if it ends."""
    await world.provider.stop(lease)
    pod = world.lease_pod(lease)
    return pod is None or "deletionTimestamp" in pod["metadata"]


async def is_free(world: LeaseWorld, lease: Lease) -> bool:
    await world.provider.observe()
    return all(device.occupied_by != lease.id for device in await cards(world))


async def test_a_node_whose_kubelet_dies_is_lost_in_time_and_its_leases_go_on_when_it_is_back(
    world: LeaseWorld, cluster: Cluster, lease_id: Callable[[str], str]
) -> None:
    world.server("ann")
    world.server("bob")
    runs = await begin(world, lease_id("runs"), user="ann")
    await world.run(runs)
    before = await world.running(runs)
    starts = await begin(world, lease_id("starts"), user="bob")
    await until(world, starts, stage="connecting")
    killed = time.monotonic()
    with cluster.without("kubelet"):

        async def lost() -> bool:
            return all(device.lost for device in await cards(world))

        await wait_for_async(lost, NOT_READY_MAX, "the node to be lost")
        assert time.monotonic() - killed < NOT_READY_MAX
        seen = await until(world, starts, failed="node_lost")
        assert "node" in seen.detail.lower()
        seen = await shown(world, runs)  # its supervisor still speaks: nothing failed
        assert (seen.connected, seen.failed, seen.gone) == (True, "", False)
        # As it goes back to the queue:
        await wait_for_async(lambda: deleting(world, starts), 120, "the pod to be asked to end")
        occupied = {device.occupied_by for device in await cards(world)}
        assert {runs.id, starts.id} <= occupied, "what is lost is not free"

    async def back() -> bool:
        return not any(device.lost for device in await cards(world))

    await wait_for_async(back, BACK_MAX, "the node to be back")
    await wait_for_async(lambda: world.lease_pod(starts) is None, BACK_MAX, "the pod to be gone")
    await wait_for_async(lambda: is_free(world, starts), BACK_MAX, "its device to be free")
    after = world.lease_pod(runs)
    assert after is not None
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    seen = await shown(world, runs)
    assert (seen.connected, seen.failed, seen.gone) == (True, "", False)
