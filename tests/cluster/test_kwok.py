"""A hundred nodes that kwok plays, scheduled by the real scheduler."""

from collections.abc import Iterator

import pytest

from testcluster.cluster import Cluster
from testcluster.kwok import GPUS, LABEL, add_nodes, remove_nodes
from testcluster.pods import pod
from tests.helpers import wait_for

pytestmark = pytest.mark.cluster


@pytest.fixture
def many_nodes(cluster: Cluster) -> Iterator[list[str]]:
    yield add_nodes(cluster, 100)
    remove_nodes(cluster)


def test_pods_are_spread_by_devices(
    cluster: Cluster, namespace: str, many_nodes: list[str]
) -> None:
    """Each node takes as many one-GPU pods as it has GPUs and not one more."""
    api = cluster.api
    chosen = many_nodes[:2]
    for name in chosen:
        for number in range(GPUS + 1):
            bound = pod(
                namespace,
                f"{name}-{number}",
                limits={"nvidia.com/gpu": "1"},
                node=LABEL | {"kubernetes.io/hostname": name},
                tolerations=[{"operator": "Exists"}],
            )
            api.create(bound)

    def running() -> list[str]:
        pods = api.items(f"/api/v1/namespaces/{namespace}/pods")
        return [p["spec"]["nodeName"] for p in pods if p["status"]["phase"] == "Running"]

    wait_for(lambda: len(running()) == 2 * GPUS, 90, "all GPUs of two nodes taken")
    assert all(running().count(name) == GPUS for name in chosen)
