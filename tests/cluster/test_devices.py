"""The kubelet's own accounting of pretend devices."""

from collections.abc import Iterator

import pytest

from testcluster.api import Object
from testcluster.cluster import Cluster
from testcluster.devices import card
from testcluster.layout import NODE
from testcluster.pods import gpu_pod, pod, visible_device, wait_for_phase
from tests.helpers import wait_for

pytestmark = pytest.mark.cluster

GPU = "nvidia.com/gpu"


@pytest.fixture
def free_devices(cluster: Cluster) -> Iterator[None]:
    """Wait until no pod of an earlier test holds a device; repair every device afterwards."""
    wait_for(lambda: _holders(cluster) == 0, 120, "devices free")
    yield
    cluster.devices(unhealthy=())
    wait_for(lambda: _allocatable(cluster) == "4", 120, "devices healthy")


def _holders(cluster: Cluster) -> int:
    return sum(
        GPU in container["resources"].get("limits", {})
        for each in cluster.api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={NODE}")
        if each["status"]["phase"] not in ("Succeeded", "Failed")
        for container in each["spec"]["containers"]
    )


def _allocatable(cluster: Cluster) -> str:
    node: Object = cluster.api.get(f"/api/v1/nodes/{NODE}")
    return str(node["status"]["allocatable"][GPU])


@pytest.mark.usefixtures("free_devices")
def test_four_pods_hold_four_devices_and_the_fifth_waits(cluster: Cluster, namespace: str) -> None:
    api = cluster.api
    for number in range(5):
        api.create(gpu_pod(namespace, f"p{number}"))

    def running() -> set[str]:
        pods = api.items(f"/api/v1/namespaces/{namespace}/pods")
        return {p["metadata"]["name"] for p in pods if p["status"]["phase"] == "Running"}

    wait_for(lambda: len(running()) == 4, 90, "four pods running")
    held = {name: visible_device(api, namespace, name) for name in running()}
    assert sorted(held.values()) == [card(number) for number in range(4)]
    (waiting,) = {f"p{number}" for number in range(5)} - set(held)

    def told() -> bool:  # the scheduler writes it down after it looked
        return "Insufficient nvidia.com/gpu" in _why_pending(api.pod(namespace, waiting))

    wait_for(told, 90, "the fifth to be told why it waits")

    freed = next(iter(held))
    api.delete(f"/api/v1/namespaces/{namespace}/pods/{freed}")
    wait_for_phase(api, namespace, waiting)
    assert visible_device(api, namespace, waiting) == held[freed]


def _why_pending(found: Object) -> str:
    conditions = found["status"].get("conditions", ())
    return "; ".join(each.get("message", "") for each in conditions)


@pytest.mark.usefixtures("free_devices")
def test_unhealthy_device_is_not_handed_out(cluster: Cluster, namespace: str) -> None:
    cluster.devices(unhealthy=(card(0), card(1), card(2)))
    wait_for(lambda: _allocatable(cluster) == "1", 120, "one device allocatable")
    node = cluster.api.get(f"/api/v1/nodes/{NODE}")
    assert node["status"]["capacity"][GPU] == "4"
    cluster.api.create(gpu_pod(namespace, "only"))
    wait_for_phase(cluster.api, namespace, "only")
    assert visible_device(cluster.api, namespace, "only") == card(3)


@pytest.mark.usefixtures("free_devices")
def test_pod_forced_past_the_scheduler_is_refused_by_the_kubelet(
    cluster: Cluster, namespace: str
) -> None:
    api = cluster.api
    api.create(pod(namespace, "all", limits={GPU: "4"}))
    wait_for_phase(api, namespace, "all")
    forced = gpu_pod(namespace, "forced")
    forced["spec"]["nodeName"] = NODE
    api.create(forced)
    refused = wait_for_phase(api, namespace, "forced", "Failed")
    assert refused["status"]["reason"] in ("UnexpectedAdmissionError", "OutOfnvidia.com/gpu")


def test_replicas_share_one_card(cluster: Cluster, namespace: str) -> None:
    api = cluster.api
    for name in ("a", "b"):
        api.create(gpu_pod(namespace, name, "nvidia.com/gpu.shared"))
    for name in ("a", "b"):
        wait_for_phase(api, namespace, name)
        assert visible_device(api, namespace, name) == card(4)


def test_slices_are_a_resource_of_their_own(cluster: Cluster, namespace: str) -> None:
    cluster.api.create(gpu_pod(namespace, "slice", "nvidia.com/mig-3g.20gb"))
    wait_for_phase(cluster.api, namespace, "slice")
    assert visible_device(cluster.api, namespace, "slice").startswith("MIG-")
