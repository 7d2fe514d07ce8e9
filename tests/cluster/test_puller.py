"""The shipped puller holds images on a node with GPUs, as an account without any right."""

import copy

import pytest

from testcluster.cluster import Cluster
from testcluster.images import GPULEASE_IMAGE
from testcluster.layout import NODE
from tests.helm_values import shipped
from tests.helpers import wait_for

pytestmark = pytest.mark.cluster


def test_the_puller_runs_on_a_node_with_gpus(cluster: Cluster, namespace: str) -> None:
    (found,) = (each for each in shipped.load("leases/puller.yaml") if each["kind"] == "DaemonSet")
    puller = copy.deepcopy(found)
    puller["metadata"]["namespace"] = namespace
    spec = puller["spec"]["template"]["spec"]
    spec["containers"][0]["image"] = GPULEASE_IMAGE
    cluster.api.create(puller)

    def running() -> bool:
        pods = cluster.api.items(f"/api/v1/namespaces/{namespace}/pods")
        return [each["status"].get("phase") for each in pods] == ["Running"]

    wait_for(running, 120, "the puller's pod to run")
    (pod,) = cluster.api.items(f"/api/v1/namespaces/{namespace}/pods")
    assert pod["spec"]["nodeName"] == NODE
    assert pod["status"]["qosClass"] == "Burstable"
    assert "volumes" not in pod["spec"], "no token of an account"
