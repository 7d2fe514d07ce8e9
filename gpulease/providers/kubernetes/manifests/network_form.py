"""What NetworkPolicies let through, read from their form.

Owns the meaning of selectors, peers and ports of ``networking.k8s.io/v1``.  Pure.  It says what the
policies demand: whether a network enforces them, and whether it carries the traffic at all, only
traffic itself shows.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Policy = Mapping[str, Any]
Direction = Literal["Ingress", "Egress"]


@dataclass(frozen=True)
class End:
    """One end of a connection: a pod with its labels in its namespace, or an address outside.

    ``ports`` are the pod's ports by their names, where these are known.
    """

    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    ports: Mapping[str, int] = field(default_factory=dict)

    def where(self) -> Mapping[str, str]:
        """Return the labels of the end's namespace, with the one that each bears by itself."""
        return {"kubernetes.io/metadata.name": self.namespace, **self.namespace_labels}


def selecting(policies: Iterable[Policy], pod: End, direction: Direction) -> list[Policy]:
    """Return the policies of the pod's namespace that bound it in this direction."""
    return [
        each
        for each in policies
        if direction in _types(each["spec"])
        and matches(each["spec"].get("podSelector"), pod.labels)
    ]


def lets(
    policies: Iterable[Policy],
    pod: End,
    direction: Direction,
    other: End,
    port: tuple[int, str],
) -> bool:
    """Whether the policies of the pod's namespace let it reach (or be reached by) the other end.

    A pod that no policy selects is not bounded.  ``port``: number and protocol.
    """
    bounding = selecting(policies, pod, direction)
    if not bounding:
        return True
    rules, peers = ("egress", "to") if direction == "Egress" else ("ingress", "from")
    names = (other if direction == "Egress" else pod).ports
    return any(
        _port_fits(rule.get("ports"), *port, names) and _peer_fits(rule.get(peers), pod, other)
        for each in bounding
        for rule in each["spec"].get(rules) or ()
    )


def matches(selector: Mapping[str, Any] | None, marks: Mapping[str, str]) -> bool:
    """Whether a label selector takes these labels; an empty one takes all, none takes none."""
    if selector is None:
        return False
    plain = selector.get("matchLabels") or {}
    if any(marks.get(key) != value for key, value in plain.items()):
        return False
    return all(_holds(each, marks) for each in selector.get("matchExpressions") or ())


def _holds(expression: Mapping[str, Any], marks: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    return bool(
        {
            "In": marks.get(key) in values,
            "NotIn": marks.get(key) not in values,
            "Exists": key in marks,
            "DoesNotExist": key not in marks,
        }[expression["operator"]]
    )


def _types(spec: Mapping[str, Any]) -> Sequence[str]:
    return spec.get("policyTypes") or ["Ingress", *(["Egress"] if spec.get("egress") else [])]


def _port_fits(
    ports: Sequence[Mapping[str, Any]] | None, port: int, protocol: str, names: Mapping[str, int]
) -> bool:
    if not ports:
        return True
    for each in ports:
        if each.get("protocol", "TCP") != protocol:
            continue
        first = each.get("port")
        if isinstance(first, str):
            # A named port is the pod's to say; unknown, it is taken for the one that is meant.
            first = names.get(first, port)
        if first is None:
            return True
        if first <= port <= each.get("endPort", first):
            return True
    return False


def _peer_fits(peers: Sequence[Mapping[str, Any]] | None, pod: End, other: End) -> bool:
    return not peers or any(_is(peer, pod, other) for peer in peers)


def _is(peer: Mapping[str, Any], pod: End, other: End) -> bool:
    block = peer.get("ipBlock")
    if block is not None:
        return bool(other.address) and _inside(block, other.address)
    if not other.namespace:
        return False
    if "namespaceSelector" in peer:
        there = matches(peer["namespaceSelector"], other.where())
    else:
        there = pod.namespace == other.namespace
    return there and ("podSelector" not in peer or matches(peer["podSelector"], other.labels))


def _inside(block: Mapping[str, Any], address: str) -> bool:
    at = ipaddress.ip_address(address)

    def holds(cidr: str) -> bool:
        network = ipaddress.ip_network(cidr, strict=False)
        return network.version == at.version and at in network

    return holds(block["cidr"]) and not any(holds(each) for each in block.get("except") or ())
