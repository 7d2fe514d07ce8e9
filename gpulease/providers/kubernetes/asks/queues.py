"""The cluster's own queues, Kueue and KAI: what a pod says to them, and what they say of a pod.

Owns their published labels, and the reading of a pod that one of them holds back or takes away,
with Kueue's Workload where it may be read.  Pure.  Refuses to order, to borrow and to preempt:
that is theirs.  Kueue's part ran against Kueue 0.14, KAI's is its documented form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpulease.policy.pods import ClusterQueue, QueueEngine

Manifest = Mapping[str, Any]

KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
#: What makes several pods one of Kueue's Workloads, which is admitted whole or not at all.
KUEUE_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
KUEUE_TOTAL: Final = "kueue.x-k8s.io/pod-group-total-count"
KUEUE_RETRIABLE: Final = "kueue.x-k8s.io/retriable-in-group"
KAI_QUEUE: Final = "kai.scheduler/queue"
KAI_SCHEDULER: Final = "kai-scheduler"
#: The condition by which Kueue says that it ends a pod, and the beginning of its reasons.
_STOPPED: Final = "TerminationTarget"
_EVICTED: Final = "WorkloadEvicted"


@dataclass(frozen=True)
class Waiting:
    """A pod that a queue holds back.

    ``said`` is a code of ``reasons.PROGRESS`` for the lease's holder, ``detail`` the queue's own
    words for admins, ``ahead`` how many wait before it in the same queue, as far as is known.
    """

    said: str
    detail: str = ""
    ahead: int | None = None


def queue_labels(queue: ClusterQueue | None) -> dict[str, str]:
    """Return the labels by which a queue takes a pod for its own."""
    if queue is None:
        return {}
    return {KUEUE_QUEUE if queue.engine is QueueEngine.KUEUE else KAI_QUEUE: queue.name}


@dataclass(frozen=True)
class Group:
    """What the pods of one lease say so that a queue admits them together."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


def group_of(queue: ClusterQueue | None, name: str, total: int) -> Group:
    """Return what each pod of a group says: nothing where a lease is one pod.

    No pod of it is ever made again: without a word Kueue would wait for one in the place of each
    that has ended, and keep them all.

    Args:
        queue: that of the class.
        name: the group's, the same for all of its pods and for no others.
        total: how many they are.
    """
    if queue is None or queue.engine is not QueueEngine.KUEUE or total == 1:
        return Group()
    return Group({KUEUE_GROUP: name}, {KUEUE_TOTAL: str(total), KUEUE_RETRIABLE: "false"})


def queue_scheduler(queue: ClusterQueue | None) -> str:
    """Return the scheduler that a queue's pods need, "" for the cluster's default."""
    return KAI_SCHEDULER if queue is not None and queue.engine is QueueEngine.KAI else ""


def workload_of(pod: Manifest, workloads: Iterable[Manifest]) -> Manifest | None:
    """Return the Workload that Kueue made for a pod."""
    uid = (pod.get("metadata") or {}).get("uid")
    for each in workloads:
        owners = each["metadata"].get("ownerReferences") or ()
        if uid and any(owner.get("uid") == uid for owner in owners):
            return each
    return None


def waiting(pod: Manifest, workloads: Iterable[Manifest] = ()) -> Waiting | None:
    """Return what a pod waits for in the cluster's queue; ``None`` where nothing holds it back.

    Args:
        pod: as the API server gives it; a scheduling gate or KAI's queue holds it back.
        workloads: Kueue's of its namespace, as far as they may be read.
    """
    spec, meta = pod.get("spec") or {}, pod.get("metadata") or {}
    if spec.get("nodeName") or meta.get("deletionTimestamp"):
        return None
    marks = meta.get("labels") or {}
    if not spec.get("schedulingGates"):
        return _in_kai(pod) if KAI_QUEUE in marks else None
    everything = list(workloads)
    own = workload_of(pod, everything)
    if own is None:
        gates = ", ".join(str(each.get("name", "")) for each in spec["schedulingGates"])
        return Waiting("in_cluster_queue", f"Held back by {gates}.")
    return _in_kueue(own, everything)


def _in_kueue(own: Manifest, everything: Iterable[Manifest]) -> Waiting:
    ahead = sum(_before(each, own) for each in everything)
    queue = (own.get("spec") or {}).get("queueName", "")
    found = _condition(own, "QuotaReserved")
    said = f"Kueue, queue {queue}: {_words(found) or 'not looked at yet'}"
    if (own.get("spec") or {}).get("active") is False:
        return Waiting("cluster_queue_stopped", f"{said} It is switched off.", ahead)
    evicted = _condition(own, "Evicted")
    if evicted.get("status") == "True":
        return Waiting("cluster_queue_again", f"{said}; {_words(evicted)}", ahead)
    if found.get("reason") == "Inadmissible":
        return Waiting("cluster_queue_stopped", said, ahead)
    if found.get("reason") == "Pending":
        return Waiting("cluster_quota", said, ahead)
    return Waiting("in_cluster_queue", said, ahead)


def _in_kai(pod: Manifest) -> Waiting:
    scheduled = _condition(pod, "PodScheduled")
    return Waiting("in_cluster_queue", f"KAI: {_words(scheduled) or 'not looked at yet'}")


def _before(other: Manifest, own: Manifest) -> bool:
    """Whether another Workload waits in the same queue and comes first there."""
    if other["metadata"].get("uid") == own["metadata"].get("uid"):
        return False
    theirs, ours = other.get("spec") or {}, own.get("spec") or {}
    same = theirs.get("queueName") == ours.get("queueName")
    same = same and other["metadata"].get("namespace") == own["metadata"].get("namespace")
    if not same or _condition(other, "QuotaReserved").get("status") == "True":
        return False
    if _condition(other, "Finished").get("status") == "True":
        return False
    return _turn(other) < _turn(own)


def _turn(workload: Manifest) -> tuple[int, str, str]:
    meta, spec = workload["metadata"], workload.get("spec") or {}
    since = str(meta.get("creationTimestamp", ""))
    return (-int(spec.get("priority") or 0), since, str(meta.get("name", "")))


def taken_back(pod: Manifest) -> str:
    """Return the queue's words where it takes a pod away for somebody else, "" where it does not.

    Kueue marks a pod before it deletes it, and the pod has its grace then.
    """
    found = _condition(pod, _STOPPED)
    if found.get("status") != "True" or not str(found.get("reason", "")).startswith(_EVICTED):
        return ""
    return _words(found) or "Kueue took it back."


def _condition(manifest: Manifest, kind: str) -> Manifest:
    """Return a condition of a pod or a Workload, empty where it has none of this kind."""
    every = (manifest.get("status") or {}).get("conditions") or ()
    return next((each for each in every if each.get("type") == kind), {})


def _words(found: Manifest) -> str:
    return str(found.get("message") or found.get("reason") or "")
