"""Nodes, pods and claims as the API server shows them, with no more than a test needs."""

from gpulease.protocol import labels

INSTANCE = "hub-a"


def node(
    name="n1", gpus=4, *, ready=None, resource="nvidia.com/gpu", marks=None, taints=(),
    state="True", cordoned=False,
):  # fmt: skip
    amount = {resource: str(gpus), "cpu": "8", "memory": "64Gi", "pods": "110"}
    working = amount | {resource: str(gpus if ready is None else ready)}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(marks or {})}},
        "spec": {"taints": list(taints), "unschedulable": cordoned},
        "status": {
            "capacity": amount,
            "allocatable": working,
            "conditions": [{"type": "Ready", "status": state}],
        },
    }


def pod(name, *, node="", gpus=1, namespace="jhub", resource="nvidia.com/gpu", phase="Running",
        created="2026-01-01T00:00:00Z", init=(), marks=None, notes=None, uid=None):  # fmt: skip
    limits = {resource: str(gpus)} if gpus else {}
    spec = {
        "containers": [{"name": "c", "resources": {"limits": limits, "requests": limits}}],
        "initContainers": list(init),
    }
    if node:
        spec["nodeName"] = node
    return {
        "metadata": {
            "name": name, "namespace": namespace, "uid": uid or f"uid-{name}",
            "creationTimestamp": created, "labels": dict(marks or {}),
            "annotations": dict(notes or {}), "managedFields": [{"manager": "x"}],
        },
        "spec": spec,
        "status": {"phase": phase},
    }  # fmt: skip


def lease_pod(lease, *, attempt=1, instance=INSTANCE, count=1, nodes=1, rank=0, notes=None, **more):
    several = {labels.RANK: str(rank)} if nodes > 1 else {}
    marks = several | {
        labels.LEASE: lease,
        labels.ATTEMPT: str(attempt),
        labels.INSTANCE: labels.label_value(instance),
        labels.NAME: labels.APP,
        labels.COMPONENT: labels.LEASE_COMPONENT,
    }
    described = {labels.COUNT: str(count), labels.USER: "stu", labels.SERVER: "", **(notes or {})}
    described |= {labels.NODES: str(nodes)} if nodes > 1 else {}
    name = labels.lease_pod_name(lease, attempt, rank)
    return pod(name, gpus=more.pop("gpus", count // nodes), marks=marks, notes=described, **more)
