"""Each program of the cluster can be killed and started again without losing what it keeps."""

import pytest

from testcluster.cluster import Cluster
from testcluster.layout import NODE
from testcluster.pods import gpu_pod, pod, visible_device, wait_for_phase
from tests.helpers import wait_for

pytestmark = pytest.mark.cluster


def _registrations(cluster: Cluster) -> int:
    text = cluster.processes.log("device-plugin").read_text(encoding="utf-8")
    return text.count("registered")


def test_pod_outlives_a_kubelet(cluster: Cluster, namespace: str) -> None:
    api = cluster.api
    api.create(gpu_pod(namespace, "steady"))
    before = wait_for_phase(api, namespace, "steady")["status"]["containerStatuses"][0]
    registered = _registrations(cluster)
    with cluster.without("kubelet"):
        assert not cluster.processes.running("kubelet")
    wait_for(lambda: _registrations(cluster) > registered, 120, "devices registered again")
    wait_for(lambda: cluster.node_is_ready(), 120, "node ready with its devices")
    after = api.pod(namespace, "steady")["status"]["containerStatuses"][0]
    assert after["containerID"] == before["containerID"]
    assert after["restartCount"] == 0
    api.create(gpu_pod(namespace, "second"))
    wait_for_phase(api, namespace, "second")
    seen = {visible_device(api, namespace, name) for name in ("steady", "second")}
    assert len(seen) == 2


def test_objects_outlive_an_api_server(cluster: Cluster, namespace: str) -> None:
    cluster.api.create(pod(namespace, "kept"))
    uid = wait_for_phase(cluster.api, namespace, "kept")["metadata"]["uid"]
    with cluster.without("kube-apiserver"), pytest.raises(OSError):  # noqa: PT011
        cluster.api.get(f"/api/v1/nodes/{NODE}")
    cluster.wait_for_api()
    assert cluster.api.pod(namespace, "kept")["metadata"]["uid"] == uid


@pytest.mark.parametrize("name", ["containerd", "kube-scheduler", "kube-controller-manager"])
def test_program_works_again_after_a_kill(cluster: Cluster, namespace: str, name: str) -> None:
    with cluster.without(name):
        pass
    cluster.api.create(pod(namespace, "after"))
    wait_for_phase(cluster.api, namespace, "after")
