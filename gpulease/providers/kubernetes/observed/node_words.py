"""What a node says of itself: how it is, its taints, the model of its GPUs.

Pure.  Refuses to know what of it anybody takes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpulease.providers.kubernetes.api.client import Manifest
from gpulease.providers.kubernetes.asks.nodes import MEMORY, PRODUCT
from gpulease.providers.kubernetes.observed.pods import amount_of

#: Taints that say how the node is, which is read from its conditions.
_STATE_TAINTS = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/unschedulable",
    }
)
#: Taints by which autoscalers and clouds announce that a node is about to go.
_LEAVING_TAINTS = frozenset(
    {
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "cloud.google.com/impending-node-termination",
        "aws-node-termination-handler/spot-itn",
        "aws-node-termination-handler/rebalance-recommendation",
        "aws-node-termination-handler/scheduled-maintenance",
        "aws-node-termination-handler/asg-lifecycle-termination",
        "node.cloudprovider.kubernetes.io/shutdown",
        "node.kubernetes.io/out-of-service",
    }
)
#: The label by which NVIDIA's GPU operator says how far an upgrade of the driver is, and the steps
#: from the deletion of pods to the new driver's start.
_UPGRADE = "nvidia.com/gpu-driver-upgrade-state"
_UPGRADING = frozenset(
    {
        "wait-for-jobs-required",
        "pod-deletion-required",
        "drain-required",
        "node-maintenance-required",
        "pod-restart-required",
    }
)


def lost(node: Manifest) -> bool:
    """Whether nobody knows how a node is: its kubelet is not ready or does not answer."""
    conditions = (node.get("status") or {}).get("conditions") or []
    ready = next((each.get("status") for each in conditions if each.get("type") == "Ready"), None)
    return ready != "True"


def leaving(node: Manifest) -> bool:
    """Whether a node takes nothing new and is about to go: cordoned, or announced by a taint."""
    spec = node.get("spec") or {}
    announced = any(taint.get("key") in _LEAVING_TAINTS for taint in spec.get("taints") or [])
    deleting = bool((node.get("metadata") or {}).get("deletionTimestamp"))
    return bool(spec.get("unschedulable")) or announced or deleting


def upgrading(node: Manifest) -> bool:
    """Whether NVIDIA's GPU operator replaces the node's driver: nobody may have it open then."""
    return labels_of(node).get(_UPGRADE) in _UPGRADING


def product_of(node: Manifest) -> tuple[str, int]:
    """Return model and memory (bytes) of a node's GPUs by feature discovery, "" and 0 without."""
    marks = labels_of(node)
    return str(marks.get(PRODUCT, "")), amount_of(marks.get(MEMORY, 0)) * 2**20


def taints_of(node: Manifest) -> list[Mapping[str, str]]:
    """Return a node's taints but those that say how it is: these are read from it directly."""
    return [
        taint
        for taint in (node.get("spec") or {}).get("taints") or []
        if taint.get("key") not in _STATE_TAINTS | _LEAVING_TAINTS
    ]


def pool_name(model: str) -> str:
    """Return the name of the pool of a model that the policy does not know."""
    return re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-") or "gpu"


def labels_of(node: Manifest) -> Mapping[str, str]:
    """Return a node's labels."""
    return (node.get("metadata") or {}).get("labels") or {}
