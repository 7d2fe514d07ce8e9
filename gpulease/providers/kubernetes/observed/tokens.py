"""Whose projected token it is: a lease's pod, a node's agent, or nobody's.

What the API server says of a token is compared with the pods that exist.  A token proves one
particular pod, by its UID, and so one attempt of one lease.  Tokens are not stored.
"""

from __future__ import annotations

import re
from typing import Final

from gpulease.policy.model import Lease
from gpulease.providers.kubernetes.api.client import (
    PODS,
    KubernetesAPI,
    Manifest,
    NotFoundError,
    TokenIdentity,
)
from gpulease.providers.kubernetes.observed import pods
from gpulease.providers.kubernetes.observed.cluster import Cluster
from gpulease.providers.kubernetes.observed.pods import Part
from gpulease.system.token_turns import TokenTurns

#: For whom a token is projected: for the lease service, and nobody else.
AUDIENCE: Final = "gpulease"
#: Questions about tokens under way at once; those recognised before have turns of their own.
_STRANGERS, _OF_KNOWN = 8, 4
#: The form of every projected token: three parts in base64url.
_TOKEN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


class Tokens:
    """Asks the API server; every method raises ``ClientError`` while it does not answer.

    Args:
        account: name of the service account of lease pods, in whichever namespace.
        agents: namespace and service account of the node agents.
    """

    def __init__(
        self, client: KubernetesAPI, cluster: Cluster, account: str, agents: tuple[str, str]
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._account = account
        self._agents = agents
        self._turns = TokenTurns(_STRANGERS, _OF_KNOWN)

    async def pod_of(self, token: str) -> Manifest | None:
        """Return the pod whose token it is, ``None`` where it is none of this service's."""
        who = await self._review(token)
        if who is None or not who.pod_uid or who.service_account[1] != self._account:
            return None
        if not self._cluster.is_servers(who.service_account[0]):
            return None  # anybody may call an account so in a namespace of their own
        pod = await self._pod(who)
        return pod if pod is not None and pods.is_ours(pod, self._cluster.instance) else None

    async def rank_of(self, lease: Lease, token: str) -> int | None:
        """Return the rank of the pod of this very attempt whose token it is, else ``None``."""
        pod = await self.pod_of(token)
        if pod is None or not pods.is_lease(pod, self._cluster.instance):
            return None
        use = pods.use_of(pod, self._cluster.instance)
        return use.rank if use.part == Part(lease.id, lease.attempt, use.rank) else None

    async def node_of(self, token: str) -> str | None:
        """Return the node that an agent's token is bound to, by itself or by its pod."""
        who = await self._review(token)
        if who is None or who.service_account != self._agents:
            return None
        if who.node:
            return who.node
        pod = await self._pod(who)
        return str(pod["spec"].get("nodeName", "")) or None if pod is not None else None

    async def _review(self, token: str) -> TokenIdentity | None:
        """Ask whose token it is; what cannot be one bothers nobody."""
        if _TOKEN.fullmatch(token) is None:
            return None
        return await self._turns.ask(token, lambda: self._client.review(token, AUDIENCE))

    async def _pod(self, who: TokenIdentity) -> Manifest | None:
        """Return the very pod of a token; our copy may not show a new one yet."""
        key = (who.service_account[0], who.pod)
        pod = self._cluster.pod(key)
        if pod is None or pod["metadata"].get("uid") != who.pod_uid:
            try:
                pod = await self._client.get(PODS, who.pod, key[0])
            except NotFoundError:
                return None
        return pod if pod["metadata"].get("uid") == who.pod_uid else None
