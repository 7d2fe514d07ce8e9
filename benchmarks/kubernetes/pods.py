"""Sees pods come and go, as the API server tells them, with the time each step was seen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from gpulease.providers.kubernetes.api.client import PODS, Manifest
from gpulease.providers.kubernetes.api.official import OfficialClient
from testcluster.cluster import Cluster

PATIENCE = 120.0
#: A watch that ends goes on where it stood; nothing is missed.
_WATCH_SECONDS = 300


@dataclass
class Steps:
    """When (``time.perf_counter``) each step of one pod was seen first.

    ``created``, ``scheduled``, ``running`` (or over already), ``over``, ``deleting``, ``gone``.
    """

    pod: Manifest
    at: dict[str, float] = field(default_factory=dict)


class Pods:
    """Every pod of a cluster, from now on."""

    def __init__(self) -> None:
        self.steps: dict[str, Steps] = {}  # by UID
        self._news = asyncio.Condition()

    @classmethod
    @asynccontextmanager
    async def of(cls, cluster: Cluster) -> AsyncIterator[Pods]:
        """Follow the pods of a cluster."""
        pods, client = cls(), OfficialClient(str(cluster.layout.kubeconfig))
        since = (await client.list_all(PODS)).version
        reader = asyncio.create_task(pods._read(client, since))
        try:
            yield pods
        finally:
            failed = reader.exception() if reader.done() and not reader.cancelled() else None
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
            await client.close()
            if failed is not None:
                raise failed

    async def until(self, name: str, step: str, seconds: float = PATIENCE) -> float:
        """Wait until the newest pod of this name has come to a step; return when it did."""

        def there() -> bool:
            found = self.newest(name)
            return found is not None and step in found.at

        async with asyncio.timeout(seconds), self._news:
            await self._news.wait_for(there)
        found = self.newest(name)
        assert found is not None
        return found.at[step]

    def newest(self, name: str) -> Steps | None:
        """Return the newest pod of this name."""
        found = [each for each in self.steps.values() if each.pod["metadata"]["name"] == name]
        return found[-1] if found else None

    async def _read(self, client: OfficialClient, since: str) -> None:
        while True:
            async for event in client.watch(PODS, since=since, seconds=_WATCH_SECONDS):
                since = event.version or since
                if event.kind in ("ADDED", "MODIFIED", "DELETED"):
                    await self._take(event.kind, event.object, time.perf_counter())

    async def _take(self, kind: str, pod: Manifest, now: float) -> None:
        async with self._news:
            known = self.steps.setdefault(pod["metadata"]["uid"], Steps(pod))
            known.pod = pod
            for step in steps_of(kind, pod):
                known.at.setdefault(step, now)
            self._news.notify_all()


def steps_of(kind: str, pod: Manifest) -> Iterator[str]:
    """Yield the steps that a pod has come to, as one event of a watch shows it."""
    status = pod.get("status") or {}
    yield "created"
    if pod["spec"].get("nodeName"):
        yield "scheduled"
    if status.get("phase") in ("Running", "Succeeded", "Failed"):
        yield "running"
    if status.get("phase") in ("Succeeded", "Failed"):
        yield "over"
    if pod["metadata"].get("deletionTimestamp"):
        yield "deleting"
    if kind == "DELETED":
        yield "gone"
