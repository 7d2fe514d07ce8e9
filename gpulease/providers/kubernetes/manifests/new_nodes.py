"""Lease pods that wait for a node to be added: they keep off the nodes that are there.

The module marks such a pod, says which slots of a new node are reserved for these pods, and reads
what the autoscaler says.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpulease.policy.model import Device
from gpulease.policy.pods import PodAsk
from gpulease.providers.kubernetes.api.client import Manifest
from gpulease.providers.kubernetes.observed.pods import Part
from gpulease.providers.kubernetes.observed.reasons import when_last, words_of
from gpulease.providers.kubernetes.pod_resources.nodes import Terms, condition, fitting

#: Autoscalers know a node that they may add by this label of its own.
HOSTNAME = "kubernetes.io/hostname"
#: Reasons of the events in which Cluster Autoscaler and Karpenter say what they make of a pod.
_AUTOSCALERS = frozenset(
    {"TriggeredScaleUp", "NotTriggerScaleUp", "FailedToScaleUpGroup", "Nominated"}
)


def hostname(node: Manifest) -> str:
    """Return a node's hostname by its label, its name without one."""
    meta = node["metadata"]
    return str((meta.get("labels") or {}).get(HOSTNAME) or meta["name"])


def there(nodes: Iterable[Manifest], ask: PodAsk, instance: str) -> tuple[str, ...]:
    """Return the hostnames of the nodes that serve a class or soon may."""
    fits = fitting(ask, instance)
    serving = [node for node in nodes if fits(node["metadata"].get("labels") or {})]
    return tuple(sorted(hostname(each) for each in serving))


def terms(avoided: Sequence[str]) -> Terms:
    """Return the condition under which a pod keeps off these nodes."""
    return [[condition(HOSTNAME, "NotIn", *avoided)]] if avoided else [[]]


def avoided(pod: Manifest) -> frozenset[str]:
    """Return the nodes that a pod keeps off, as its manifest says."""
    affinity = ((pod.get("spec") or {}).get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return frozenset(
        name
        for term in required.get("nodeSelectorTerms") or ()
        for each in term.get("matchExpressions") or ()
        if (each["key"], each["operator"]) == (HOSTNAME, "NotIn")
        for name in each["values"]
    )


def landings(
    waiting: Mapping[Part, tuple[str, int, frozenset[str]]],
    devices: Iterable[Device],
    nodes: Iterable[Manifest],
) -> dict[Part, tuple[str, ...]]:
    """Return the slots that pods which wait will take of nodes that have come, as far as is known.

    They are nobody else's, though the scheduler has not bound the pods to them yet.

    Args:
        waiting: class, number of devices and avoided nodes of each part.
        devices: as shown last.
        nodes: all nodes.
    """
    if not waiting:
        return {}
    hosts = {str(each["metadata"]["name"]): hostname(each) for each in nodes}
    own = {part.lease for part in waiting}
    free: dict[str, list[Device]] = {}
    for device in devices:
        good = device.healthy and not device.lost and not device.leaving
        if good and (device.occupied_by is None or device.occupied_by in own):
            free.setdefault(device.node, []).append(device)
    found: dict[Part, tuple[str, ...]] = {}
    for part, (gpu_class, count, keeps_off) in sorted(waiting.items()):
        for node, left in sorted(free.items()):
            if hosts.get(node, node) in keeps_off:
                continue
            mine = [d for d in left if d.serves is None or gpu_class in d.serves][:count]
            if len(mine) == count:
                free[node] = [each for each in left if each not in mine]
                found[part] = tuple(each.uuid for each in mine)
                break
    return found


def autoscaler(events: Sequence[Manifest]) -> str:
    """Return what an autoscaler said of a pod last, "" for nothing."""
    said = [each for each in events if each.get("reason") in _AUTOSCALERS]
    return words_of(max(said, key=when_last)) if said else ""
