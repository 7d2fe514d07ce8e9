"""Many nodes that kwok plays: scheduling and bookkeeping are real, the containers are not."""

from testcluster.api import Api, Object
from testcluster.cluster import Cluster, is_ready

#: A node that kwok plays bears this label; pods that shall land there select it.
LABEL = {"type": "kwok"}
TAINT = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
GPUS = 8


def add_nodes(cluster: Cluster, number: int, gpus: int = GPUS) -> list[str]:
    """Start kwok if need be and create nodes; return their names once all are Ready.

    They are tainted, so that no pod of another test lands there by accident.
    """
    cluster.processes.start("kwok")
    names = [f"kwok-{index:03d}" for index in range(number)]
    api = cluster.api
    have = {node["metadata"]["name"] for node in api.items("/api/v1/nodes")}
    for name in names:
        if name not in have:
            api.create(_node(name, gpus))
    cluster.processes.wait_until(lambda: ready_nodes(api) >= set(names), "kwok")
    return names


def remove_nodes(cluster: Cluster) -> None:
    """Delete every node that kwok plays and end kwok."""
    for node in cluster.api.items("/api/v1/nodes", labelSelector="type=kwok"):
        cluster.api.delete(f"/api/v1/nodes/{node['metadata']['name']}")
    if cluster.processes.running("kwok"):
        cluster.kill("kwok")


def ready_nodes(api: Api) -> set[str]:
    """Return the names of the nodes that are Ready."""
    return {each["metadata"]["name"] for each in api.items("/api/v1/nodes") if is_ready(each)}


def _node(name: str, gpus: int) -> Object:
    room = {"cpu": "64", "memory": "512Gi", "pods": "250", "nvidia.com/gpu": str(gpus)}
    labels = {
        **LABEL,
        "kubernetes.io/hostname": name,
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": "Pretend-GPU-80GB",
        "nvidia.com/gpu.memory": "81920",
        "nvidia.com/gpu.count": str(gpus),
        "nvidia.com/gpu.compute.major": "9",
        "nvidia.com/gpu.compute.minor": "0",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": [TAINT]},
        "status": {"allocatable": room, "capacity": room},
    }
