"""Leases as pods of a real cluster, and what the cluster may do to them meanwhile."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from gpulease.errors import GPULeaseError
from gpulease.policy.model import LeaseState
from gpulease.policy.pods import PodAsk
from gpulease.protocol import labels
from gpulease.protocol.names import ENV_LEASE
from gpulease.providers.kubernetes.api.client import ConflictError, UnavailableError
from testcluster.api import Object
from testcluster.cluster import Cluster
from testcluster.lease_looks import (
    GPU,
    begin,
    cards,
    fake_node,
    free,
    shown,
    some_free,
    until,
)
from testcluster.lease_world import CARD, LeaseWorld
from testcluster.pods import gpu_pod, pod, wait_for_phase
from tests.contract.provider import active, ended, lease_on
from tests.helpers import wait_for_async

pytestmark = pytest.mark.cluster


# --- the way of a lease


async def test_a_lease_becomes_a_pod_beside_its_server(
    world: LeaseWorld, lease_id: Callable[[str], str]
) -> None:
    server = world.server("stu", "lab")
    lease = await begin(world, lease_id("way"), server="lab")
    made = await world.running(lease)
    meta, spec = made["metadata"], made["spec"]
    assert meta["ownerReferences"][0]["uid"] == server["metadata"]["uid"]
    assert meta["ownerReferences"][0]["blockOwnerDeletion"] is False
    assert spec["automountServiceAccountToken"] is False
    assert spec["serviceAccountName"] == "gpulease-lease"
    assert spec["containers"][0]["resources"]["limits"][GPU] == "1"
    environment = {each["name"]: each.get("value") for each in spec["containers"][0]["env"]}
    assert environment[ENV_LEASE] == lease.id
    seen = await until(world, lease, stage="connecting")
    assert seen.devices[0].startswith(f"node1/{GPU}/")
    assert (seen.failed, seen.gone, seen.parentless, seen.record) == ("", False, False, None)


async def test_several_devices_are_one_pods(
    world: LeaseWorld, lease_id: Callable[[str], str]
) -> None:
    world.server("stu")
    lease = await begin(world, lease_id("several"), count=2)
    made = await world.running(lease)
    assert made["spec"]["containers"][0]["resources"]["limits"][GPU] == "2"
    seen = await until(world, lease, stage="connecting")
    assert len(seen.devices) == 2
    held = [d.uuid for d in await cards(world) if d.occupied_by == lease.id]
    assert sorted(seen.devices) == sorted(held)


async def test_the_pod_ends_with_time_to_end_and_its_device_is_free_when_the_object_is_gone(
    world: LeaseWorld, lease_id: Callable[[str], str]
) -> None:
    world.server("stu")
    lease = await begin(world, lease_id("end"))
    made = await world.running(lease)
    await world.provider.stop(ended(lease))

    async def going() -> bool:
        found = world.lease_pod(lease)
        await world.provider.observe()
        held = [d for d in await cards(world) if d.occupied_by == lease.id]
        if found is not None:
            assert found["metadata"]["uid"] == made["metadata"]["uid"]
            grace = found["metadata"].get("deletionGracePeriodSeconds")
            assert grace is None or grace > 0, "never without grace"
            return False
        return not held

    await wait_for_async(going, 120, "the pod to be gone and its device free")
    assert all(seen.lease_id != lease.id for seen in await world.provider.observe())


# --- one writer


async def test_two_writers_create_one_pod(
    world: LeaseWorld, lease_id: Callable[[str], str]
) -> None:
    """A service that was taken for dead and its successor start the same attempt."""
    world.server("stu")
    lease = await begin(world, lease_id("twice"))
    other = world.fresh()
    await other.open()
    await other.start(lease)
    made = await world.running(lease)
    tasks = [p._held[lease.id].start for p in (world.provider, other)]
    await wait_for_async(lambda: all(start.created for start in tasks), 120, "both to be content")
    assert [start.failed for start in tasks] == ["", ""]
    found = world.api.items(world.pods_path, labelSelector=f"{labels.LEASE}={lease.id}")
    assert [each["metadata"]["uid"] for each in found] == [made["metadata"]["uid"]]
    await other.close()


async def test_a_lost_answer_to_a_create_is_no_second_pod(
    world: LeaseWorld, lease_id: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.server("stu")
    real, calls = world.provider._client.create, []

    async def forgetful(resource: Any, body: Any, namespace: str = "", **more: Any) -> Any:
        made = await real(resource, body, namespace, **more)
        calls.append(body["metadata"]["name"])
        if len(calls) == 1:
            raise UnavailableError("the answer was lost")
        return made

    monkeypatch.setattr(world.provider._client, "create", forgetful)
    lease = await begin(world, lease_id("lost"))
    await world.running(lease)
    await wait_for_async(lambda: world.provider._held[lease.id].start.created, 120)
    assert len(calls) == 1, "the second create was refused: it is there already"
    assert (await shown(world, lease)).failed == ""


async def test_a_create_that_lost_a_race_for_the_quota_is_tried_again(
    world: LeaseWorld, lease_id: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server answers 409 then, too, although there is no pod of that name."""
    world.server("stu")
    real, calls = world.provider._client.create, []

    async def raced(resource: Any, body: Any, namespace: str = "", **more: Any) -> Any:
        calls.append(body["metadata"]["name"])
        if len(calls) == 1:
            said = 'Operation cannot be fulfilled on resourcequotas "gpus": it has been modified'
            raise ConflictError(said, status=409, reason="Conflict")
        return await real(resource, body, namespace, **more)

    monkeypatch.setattr(world.provider._client, "create", raced)
    lease = await begin(world, lease_id("raced"))
    await world.running(lease)
    assert (await shown(world, lease)).failed == ""
    assert len(calls) == 2


async def test_a_name_that_somebody_else_has_is_a_failed_start(
    world: LeaseWorld, lease_id: Callable[[str], str]
) -> None:
    world.server("stu")
    name = lease_id("name")
    world.api.create(pod(world.namespace, labels.lease_pod_name(name, 1)))
    lease = await begin(world, name)
    await until(world, lease, failed="admission_refused")


async def test_two_hubs_on_one_cluster_leave_each_other_alone(
    world: LeaseWorld, cluster: Cluster, namespace: str, lease_id: Callable[[str], str]
) -> None:
    other = LeaseWorld(cluster, namespace, instance="another-hub")
    await asyncio.wait_for(other.provider.open(), 120)
    world.server("stu")
    lease = await begin(world, lease_id("hubs"))
    await world.running(lease)
    await until(world, lease, stage="connecting")

    async def foreign() -> bool:
        return any(d.occupied_by == "foreign" for d in await cards(other))

    await wait_for_async(foreign, 120, "the other hub to see a device taken")
    assert await other.provider.observe() == []
    await other.provider.stop(ended(lease))
    assert not other.provider._deletes._tasks
    await other.provider.start(replace(lease, id=lease_id("stranger")))

    async def missing() -> bool:
        return any(seen.failed == "server_pod_missing" for seen in await other.provider.observe())

    await wait_for_async(missing, 120, "the other hub's server to be missed")
    assert (await shown(world, lease)).gone is False
    await other.close()


async def test_a_pod_that_nobody_here_started_tells_its_lease(
    world: LeaseWorld, lease_id: Callable[[str], str]
) -> None:
    world.server("stu", "lab")
    lease = await begin(world, lease_id("stranger"), server="lab", project="cs101")
    await world.running(lease)
    await until(world, lease, stage="connecting")
    await world.restart()
    seen = await shown(world, lease)
    assert seen.record is not None
    assert (seen.record.id, seen.record.user, seen.record.server) == (lease.id, "stu", "lab")
    assert (seen.record.project, seen.record.attempt) == ("cs101", 1)
    assert seen.record.hard_end is not None
    assert seen.record.hard_end > datetime.now(UTC)
    assert seen.devices
    assert (seen.attempt, seen.gone) == (1, False)


async def test_a_pod_elsewhere_that_says_it_is_a_lease_is_nobodys(
    world: LeaseWorld, lease_id: Callable[[str], str]
) -> None:
    """Whoever may make pods and accounts in some namespace takes over no lease by their names."""
    from testcluster.pods import delete_namespace, new_namespace

    world.server("stu")
    lease = await begin(world, lease_id("mine"))
    real = await world.running(lease)
    elsewhere = f"elsewhere-{world.namespace}"
    new_namespace(world.api, elsewhere)
    try:
        account = {"name": "gpulease-lease", "namespace": elsewhere}
        world.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        stranger = lease_id("forged")
        for name, told, attempt in (
            ("same", lease.id, 1),
            ("later", lease.id, 9),
            ("new", stranger, 1),
        ):
            body = gpu_pod(elsewhere, name) if name == "new" else pod(elsewhere, name)
            body["metadata"] |= {
                "labels": {
                    **real["metadata"]["labels"],
                    labels.LEASE: told,
                    labels.ATTEMPT: str(attempt),
                },
                "annotations": {**real["metadata"]["annotations"], labels.LEASE: told},
            }
            body["spec"]["serviceAccountName"] = "gpulease-lease"
            world.api.create(body)
            there = wait_for_phase(world.api, elsewhere, name)
            token = world.api.new_token(elsewhere, "gpulease-lease", "gpulease", there)
            assert (
                await world.provider.rank_of(replace(lease, id=told, attempt=attempt), token)
                is None
            )

        async def taken() -> bool:
            return any(each.occupied_by == "foreign" for each in await cards(world))

        await wait_for_async(taken, 120, "its device to be taken by others")
        seen = await world.provider.observe()
        assert stranger not in {each.lease_id for each in seen}
        (mine,) = (each for each in seen if each.lease_id == lease.id)
        assert (mine.attempt, mine.record, mine.gone) == (1, None, False)
        own = world.api.new_token(world.namespace, "gpulease-lease", "gpulease", real)
        assert await world.provider.rank_of(lease, own) == 0
    finally:
        delete_namespace(world.api, elsewhere)


async def test_a_later_attempt_than_the_store_knows_of_is_neither_ended_nor_doubled(
    world: LeaseWorld, lease_id: Callable[[str], str]
) -> None:
    world.server("stu")
    lease = replace(await begin(world, lease_id("backup"), attempt=2))
    await world.running(lease)
    await until(world, lease, stage="connecting")
    await world.restart()
    await world.provider.start(replace(lease, attempt=1))
    seen = await shown(world, lease)
    assert (seen.attempt, seen.gone) == (2, False)
    assert seen.record is not None
    found = world.api.items(world.pods_path, labelSelector=f"{labels.LEASE}={lease.id}")
    assert len(found) == 1


# --- what the cluster does


async def test_a_device_that_others_took_is_given_up_for_lost(
    world: LeaseWorld, lease_id: Callable[[str], str]
) -> None:
    """Others take every card between the grant and the pod: the start is a lost race."""
    world.bind_timeout = 2.0
    await world.restart()
    world.server("stu")
    every = await cards(world)
    granted = every[0]
    for number in range(len(every)):
        world.api.create(gpu_pod(world.namespace, f"other-{number}"))
        await asyncio.to_thread(wait_for_phase, world.api, world.namespace, f"other-{number}")
    lease = replace(lease_on(granted, name=lease_id("theft")))
    await world.provider.start(lease)
    await until(world, lease, failed="capacity_taken")

    async def why() -> bool:  # the scheduler may say so later than the time-out
        return "Insufficient" in (await shown(world, lease)).detail

    await wait_for_async(why, 120, "the scheduler's word")
    assert await free(world) == []
    await world.provider.stop(lease)

    async def gone() -> bool:
        return world.lease_pod(lease) is None and await world.provider.observe() == []

    await wait_for_async(gone, 120, "the pod that found no place to be gone")


async def test_a_server_that_goes_takes_its_lease_along(
    world: LeaseWorld, lease_id: Callable[[str], str]
) -> None:
    server = world.server("stu")
    lease = await begin(world, lease_id("parent"))
    await world.run(lease)
    await world.provider.start(active(lease))
    world.api.delete(f"{world.pods_path}/{server['metadata']['name']}")
    await until(world, lease, parentless=True)
    await wait_for_async(
        lambda: world.lease_pod(lease) is None, 120, "the lease pod to be collected"
    )
    await until(world, lease, gone=True)


async def test_without_a_servers_pod_there_is_no_lease_pod(
    world: LeaseWorld, lease_id: Callable[[str], str]
) -> None:
    lease = await begin(world, lease_id("alone"), user="nobody")
    seen = await until(world, lease, failed="server_pod_missing")
    assert "nobody" in seen.detail
    assert world.lease_pod(lease) is None


async def test_a_used_up_quota_is_said(world: LeaseWorld, lease_id: Callable[[str], str]) -> None:
    metadata = {"name": "gpus", "namespace": world.namespace}
    spec = {"hard": {f"requests.{GPU}": "0"}}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec}
    path = f"/api/v1/namespaces/{world.namespace}/resourcequotas"
    world.api.request("POST", path, quota)
    await wait_for_async(
        lambda: (world.api.get(f"{path}/gpus").get("status") or {}).get("hard"), 120, "the quota"
    )
    world.server("stu")
    lease = await begin(world, lease_id("quota"))
    seen = await until(world, lease, failed="quota_exceeded")
    assert "gpus" in seen.detail


async def test_an_image_that_is_not_there_is_said(
    world: LeaseWorld, lease_id: Callable[[str], str]
) -> None:
    world.classes = (replace(CARD, pod=PodAsk(image="local.test/nothing:1")),)
    world.server("stu")
    lease = await begin(world, lease_id("image"))
    seen = await until(world, lease, failed="image_error")
    assert "local.test/nothing" in seen.detail


async def test_a_home_that_will_not_attach_is_mirrored_the_next_time(
    world: LeaseWorld, lease_id: Callable[[str], str]
) -> None:
    """The event is posted by the test: one machine has nothing to attach from elsewhere."""
    world.server("stu")
    world.classes = (replace(CARD, pod=PodAsk(node_selector=(("test", world.namespace),))),)
    name = f"attach-{world.namespace}"
    node = fake_node(world, name, tainted=False)
    lease = lease_on(name=lease_id("attach"))
    try:
        granted = await wait_for_async(lambda: cards(world, name), 120, "the node's devices")
        lease = lease_on(granted[0], name=lease.id)
        await world.provider.start(lease)

        def bound() -> Object:
            made = world.lease_pod(lease)
            assert made is not None
            assert made["spec"].get("nodeName") == name, made["status"]
            return made

        made = await wait_for_async(bound, 120, "the pod to be bound to the node")
        world.api.create(_event(made, "FailedAttachVolume", "Multi-Attach error for volume home"))
        seen = await until(world, lease, failed="volume_failed")
        assert "Multi-Attach" in seen.detail
        await world.provider.stop(lease)
        assert "Multi-Attach" in world.provider._starts.mirrored("stu", datetime.now(UTC))
    finally:
        now = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        path = f"{world.pods_path}/{labels.lease_pod_name(lease.id, lease.attempt)}"
        if world.api.find(path) is not None:
            world.api.delete(path, now)
        world.api.delete(node)


def _event(made: Object, reason: str, message: str) -> Object:
    meta = made["metadata"]
    about = {
        "kind": "Pod",
        "name": meta["name"],
        "namespace": meta["namespace"],
        "uid": meta["uid"],
    }
    now = "2026-01-01T00:00:00Z"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta['name']}.x", "namespace": meta["namespace"]},
        "involvedObject": about,
        "reason": reason,
        "message": message,
        "type": "Warning",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 3,
    }


# --- nodes


async def test_a_node_that_joins_is_capacity_and_one_that_is_deleted_is_none(
    world: LeaseWorld,
) -> None:
    name = f"joins-{world.namespace}"
    path = fake_node(world, name)
    try:

        async def joined() -> bool:
            return len(await cards(world, name)) == 2

        await wait_for_async(joined, 120, "the node's devices")
    finally:
        world.api.delete(path)

    async def left() -> bool:
        return await cards(world, name) == []

    await wait_for_async(left, 120, "the node's devices to be gone")


async def test_a_cordoned_node_leaves_and_one_that_is_not_ready_is_lost(
    world: LeaseWorld,
) -> None:
    name = f"cordon-{world.namespace}"
    path = fake_node(world, name)
    try:

        async def flags(wanted: tuple[bool, bool]) -> bool:
            found = {(d.leaving, d.lost) for d in await cards(world, name)}
            assert found == {wanted}, found
            return True

        await wait_for_async(lambda: flags((False, False)), 120)
        world.api.patch(path, {"spec": {"unschedulable": True}})
        await wait_for_async(lambda: flags((True, False)), 120)
        world.api.patch(path, {"spec": {"unschedulable": None}})
        await wait_for_async(lambda: flags((False, False)), 120)
        condition = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        world.api.patch(f"{path}/status", {"status": {"conditions": [condition]}})
        await wait_for_async(lambda: flags((False, True)), 120)
    finally:
        world.api.delete(path)


async def test_a_node_with_a_taint_that_no_class_bears_serves_nobody(world: LeaseWorld) -> None:
    name = f"taint-{world.namespace}"
    path = fake_node(world, name)
    try:
        await wait_for_async(lambda: _served(world, name, ()), 120)
    finally:
        world.api.delete(path)


async def _served(world: LeaseWorld, node: str, wanted: tuple[str, ...]) -> bool:
    found = {device.serves for device in await cards(world, node)}
    assert found == {wanted}, found
    return True


async def test_an_unhealthy_device_is_capacity_no_more(world: LeaseWorld, cluster: Cluster) -> None:
    from testcluster.devices import Devices

    before = Devices.load(cluster.layout.devices)
    sick = "GPU-00000003-0000-4000-8000-000000000000"
    cluster.devices(unhealthy=(sick,))
    try:

        async def noticed() -> bool:
            return [d.healthy for d in await cards(world)].count(False) == 1

        await wait_for_async(noticed, 120, "the unhealthy device")
    finally:
        cluster.devices(unhealthy=before.unhealthy)

    async def mended() -> bool:
        return all(d.healthy for d in await cards(world))

    await wait_for_async(mended, 120, "the device to be mended")


# --- the API server is away


async def test_while_the_api_is_away_nothing_is_known_and_nothing_ends(
    world: LeaseWorld, cluster: Cluster, lease_id: Callable[[str], str]
) -> None:
    world.server("stu")
    lease = await begin(world, lease_id("away"))
    await world.run(lease)
    await world.provider.start(active(lease))
    with cluster.without("kube-apiserver"):

        async def unknown() -> bool:
            try:
                await world.provider.devices()
            except OSError:
                return True
            return False

        await wait_for_async(unknown, 120, "the capacity to be unknown")
        await wait_for_async(lambda: "pods" in world.provider.problem(), 120, "pods to be unknown")
        with pytest.raises(GPULeaseError) as unproved:
            await world.provider.rank_of(lease, "aaa.bbb.ccc")
        assert (unproved.value.reason, unproved.value.status) == ("cannot_prove", 503)
        seen = next(s for s in await world.provider.observe() if s.lease_id == lease.id)
        assert (seen.gone, seen.parentless, seen.connected) == (False, False, True)
    await asyncio.to_thread(cluster.wait_for_api)

    async def known() -> bool:
        try:
            return bool(await world.provider.devices())
        except OSError:
            return False

    await wait_for_async(known, 120, "the capacity to be known again")
    seen = await shown(world, lease)
    assert (seen.gone, seen.connected) == (False, True)
    assert seen.devices


async def test_a_start_asked_for_while_the_api_is_away_happens_when_it_is_back(
    world: LeaseWorld, cluster: Cluster, lease_id: Callable[[str], str]
) -> None:
    world.server("stu")
    (granted,) = await some_free(world)
    cluster_copy = world.provider._cluster
    await wait_for_async(lambda: cluster_copy.server_pod("stu", ""), 120, "the server to be shown")
    lease = lease_on(granted, name=lease_id("later"))
    with cluster.without("kube-apiserver"):
        await world.provider.start(lease)
        start = world.provider._held[lease.id].start
        await wait_for_async(lambda: start.detail, 120, "the server to be missed")
        assert start.failed == ""
    await asyncio.to_thread(cluster.wait_for_api)
    await world.running(lease)
    assert lease.state is LeaseState.STARTING


async def test_the_limiter_spreads_starts(
    world: LeaseWorld, lease_id: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    real = world.provider._starts._limiter.take

    def take() -> float:
        waits.append(real())
        return waits[-1]

    monkeypatch.setattr(world.provider._starts._limiter, "take", take)
    world.server("stu")
    lease = await begin(world, lease_id("rate"))
    await world.running(lease)
    assert waits == [0.0]


async def test_an_agent_is_known_by_its_pods_node(world: LeaseWorld, namespace: str) -> None:
    world.account("agent")
    body = pod(namespace, "agent")
    body["spec"]["serviceAccountName"] = "agent"
    world.api.create(body)
    there = wait_for_phase(world.api, namespace, "agent")
    token = world.api.new_token(namespace, "agent", "gpulease", there)
    assert await world.provider.agent_node(token) == "node1"
    other = world.api.new_token(namespace, "default", "gpulease")
    assert await world.provider.agent_node(other) is None
