"""The network policy between the pods of one lease, and what any NetworkPolicy lets through.

The shipped policies keep lease pods apart.  A policy has no words for "the same lease as mine", so
each lease of several pods brings its own, before the pods that need it; it goes with the lease's
first pod.  What policies demand is read from their form (selectors, peers and ports of
``networking.k8s.io/v1``); whether a network enforces them only traffic shows.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from gpulease.policy.model import Lease
from gpulease.protocol import labels
from gpulease.providers.kubernetes.api.client import (
    NETWORK_POLICIES,
    PODS,
    ClientError,
    ConflictError,
    KubernetesAPI,
    Manifest,
    is_pattern,
    may,
)
from gpulease.providers.kubernetes.manifests.manifest import owned_by
from gpulease.system.background import keep_polling

log = logging.getLogger(__name__)

#: What an admin sets so that the service may make such policies.
SWITCH: Final = "severalNodes.enabled of gpulease's chart"
#: Seconds between two looks: rights are given and taken without a word.
_EVERY: Final = 30.0
#: By these a pod is one of the very attempt.
_MARKS: Final = (labels.NAME, labels.COMPONENT, labels.INSTANCE, labels.LEASE, labels.ATTEMPT)


def between(first: Mapping[str, Any]) -> Manifest:
    """Return the policy that lets the pods of a lease's attempt talk to each other.

    Args:
        first: the attempt's first pod as the API server gives it.
    """
    metadata = first["metadata"]
    marks = {name: str(metadata["labels"][name]) for name in _MARKS}
    peers = [{"podSelector": {"matchLabels": marks}}]
    # The hub copies what bears our component label; this is of no other namespace.
    own = {name: value for name, value in marks.items() if name != labels.COMPONENT}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": own | {labels.MANAGED_BY: labels.APP},
            "ownerReferences": [owned_by(first)],
        },
        "spec": {
            "podSelector": {"matchLabels": marks},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": peers}],
            "egress": [{"to": peers}],
        },
    }


class PodNetwork:
    """Makes such policies.

    Args:
        namespaces: of notebook servers, by name or pattern.
    """

    def __init__(self, client: KubernetesAPI, namespaces: Sequence[str]) -> None:
        self._client = client
        # Which namespaces a pattern will mean nobody knows: the right is needed in all.
        wide = any(is_pattern(each) for each in namespaces)
        self._namespaces = [""] if wide else sorted(set(namespaces))
        self.possible = False

    async def run(self) -> None:
        """Look, until cancelled."""
        await keep_polling(
            self.look,
            asyncio.Event(),
            every=_EVERY,
            log=log,
            failed="whether a lease may have several pods is not known",
            away=(ClientError,),
        )

    async def look(self) -> None:
        """Ask whether the service may make them; ``possible`` is what it heard last.

        Raises:
            ClientError: the API server does not answer.
        """
        possible = all([await may_make(self._client, each) for each in self._namespaces])
        if possible != self.possible:
            log.info("a lease may %s several pods", "have" if possible else "no longer have")
        self.possible = possible

    async def open(self, lease: Lease, namespace: str) -> None:
        """Let the pods of an attempt talk to each other; the first one is there already.

        Raises:
            ClientError: the API server refuses or does not answer.
        """
        name = labels.lease_pod_name(lease.id, lease.attempt)
        first = await self._client.get(PODS, name, namespace)
        try:
            await self._client.create(NETWORK_POLICIES, between(first), namespace)
        except ConflictError:
            return  # its answer was lost, or an earlier service made it


async def may_make(client: KubernetesAPI, namespace: str) -> bool:
    """Whether this account may make network policies in a namespace ("" is everywhere).

    Raises:
        ClientError: the API server does not answer.
    """
    return await may(client, "create", NETWORK_POLICIES.group, "networkpolicies", namespace)


async def refused(client: KubernetesAPI, namespace: str, instance: str) -> str:
    """Return what is wrong with the bounds of such policies, "" where they are kept; a dry run.

    Raises:
        UnavailableError: the API server does not answer.
    """
    marks = dict.fromkeys(_MARKS, "probe") | {
        labels.NAME: labels.APP,
        labels.COMPONENT: labels.LEASE_COMPONENT,
        labels.INSTANCE: labels.label_value(instance),
    }
    metadata = {"name": "gpulease-probe", "namespace": namespace, "labels": marks, "uid": "probe"}
    right = between({"metadata": metadata})
    wide: Manifest = {**right, "spec": {**right["spec"], "podSelector": {}}}
    if said := await _dry_run(client, right, namespace):
        return f"it is not let make one: {said}"
    if not await _dry_run(client, wide, namespace):
        return "it may make any network policy, for any pod"
    return ""


async def _dry_run(client: KubernetesAPI, body: Manifest, namespace: str) -> str:
    try:
        await client.create(NETWORK_POLICIES, body, namespace, dry_run=True)
    except ConflictError:
        return ""
    except ClientError as error:
        if not error.status or error.status >= 500:
            raise
        return error.message
    return ""


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
