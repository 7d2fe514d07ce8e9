"""GPU classes as the fields of a pod: resources, claims, node terms, annotations, queues.

The one translation from a class's ``PodAsk`` to what a pod must say, for every kind; the table of
what is expected stands in ``docs/reference/kubernetes-asks.md``.  The cluster's own queues, Kueue
and KAI, are part of it: their published labels, and whether one of them holds a pod back or takes
it away.  They order, borrow and preempt themselves.  Kueue's part ran against Kueue 0.14; KAI's is
its documented form.  Pure: plain dicts out, as the API server takes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpulease.errors import GPULeaseError
from gpulease.policy.catalog import percent
from gpulease.policy.model import GPUClass
from gpulease.policy.pods import (
    AskKind,
    ClusterQueue,
    PodAsk,
    QueueEngine,
    is_hami,
    of_card,
    resource_of,
)
from gpulease.providers.kubernetes.pod_resources.claims import REQUEST, template_name
from gpulease.providers.kubernetes.pod_resources.nodes import Terms, node_terms, tolerations

#: So HAMi puts parts where we count them: on the fullest card with room.
_PACKED = {"hami.io/gpu-scheduler-policy": "binpack"}


@dataclass(frozen=True)
class PodFields:
    """What one ask puts into a lease pod.

    ``limits`` are the container's extended resources; ``claims`` the container's and
    ``resource_claims`` the pod's side of a DRA claim; ``terms`` are required and ``preferred``
    preferred node conditions.  ``scheduler`` "" is the cluster's default.
    """

    limits: dict[str, str] = field(default_factory=dict)
    claims: list[dict[str, str]] = field(default_factory=list)
    resource_claims: list[dict[str, str]] = field(default_factory=list)
    terms: Terms = field(default_factory=lambda: [[]])
    preferred: list[dict[str, Any]] = field(default_factory=list)
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[dict[str, str]] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    scheduler: str = ""


def ask_of(gpu_class: GPUClass) -> PodAsk:
    """Return how the class is asked for; one whole card where the policy does not say."""
    return gpu_class.pod or PodAsk()


def pod_fields(gpu_class: GPUClass, count: int, owner: str = "") -> PodFields:
    """Return what the pod says for ``count`` devices of a class.

    ``owner`` is that of its claim's template, as ``claims.template_name`` has it.

    Raises:
        GPULeaseError: ``bad_count``: one pod of this kind cannot have this number.
    """
    ask = ask_of(gpu_class)
    if gpu_class.parts:
        ask, count = _part(gpu_class, ask, count), 1
    _check_count(gpu_class, ask, count)
    preferred = []
    if ask.topology and count > 1 and ask.kind is not AskKind.DRA:
        expressions = [{"key": ask.topology, "operator": "Exists"}]
        preferred = [{"weight": 100, "preference": {"matchExpressions": expressions}}]
    claimed = ask.kind is AskKind.DRA
    template = template_name(gpu_class.name, ask, count, owner) if claimed else ""
    return PodFields(
        limits=limits(ask, count),
        claims=[{"name": REQUEST}] if claimed else [],
        resource_claims=(
            [{"name": REQUEST, "resourceClaimTemplateName": template}] if claimed else []
        ),
        terms=node_terms(ask),
        preferred=preferred,
        node_selector=dict(ask.node_selector),
        tolerations=tolerations(ask),
        annotations=(_PACKED if gpu_class.parts else {}) | dict(ask.extra_annotations),
        labels=dict(ask.extra_labels) | queue_labels(ask.queue),
        scheduler=ask.scheduler or queue_scheduler(ask.queue),
    )


def _part(gpu_class: GPUClass, ask: PodAsk, parts: int) -> PodAsk:
    """Return the ask for a number of parts of one card.

    Raises:
        GPULeaseError: ``bad_count``: nothing would keep to them.
    """
    if is_hami(ask):
        return of_card(ask, percent(parts, gpu_class.card_parts))
    raise GPULeaseError(
        "bad_count",
        f"Nothing on this cluster keeps to a part of a card of class {gpu_class.name}.",
        next_step="An admin writes `pod: {hami: {}}` at the class.",
    )


def limits(ask: PodAsk, count: int) -> dict[str, str]:
    """Return the extended resources that the container is limited to (and so requests).

    The counted resource is multiplied; the extra ones say what each of the devices is to be.
    """
    resource = resource_of(ask)
    counted = {resource: str(ask.amount * count)} if resource else {}
    return counted | dict(ask.extra_resources)


def _check_count(gpu_class: GPUClass, ask: PodAsk, count: int) -> None:
    if count < 1:
        raise GPULeaseError("bad_count", f"{count} GPUs cannot be had.", next_step="Ask for one.")
    refused = ""
    if ask.kind is AskKind.SHARED and not ask.several_shares:
        refused = "is one share of a card, and several shares give no more compute than one"
    elif ask.kind is AskKind.EXTRA and not resource_of(ask):
        refused = "is not counted on the cluster"
    elif ask.amount > 1:
        refused = "is a part of one card, and more of it is still one card"
    if count > 1 and refused:
        raise GPULeaseError(
            "bad_count",
            f"{count} of {gpu_class.name} cannot be had at once: it {refused}.",
            next_step="Ask for one.",
            numbers={"count": count, "max": 1},
        )


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
