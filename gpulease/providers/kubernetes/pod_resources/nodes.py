"""Which nodes can serve a class: node affinity terms, taints, and the same rules evaluated here.

A class's ``where`` becomes conditions on the labels of GPU feature discovery.  The conditions are
evaluated here too, so that capacity is counted by the rules that the scheduler applies.
``Gt`` and ``Lt`` are strict and compare whole numbers; ``nvidia.com/gpu.memory`` is in MiB.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, Final

from gpulease.policy.fitting import parse_needs
from gpulease.policy.pods import AskKind, MIGStrategy, PodAsk, Sharing, Toleration, Where
from gpulease.protocol import labels
from gpulease.providers.kubernetes.pod_resources.claims import version

#: One condition on a node's labels, as Kubernetes writes it.
Condition = dict[str, Any]
#: Alternatives, each a list of conditions that must all hold: a node selector's terms.
Terms = list[list[Condition]]

MEMORY: Final = "nvidia.com/gpu.memory"
PRODUCT: Final = "nvidia.com/gpu.product"
COMPUTE_MAJOR: Final = "nvidia.com/gpu.compute.major"
COMPUTE_MINOR: Final = "nvidia.com/gpu.compute.minor"
SHARING: Final = "nvidia.com/gpu.sharing-strategy"
MIG_STRATEGY: Final = "nvidia.com/mig.strategy"

#: Lease pods bear these whatever the class says: the taint that NVIDIA's operator puts on GPU
#: nodes, and ours, by which a site keeps nodes for leases alone.
ALWAYS: Final = (Toleration("nvidia.com/gpu"), Toleration(labels.POOL))


def node_terms(ask: PodAsk) -> Terms:
    """Return the class's conditions on node labels; ``[[]]`` demands nothing.

    A DRA claim's conditions are on devices and stand in the claim (``claims``).
    """
    if ask.kind is AskKind.DRA:
        return [[]]
    where = ask.where
    return _all_of(
        _layout(ask),
        [[*_memory(where), *_products(ask)]],
        _at_least(where.compute_min),
        _at_most(where.compute_max),
    )


def instance_terms(instance: str) -> Terms:
    """Return the condition that a node belongs to this installation or to none."""
    return [
        [condition(labels.INSTANCE, "In", labels.label_value(instance))],
        [{"key": labels.INSTANCE, "operator": "DoesNotExist"}],
    ]


def both(one: Terms, other: Terms) -> Terms:
    """Return the alternatives under which both hold."""
    return _all_of(one, other)


def condition(key: str, operator: str, *values: str) -> Condition:
    """Return one condition with its values."""
    return {"key": key, "operator": operator, "values": list(values)}


def tolerations(ask: PodAsk) -> list[dict[str, str]]:
    """Return the pod's tolerations: the two of every lease pod, then the class's own."""
    return [_toleration(each) for each in dict.fromkeys((*ALWAYS, *ask.tolerations))]


def fitting(ask: PodAsk, instance: str = "") -> Callable[[Mapping[str, str]], bool]:
    """Return the question whether the scheduler would let this class's pod onto a node.

    It is put with the labels of each of thousands of nodes: what the class asks is worked out once.
    ``instance`` "" leaves out whose node it is.
    """
    terms = both(node_terms(ask), instance_terms(instance)) if instance else node_terms(ask)

    def fits(node_labels: Mapping[str, str]) -> bool:
        selected = all(node_labels.get(key) == value for key, value in ask.node_selector)
        return selected and any_holds(terms, node_labels)

    return fits


def fits(ask: PodAsk, node_labels: Mapping[str, str]) -> bool:
    """Whether the scheduler would let this class's pod onto this node, whosoever the node is."""
    return fitting(ask)(node_labels)


def compute_of(node_labels: Mapping[str, str]) -> tuple[int, int] | None:
    """Return the CUDA capability of a node's GPUs by feature discovery, ``None`` without."""
    major, minor = node_labels.get(COMPUTE_MAJOR, ""), node_labels.get(COMPUTE_MINOR, "0")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None


def ecc_of(node_labels: Mapping[str, str]) -> bool | None:
    """Return whether a node's GPUs correct memory errors, ``None`` where nobody said so."""
    return {"true": True, "false": False}.get(node_labels.get(labels.ECC, ""))


def narrowed(ask: PodAsk, needs: str) -> PodAsk:
    """Return a class's ask as one request makes it: with what it demands of its GPUs besides."""
    wanted = parse_needs(needs)
    where = replace(ask.where, memory_min=max(ask.where.memory_min, wanted.memory))
    if wanted.compute > (version(where.compute_min)[:2] or (0, 0)):
        where = replace(where, compute_min="{}.{}".format(*wanted.compute))
    selected = dict.fromkeys([*ask.node_selector, *([(labels.ECC, "true")] if wanted.ecc else [])])
    return replace(ask, where=where, node_selector=tuple(selected))


def any_holds(terms: Terms, node_labels: Mapping[str, str]) -> bool:
    """Whether one of the alternatives holds for a node with these labels."""
    return any(all(_holds(each, node_labels) for each in term) for term in terms)


def bearing(ask: PodAsk) -> Callable[[Iterable[Mapping[str, str]]], bool]:
    """Return the question whether the class's pod may be placed on a node with these taints."""
    borne = tolerations(ask)

    def bears(taints: Iterable[Mapping[str, str]]) -> bool:
        return all(
            taint.get("effect") == "PreferNoSchedule" or any(_bears(each, taint) for each in borne)
            for taint in taints
        )

    return bears


def bears(ask: PodAsk, taints: Iterable[Mapping[str, str]]) -> bool:
    """Whether the class's pod may be placed on this node, for its taints."""
    return bearing(ask)(taints)


def _all_of(*parts: Terms) -> Terms:
    return [[each for term in chosen for each in term] for chosen in product(*parts)]


def _layout(ask: PodAsk) -> Terms:
    """Keep whole cards, shares and slices that go by one resource name apart."""
    if ask.kind is AskKind.SHARED and ask.sharing is not Sharing.ANY:
        return [[condition(SHARING, "In", ask.sharing.value)]]
    if ask.kind is AskKind.DEVICE_PLUGIN:
        # A node without the label is one without feature discovery: NotIn lets it through.
        shared = (Sharing.MPS.value, Sharing.TIME_SLICING.value)
        return [[condition(SHARING, "NotIn", *shared)]]
    if ask.kind is AskKind.MIG and ask.strategy is MIGStrategy.SINGLE:
        return [[condition(MIG_STRATEGY, "In", "single")]]
    return [[]]


def _memory(where: Where) -> list[Condition]:
    mib = 2**20
    found = []
    if where.memory_min:
        found.append(condition(MEMORY, "Gt", str(math.ceil(where.memory_min / mib) - 1)))
    if where.memory_max:
        found.append(condition(MEMORY, "Lt", str(where.memory_max // mib + 1)))
    return found


def _products(ask: PodAsk) -> list[Condition]:
    names = [name.replace(" ", "-") for name in ask.where.products]
    if not names:
        return []
    if ask.kind is AskKind.SHARED:
        # Feature discovery adds the suffix unless the plugin renames the resource.
        names = [each for name in names for each in (name, f"{name}-SHARED")]
    elif ask.kind is AskKind.MIG and ask.strategy is MIGStrategy.SINGLE and ask.profile:
        names = [f"{name}-MIG-{ask.profile}" for name in names]
    return [condition(PRODUCT, "In", *names)]


def _at_least(version: str) -> Terms:
    if not version:
        return [[]]
    major, minor = version.split(".")
    above = [condition(COMPUTE_MAJOR, "Gt", str(int(major)))]
    if int(minor) == 0:  # the usual case reads better: 8.0 is "major over 7"
        return [[condition(COMPUTE_MAJOR, "Gt", str(int(major) - 1))]]
    same = condition(COMPUTE_MAJOR, "In", str(int(major)))
    return [above, [same, condition(COMPUTE_MINOR, "Gt", str(int(minor) - 1))]]


def _at_most(version: str) -> Terms:
    if not version:
        return [[]]
    major, minor = version.split(".")
    same = condition(COMPUTE_MAJOR, "In", str(int(major)))
    return [
        [condition(COMPUTE_MAJOR, "Lt", str(int(major)))],
        [same, condition(COMPUTE_MINOR, "Lt", str(int(minor) + 1))],
    ]


def _toleration(toleration: Toleration) -> dict[str, str]:
    found = {"key": toleration.key, "operator": "Equal" if toleration.value else "Exists"}
    if toleration.value:
        found["value"] = toleration.value
    return found | ({"effect": toleration.effect} if toleration.effect else {})


def _bears(toleration: Mapping[str, str], taint: Mapping[str, str]) -> bool:
    if toleration["key"] != taint.get("key"):
        return False
    if toleration.get("effect") not in (None, taint.get("effect")):
        return False
    return toleration["operator"] == "Exists" or toleration["value"] == taint.get("value", "")


def _holds(wanted: Condition, node_labels: Mapping[str, str]) -> bool:
    value = node_labels.get(wanted["key"])
    values: Sequence[str] = wanted.get("values", ())
    match wanted["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return _whole(value) is not None and (_whole(value) or 0) > int(values[0])
        case "Lt":
            return _whole(value) is not None and (_whole(value) or 0) < int(values[0])
        case other:
            raise ValueError(f"no such operator: {other}")


def _whole(value: str | None) -> int | None:
    try:
        return int(value) if value is not None else None
    except ValueError:
        return None  # the scheduler does not match what is no number
