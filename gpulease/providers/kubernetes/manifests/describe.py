"""A lease pod describes itself: its labels and annotations out of a lease.

Owns what stands in them, so that a service whose store was restored from a backup can adopt a pod
that it does not know (``pods`` reads them back).  Refuses to know the pod's spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gpulease import labels
from gpulease.policy.model import GPUClass, Lease
from gpulease.providers.kubernetes.asks.volumes import Files

#: Nothing that balances or shrinks a cluster may take an active lease's pod away.
UNDISTURBED = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}


def pod_labels(lease: Lease, gpu_class: GPUClass, instance: str, rank: int) -> dict[str, str]:
    """Return the labels by which lease pods are found and network policies select them."""
    several = {labels.RANK: str(rank)} if lease.nodes > 1 else {}
    return several | {
        labels.NAME: labels.APP,
        labels.COMPONENT: labels.LEASE_COMPONENT,
        labels.MANAGED_BY: labels.APP,
        labels.INSTANCE: labels.label_value(instance),
        labels.LEASE: labels.label_value(lease.id),
        labels.ATTEMPT: str(lease.attempt),
        labels.CLASS: labels.label_value(gpu_class.name),
        labels.POOL: labels.label_value(gpu_class.pool),
    }


def pod_annotations(
    lease: Lease,
    gpu_class: GPUClass,
    instance: str,
    server_uid: str,
    files: Files,
    *,
    now: datetime,
    ends: datetime,
) -> dict[str, str]:
    """Return the annotations: exact names and all that adopting the lease needs."""
    since, number = lease.ticket
    several = {labels.NODES: str(lease.nodes)} if lease.nodes > 1 else {}
    if lease.card_parts:
        several |= {labels.CARD_PARTS: str(lease.card_parts)}
    return (
        UNDISTURBED
        | several
        | {
            labels.LEASE: lease.id,
            labels.INSTANCE: instance,
            labels.USER: lease.user,
            labels.SERVER: lease.server,
            labels.SERVER_UID: server_uid,
            labels.PROJECT: lease.project,
            labels.GPU_CLASS: lease.gpu_class,
            labels.COUNT: str(lease.count),
            labels.PRICE: repr(gpu_class.device_price),
            labels.TICKET: f"{since.isoformat()}#{number}",
            labels.CREATED: lease.created.isoformat(),
            labels.GRANTED: now.isoformat(),
            labels.ENDS: ends.isoformat(),
            labels.KERNEL: lease.kernel_id or "",
            labels.SLOTS: ",".join(lease.devices),
            labels.FILES: files.way,
            labels.FILES_WHY: files.why,
        }
    )


def owned_by(server: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reference to a server's pod, with which what bears it goes."""
    owner = server["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": owner["name"],
        "uid": owner["uid"],
        "controller": False,
        "blockOwnerDeletion": False,
    }
