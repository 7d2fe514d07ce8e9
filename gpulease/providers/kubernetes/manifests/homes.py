"""Which notebook servers have a home that a lease can mount on the server's own node alone.

Owns one look at the home's claim for each server's pod, as soon as the pod has a place, so that the
answer is there before anybody asks for a GPU; only where it matters, on nodes with GPUs.  Refuses
to decide about files (``volumes``).
"""

from __future__ import annotations

import asyncio
import logging

from gpulease.providers.kubernetes.api.client import CLAIMS, Client, ClientError, Manifest
from gpulease.providers.kubernetes.api.watch import key_of
from gpulease.providers.kubernetes.asks.volumes import home_claim, is_for_one_node
from gpulease.providers.kubernetes.manifests.manifest import notebook_container
from gpulease.providers.kubernetes.observed.index import PodIndex

log = logging.getLogger(__name__)

#: Claims that are looked at at once.
_AT_ONCE = 4
#: Seconds until a look that failed is made again, if it is still asked for.
_AGAIN = 5.0


class Homes:
    """The homes of the servers' pods.

    Args:
        client: reaches the API server.
        index: the pods that are there.
        home: the path of the student's home in the servers.
    """

    def __init__(self, client: Client, index: PodIndex, home: str) -> None:
        self._client = client
        self._index = index
        self._home = home
        self._nodes: frozenset[str] = frozenset()
        self._tied: dict[str, bool] = {}  # by the UID of the server's pod
        self._looks: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)

    def offered(self, nodes: frozenset[str]) -> None:
        """Take which nodes have GPUs: homes of servers elsewhere are not looked at."""
        if nodes != self._nodes:
            self._nodes = nodes
            for server in self._index.all_servers():
                self._learn(server)

    def changed(self, before: Manifest | None, after: Manifest | None) -> None:
        """Take a change of a server's pod: ``None`` is no pod."""
        if after is not None:
            self._learn(after)
        elif before is not None:
            self._forget(_uid(before))

    def preferred_node(self, server: Manifest | None) -> str:
        """Return the node on which alone this server's home can be mounted, "" for any.

        It is "" too for a node without GPUs, while the claim is not known, and without a server.
        """
        if server is None:
            return ""
        self._learn(server)
        return _node(server) if self._tied.get(_uid(server)) else ""

    def _learn(self, server: Manifest) -> None:
        uid = _uid(server)
        if _node(server) not in self._nodes or uid in self._tied or uid in self._looks:
            return
        claim = home_claim(server, notebook_container(server), self._home)
        if not claim:
            self._tied[uid] = False
            return
        task = asyncio.create_task(self._look(uid, claim, key_of(server)[0]), name=f"home {uid}")
        self._looks[uid] = task
        task.add_done_callback(lambda _: self._looks.pop(uid, None))

    def _forget(self, uid: str) -> None:
        self._tied.pop(uid, None)
        task = self._looks.get(uid)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Look no more."""
        looks = list(self._looks.values())
        for task in looks:
            task.cancel()
        await asyncio.gather(*looks, return_exceptions=True)

    async def _look(self, uid: str, name: str, namespace: str) -> None:
        async with self._slots:
            try:
                claim = await self._client.get(CLAIMS, name, namespace)
            except ClientError as error:
                # The lease may then land elsewhere, and its home is mirrored.
                log.info("claim %s/%s is not known: %s", namespace, name, error)
            else:
                self._tied[uid] = is_for_one_node(claim)
                return
        await asyncio.sleep(_AGAIN)


def _node(server: Manifest) -> str:
    return str(server["spec"].get("nodeName") or "")


def _uid(server: Manifest) -> str:
    return str(server["metadata"]["uid"])
