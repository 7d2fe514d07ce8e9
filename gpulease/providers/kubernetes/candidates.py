"""The nodes on which a lease pod could run, before it exists.

Owns the question for the decision about its files: which nodes have what the class asks for and
take its pod.  Refuses to know what is free there.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpulease.policy.pods import PodAsk, resource_of
from gpulease.providers.kubernetes.asks_nodes import bears, fits
from gpulease.providers.kubernetes.client import Manifest
from gpulease.providers.kubernetes.pods import amount_of
from gpulease.providers.kubernetes.slots import lost, taints_of
from gpulease.providers.kubernetes.volumes import KnownNode


def candidates(
    nodes: Iterable[Manifest], ask: PodAsk, granted: str, instance: str
) -> list[KnownNode]:
    """Return the nodes that have the ask's resource and whose labels and taints let its pod in.

    Args:
        nodes: all nodes of the cluster.
        ask: the class's.
        granted: the node of the granted devices; of a claim's nodes only this one is known.
        instance: whose nodes count.
    """
    resource = resource_of(ask)
    return [
        place(node)
        for node in nodes
        if not lost(node)
        and (node["metadata"]["name"] == granted or _amount(node, resource) > 0)
        and fits(ask, _labels(node), instance)
        and bears(ask, taints_of(node))
    ]


def place(node: Manifest) -> KnownNode:
    """Return a node's name and labels."""
    return KnownNode(str(node["metadata"]["name"]), _labels(node))


def _amount(node: Manifest, resource: str) -> int:
    there = (node.get("status") or {}).get("allocatable") or {}
    return amount_of(there.get(resource, "0"))


def _labels(node: Manifest) -> dict[str, str]:
    return dict((node.get("metadata") or {}).get("labels") or {})
