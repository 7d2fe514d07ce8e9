"""GPU classes as the fields of a pod: resources, claims, node terms, annotations.

Owns the one translation from a class's ``PodAsk`` to what a pod must say, for every kind; the
table of what is expected stands in ``docs/reference/kubernetes-asks.md``.  Pure: plain dicts out,
as the API server takes them.  Refuses to know the rest of the pod (``manifest``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.policy.gpu_fractions import percent
from gpulease.policy.model import GPUClass
from gpulease.policy.pods import AskKind, PodAsk, is_hami, of_card, resource_of
from gpulease.providers.kubernetes.asks.claims import REQUEST, template_name
from gpulease.providers.kubernetes.asks.nodes import Terms, node_terms, tolerations
from gpulease.providers.kubernetes.asks.queues import queue_labels, queue_scheduler

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
        GPULeaseError: ``bad_count``: so many cannot be had in one pod of this kind.
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
    """Return the ask for so many parts of one card.

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
