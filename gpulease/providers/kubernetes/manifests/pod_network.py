"""The network policy between the pods of one lease, which no policy made ahead can say.

Owns its form, that it comes before the pods that need it, and whether the service may make it.  The
shipped policies keep lease pods apart; a policy has no words for "the same lease as mine", so each
lease of several pods brings its own.  It goes with its lease's first pod.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpulease import labels
from gpulease.looking import keep_looking
from gpulease.policy.model import Lease
from gpulease.providers.kubernetes.api.client import (
    NETWORK_POLICIES,
    PODS,
    Client,
    ClientError,
    ConflictError,
    Manifest,
)
from gpulease.providers.kubernetes.api.namespaces import is_pattern
from gpulease.providers.kubernetes.api.rights import may
from gpulease.providers.kubernetes.manifests.describe import owned_by

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

    def __init__(self, client: Client, namespaces: Sequence[str]) -> None:
        self._client = client
        # Which namespaces a pattern will mean nobody knows: the right is needed in all.
        wide = any(is_pattern(each) for each in namespaces)
        self._namespaces = [""] if wide else sorted(set(namespaces))
        self.possible = False

    async def run(self) -> None:
        """Look, until cancelled."""
        await keep_looking(
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


async def may_make(client: Client, namespace: str) -> bool:
    """Whether this account may make network policies in a namespace ("" is everywhere).

    Raises:
        ClientError: the API server does not answer.
    """
    return await may(client, "create", NETWORK_POLICIES.group, "networkpolicies", namespace)


async def refused(client: Client, namespace: str, instance: str) -> str:
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


async def _dry_run(client: Client, body: Manifest, namespace: str) -> str:
    try:
        await client.create(NETWORK_POLICIES, body, namespace, dry_run=True)
    except ConflictError:
        return ""
    except ClientError as error:
        if not error.status or error.status >= 500:
            raise
        return error.message
    return ""
