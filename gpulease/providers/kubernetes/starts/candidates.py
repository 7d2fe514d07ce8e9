"""The nodes on which a lease pod could run, before it exists.

Owns the question for the decision about its files: which nodes have what the class asks for and
take its pod.  Refuses to know what is free there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from gpulease.policy.pods import PodAsk, resource_of
from gpulease.providers.kubernetes.api.client import Manifest
from gpulease.providers.kubernetes.asks.nodes import bearing, fitting
from gpulease.providers.kubernetes.asks.volumes import KnownNode
from gpulease.providers.kubernetes.observed.node_words import lost, taints_of
from gpulease.providers.kubernetes.observed.pods import amount_of

#: So many classes' asks are remembered; those that people narrow are without number.
_ASKS = 64


class Candidates:
    """Answers for one installation, and looks at a node again only once it has changed.

    Each start asks, of thousands of nodes.

    Args:
        instance: whose nodes count.
    """

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self._known: dict[PodAsk, dict[str, tuple[Manifest, _Verdict]]] = {}

    def of(self, nodes: Iterable[Manifest], ask: PodAsk, granted: str) -> list[KnownNode]:
        """Return the nodes that have the ask's resource and whose labels and taints let its pod in.

        Args:
            nodes: all nodes of the cluster.
            ask: the class's.
            granted: the node of the granted devices; of a claim's nodes only this one is known.
        """
        before = self._known.pop(ask, {})
        judged = _judging(ask, self._instance)
        after: dict[str, tuple[Manifest, _Verdict]] = {}
        for node in nodes:
            name = node["metadata"]["name"]
            known = before.get(name)
            after[name] = known if known is not None and known[0] is node else (node, judged(node))
        if len(self._known) >= _ASKS:
            self._known.pop(next(iter(self._known)))
        self._known[ask] = after  # the last that was asked for stands last
        return [
            verdict.place
            for name, (_, verdict) in after.items()
            if verdict.lets_in and (verdict.has or name == granted)
        ]


@dataclass(frozen=True, slots=True)
class _Verdict:
    place: KnownNode
    lets_in: bool
    has: bool  # the resource


def _judging(ask: PodAsk, instance: str) -> Callable[[Manifest], _Verdict]:
    resource, fits, bears = resource_of(ask), fitting(ask, instance), bearing(ask)

    def judged(node: Manifest) -> _Verdict:
        lets_in = not lost(node) and fits(_labels(node)) and bears(taints_of(node))
        return _Verdict(place(node), lets_in, _amount(node, resource) > 0)

    return judged


def place(node: Manifest) -> KnownNode:
    """Return a node's name and labels."""
    return KnownNode(str(node["metadata"]["name"]), dict(_labels(node)))


def _amount(node: Manifest, resource: str) -> int:
    there = (node.get("status") or {}).get("allocatable") or {}
    return amount_of(there.get(resource, "0"))


def _labels(node: Manifest) -> Mapping[str, str]:
    return (node.get("metadata") or {}).get("labels") or {}
