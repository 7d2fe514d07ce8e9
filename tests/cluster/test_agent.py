"""The node agent on a real node: the kubelet's socket, real processes, its token, a verdict."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tornado.httpclient import AsyncHTTPClient
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application

from gpulease.gpus.agent.cgroups import Places
from gpulease.gpus.agent.pod_resources import PodResources
from gpulease.gpus.agent.wire import ContainerDevice
from gpulease.gpus.base import GPUInfo
from gpulease.gpus.reading import Seen
from gpulease.policy.document import default_document
from gpulease.policy.model import (
    Device,
    Evidence,
    EvidenceLevel,
    GPUClass,
    Lease,
    LeaseState,
    TimeOuts,
    Verdict,
)
from gpulease.protocol import labels
from gpulease.providers.kubernetes.api.official import OfficialClient
from gpulease.providers.kubernetes.manifests.manifest import PodSettings, Settings
from gpulease.providers.kubernetes.provider import KubernetesProvider
from gpulease.service.agents import Agents
from gpulease.service.control_loop.evidence import EvidenceCollector
from gpulease.service.metrics import Metrics
from gpulease.service.rest.site import AgentBatches
from testcluster import agents
from testcluster.api import Object
from testcluster.cluster import Cluster
from testcluster.devices import card
from testcluster.layout import NODE
from testcluster.pods import gpu_pod, pod, visible_device, wait_for_address, wait_for_phase
from tests.gpus.stand_in import Driver
from tests.helpers import wait_for, wait_for_async

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

GPU, SHARED, MIG = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-3g.20gb"
INSTANCE = "hub-of-the-agent"
ADDRESS = "198.18.0.1"


@pytest.fixture
def kubelet(cluster: Cluster) -> Iterator[PodResources]:
    """The agent's own client on the real kubelet's socket."""
    found = PodResources(cluster.layout.pod_resources_socket)
    yield found
    found.close()


def seen() -> dict[str, Seen]:
    uuids = [*(card(number) for number in range(5)), *agents.MIG]
    return {uuid: Seen(GPUInfo(uuid, 0, "NVIDIA", 2**30, simulated=False), None) for uuid in uuids}


def holders(kubelet: PodResources, namespace: str) -> list[ContainerDevice]:
    """Ask the kubelet now."""
    now = time.monotonic()
    kubelet.refresh(now, soon=True)
    found = kubelet.holders(now, seen())
    assert found is not None, kubelet.problem
    return [each for each in found if each.namespace == namespace]


def test_the_kubelet_says_which_pod_holds_which_card_replica_and_mig_device(
    cluster: Cluster, namespace: str, kubelet: PodResources
) -> None:
    wanted = {"whole": GPU, "share-a": SHARED, "share-b": SHARED, "slice": MIG}
    for name, resource in wanted.items():
        cluster.api.create(gpu_pod(namespace, name, resource))
    cluster.api.create(pod(namespace, "without"))
    for name in [*wanted, "without"]:
        wait_for_phase(cluster.api, namespace, name)
    found = {each.pod: each for each in holders(kubelet, namespace)}
    assert set(found) == set(wanted)
    for name, resource in wanted.items():
        assert (found[name].container, found[name].resource) == ("main", resource)
        printed = visible_device(cluster.api, namespace, name)
        assert printed.partition("::")[0] == found[name].device.partition("::")[0]
    assert found["whole"].device in {card(number) for number in range(4)}
    replicas = {found["share-a"].device, found["share-b"].device}
    assert len(replicas) == 2
    assert all(each.startswith(f"{card(4)}::") for each in replicas)
    assert found["slice"].device in agents.MIG


def test_a_process_is_found_in_its_pod_by_its_control_group(
    cluster: Cluster, namespace: str
) -> None:
    names = ("one", "two")
    for name in names:
        cluster.api.create(pod(namespace, name))
    uids = [wait_for_phase(cluster.api, namespace, n)["metadata"]["uid"] for n in names]
    places = Places()
    for uid in uids:
        found = wait_for(partial(agents.processes_of, uid), 120, "its processes")
        assert {places.place(number, 0.0) for number in found} == {uid}
    assert places.place(1, 0.0) not in uids


def test_a_card_that_the_device_plugin_withdraws_is_not_offered_and_the_kubelet_may_restart(
    cluster: Cluster, kubelet: PodResources
) -> None:
    now = [0.0]

    def offered(uuid: str) -> bool:
        now[0] += 100.0  # whatever it was told last is asked anew
        kubelet.refresh(now[0])
        assert kubelet.problem == ""
        return kubelet.offered(uuid, seen())

    assert offered(card(3))
    cluster.devices(unhealthy=(card(3),))
    try:
        wait_for(lambda: not offered(card(3)), 120, "the card withdrawn")
        assert offered(card(2))
    finally:
        cluster.devices(unhealthy=())
    cluster.kill("kubelet")
    try:
        kubelet.refresh(now[0] + 100.0)
        assert kubelet.problem
    finally:
        cluster.start("kubelet")
    wait_for(lambda: offered(card(3)), 90, "the card offered by the new kubelet")


@dataclass
class Scene:
    """The service's end: a provider on the cluster, the address of agents, and the evidence."""

    provider: KubernetesProvider
    url: str
    lease: Lease
    refused: list[str] = field(default_factory=list)
    watch: EvidenceCollector = field(default_factory=EvidenceCollector)
    gaps: set[str] = field(default_factory=set)
    levels: set[EvidenceLevel | None] = field(default_factory=set)
    last: Any = ()

    async def judge(self, threads: int = 1) -> Evidence:
        """Live one moment as the service does; the lease has a thread of the user's."""
        now = datetime.now(UTC)
        await self.provider.devices()
        for shown in await self.provider.observe():
            if shown.lease_id == self.lease.id and shown.devices:
                self.lease = replace(self.lease, devices=shown.devices)  # where it really landed
        samples = await self.provider.sample()
        self.gaps = {each.gap for each in samples if each.gap} or self.gaps
        self.levels |= {each.level for each in samples if not each.gap}
        self.last = samples[-1:] or self.last
        self.watch.sampled(samples)
        life: Any = {"at": now.isoformat(), "cells": 0, "threads": threads, "processes": 0,
                     "tasks": 0, "use": 0.0, "transfers": False}  # fmt: skip
        self.watch.hear(self.lease.id, [life], now)
        outs = TimeOuts(warm_up=0)
        policy = default_document([Device(self.lease.devices[0], "cards")], outs)
        return self.watch.judge([self.lease], policy, now)[self.lease.id]

    async def until(self, verdict: Verdict, seconds: float = 120) -> Evidence:
        async def there() -> Evidence | None:
            found = await self.judge()
            assert found.verdict is verdict, (
                f"{found} at {found.since}, last {self.last}, now {datetime.now(UTC)}"
            )
            return found

        return await wait_for_async(there, seconds, f"verdict {verdict}")


def lease_pod(namespace: str) -> Object:
    """Return a pod that is a lease's by its labels."""
    found = gpu_pod(namespace, f"gpulease-{namespace}-1")
    found["metadata"]["labels"] = {
        labels.LEASE: namespace,
        labels.ATTEMPT: "1",
        labels.INSTANCE: labels.label_value(INSTANCE),
        labels.NAME: labels.APP,
        labels.COMPONENT: labels.LEASE_COMPONENT,
    }
    found["metadata"]["annotations"] = {
        labels.LEASE: namespace,
        labels.COUNT: "1",
        labels.SLOTS: f"{NODE}/{GPU}/0",
    }
    return found


@pytest.fixture
async def scene(cluster: Cluster, namespace: str) -> AsyncIterator[Scene]:
    """A provider that watches the cluster, with one running lease, and where agents post."""
    now = datetime.now(UTC)
    lease = Lease(
        id=namespace, user="stu", server="", gpu_class="cards", count=1, ticket=(now, 1),
        created=now, state=LeaseState.ACTIVE, active_since=now, attempt=1,
        devices=(f"{NODE}/{GPU}/0",),
    )  # fmt: skip
    cluster.api.create(lease_pod(namespace))
    await asyncio.to_thread(
        wait_for_phase, cluster.api, namespace, f"gpulease-{namespace}-1", "Running"
    )
    settings = Settings(
        PodSettings(service_url="http://nowhere/", instance=INSTANCE),
        (namespace,),
        agents=(namespace, agents.ACCOUNT),
    )
    provider = KubernetesProvider(
        OfficialClient(str(cluster.layout.kubeconfig)),
        SimpleNamespace(state=lambda _: None, send=lambda *_: False),
        settings,
        classes=lambda: (GPUClass("cards", "cards"),),
    )
    await provider.open()
    await provider.devices()
    await provider.start(lease)
    services = SimpleNamespace(
        agents=Agents(provider.agent_reports),
        metrics=Metrics(),
        policies=SimpleNamespace(current=default_document([Device("d", "cards")])),
    )
    app = Application(
        [("/hub/api/agents/batches", AgentBatches)],
        services=services,
        log_function=lambda _: None,
    )
    server = HTTPServer(app)
    sockets = bind_sockets(0, ADDRESS)
    server.add_sockets(sockets)
    yield Scene(provider, f"http://{ADDRESS}:{sockets[0].getsockname()[1]}/hub/", lease)
    server.stop()
    await server.close_all_connections()
    await provider.close()


@pytest.fixture(scope="module")
def image(cluster: Cluster) -> None:
    """The image of this very checkout, with the agent in it."""
    cluster.load_images(with_service=True, tag=agents.TAG)


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    for directory in (tmp_path, *list(tmp_path.parents)[:2]):
        directory.chmod(0o755)
    return agents.put_driver(tmp_path / "driver")


@pytest.mark.usefixtures("image")
async def test_an_agent_in_a_pod_makes_a_lease_busy_then_idle_and_its_silence_is_no_idleness(
    cluster: Cluster, namespace: str, scene: Scene, driver: Driver
) -> None:
    cluster.api.create(agents.agent_pod(cluster, namespace, scene.url, driver.path.parent))
    idle = await scene.until(Verdict.IDLE, 120)
    assert scene.levels == {EvidenceLevel.PROCESS}, "the agent tells the processes' pods apart"

    lease_pod_name = f"gpulease-{namespace}-1"
    uid = cluster.api.pod(namespace, lease_pod_name)["metadata"]["uid"]
    device = (
        await asyncio.to_thread(visible_device, cluster.api, namespace, lease_pod_name)
    ).strip()
    number = next(n for n in range(4) if card(n) == device)
    (process, *_) = agents.processes_of(uid).values()
    driver.set({f"{number}.use": 80, f"{number}.process_use": f"{process}:80"})
    busy = await scene.until(Verdict.BUSY)
    assert busy.utilisation == 0.8

    # The same use by a process of the node itself: the lease is idle beside it.
    driver.set({f"{number}.process_use": "1:80"})
    await scene.until(Verdict.IDLE)
    driver.set({f"{number}.use": 0, f"{number}.process_use": ""})

    async def counted() -> bool:
        return (await scene.judge()).idle_for >= 5

    await wait_for_async(counted, 120, "five idle seconds")
    assert idle.idle_for < (await scene.judge()).idle_for

    options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    cluster.api.delete(f"/api/v1/namespaces/{namespace}/pods/agent", options)
    scene.gaps.clear()
    await scene.until(Verdict.UNKNOWN, 120)

    async def silent() -> bool:  # the window empties a little before the agent counts as silent
        await scene.judge()
        return scene.gaps == {"agent_silent"}

    await wait_for_async(silent, 120, "the agent's silence to be named")
    before = (await scene.until(Verdict.UNKNOWN)).idle_for
    assert (await scene.judge()).idle_for == before, "no word counts for nothing"


@pytest.mark.usefixtures("image")
async def test_a_card_that_fails_puts_its_lease_and_then_its_node_out_of_use(
    cluster: Cluster, namespace: str, scene: Scene, driver: Driver
) -> None:
    cluster.api.create(agents.agent_pod(cluster, namespace, scene.url, driver.path.parent))
    await scene.until(Verdict.IDLE, 120)
    name = f"gpulease-{namespace}-1"
    device = (await asyncio.to_thread(visible_device, cluster.api, namespace, name)).strip()
    number = next(n for n in range(4) if card(n) == device)
    ip = await asyncio.to_thread(wait_for_address, cluster.api, namespace, "agent")

    async def listening() -> bool:
        answer = await AsyncHTTPClient().fetch(f"http://{ip}:8892/healthz", raise_error=False)
        assert answer.code == 200, answer.error
        state = json.loads(answer.body)
        return bool(state["events"] == "ok" and state["kubelet"] == "ok")

    await wait_for_async(listening, 120, "the driver's events listened to")
    driver.event(8, 31, number)  # a program's own fault
    driver.event(8, 79, number)

    async def unhealthy() -> list[str]:
        return [each.uuid for each in await scene.provider.devices() if not each.healthy]

    assert await wait_for_async(unhealthy, 120, "a slot out of use") == [scene.lease.devices[0]]
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    cluster.api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", options)

    async def closed() -> bool:
        found = [each for each in await scene.provider.devices() if each.node == NODE]
        return bool(found) and all(not each.serves for each in found)

    await wait_for_async(closed, 120, "nothing is sent to a node that would give it out again")
    cluster.devices(unhealthy=(device,))
    try:

        async def open_again() -> bool:
            return not await closed()

        await wait_for_async(open_again, 90, "the node's other cards used again")
    finally:
        cluster.devices(unhealthy=())


@pytest.mark.usefixtures("image")
async def test_only_an_agents_own_token_is_believed_and_only_for_its_node(
    cluster: Cluster, namespace: str, scene: Scene
) -> None:
    agents.make_account(cluster.api, namespace)
    own = token(cluster, namespace, agents.ACCOUNT, "gpulease")
    assert await scene.provider.agent_node(own) is None, "bound to no pod, so to no node"
    holder = pod(namespace, "holder")
    holder["spec"]["serviceAccountName"] = agents.ACCOUNT
    cluster.api.create(holder)
    made = await asyncio.to_thread(wait_for_phase, cluster.api, namespace, "holder", "Running")
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "holder", "uid": made["metadata"]["uid"]}
    assert (
        await scene.provider.agent_node(
            token(cluster, namespace, agents.ACCOUNT, "gpulease", bound)
        )
        == NODE
    )
    for account, audience in ((agents.ACCOUNT, "other"), ("default", "gpulease")):
        assert await scene.provider.agent_node(token(cluster, namespace, account, audience)) is None
    assert await scene.provider.agent_node("nonsense") is None


def token(
    cluster: Cluster, namespace: str, account: str, audience: str, bound: Object | None = None
) -> str:
    """Return a new token of a service account, bound to a pod if one is given."""
    spec: Object = {"audiences": [audience], "expirationSeconds": 600}
    if bound:
        spec["boundObjectRef"] = bound
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    found: str = cluster.api.request("POST", path, body)["status"]["token"]
    return found
