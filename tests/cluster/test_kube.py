"""The client that follows hundreds of pods: what it must not miss, on the real API server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import TypeVar

import aiohttp
import pytest

pytest.importorskip("kubernetes")

from gpulease.providers.kubernetes.connections import Connector
from testcluster.api import Object
from testcluster.cluster import Cluster
from testcluster.many.kube import Kube

pytestmark = pytest.mark.cluster

K = TypeVar("K", bound=Kube)


@asynccontextmanager
async def connected(cluster: Cluster, kind: type[K]) -> AsyncIterator[K]:
    """Open a client whose connections have really ended with the block."""
    connector = Connector(ssl=cluster.api.tls)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield kind(session, cluster.api.url)
        await connector.end()


def thing(namespace: str, name: str) -> Object:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


class Interrupted(Kube):
    """Its first watch ends at once, with these words; an object goes before anybody looks again."""

    words: tuple[str, Object] | Exception | None = None
    gone = ""
    watches = 0

    async def watch(self, path: str, since: str, **query: str) -> AsyncIterator[tuple[str, Object]]:
        self.watches += 1
        if self.watches == 1:
            await self.request("DELETE", f"{path}/{self.gone}")
            if isinstance(self.words, Exception):
                raise self.words
            if self.words is not None:
                yield self.words
            return
        async for event in super().watch(path, since, **query):
            yield event


WORDS = {
    "ended": None,
    "too old": ("ERROR", {"code": 410}),
    "cut": aiohttp.ClientPayloadError("the server went away"),
}


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_what_goes_while_nobody_watches_is_told(
    cluster: Cluster, namespace: str, words: tuple[str, Object] | Exception | None
) -> None:
    async def told() -> list[str]:
        async with connected(cluster, Interrupted) as kube:
            kube.words, kube.gone = words, "a"
            await kube.create(thing(namespace, "a"))
            path = f"/api/v1/namespaces/{namespace}/configmaps"
            async with asyncio.timeout(60), aclosing(kube.follow(path)) as events:
                async for kind, seen in events:
                    if kind == "DELETED":
                        return [kind, seen["metadata"]["name"]]
        raise AssertionError("a watch for ever ended")

    assert asyncio.run(told()) == ["DELETED", "a"]


def test_a_watch_from_any_version_is_served(cluster: Cluster, namespace: str) -> None:
    """kwok's watches are such; where they are refused it lists now and then, later and later."""

    async def first() -> str:
        async with connected(cluster, Kube) as kube:
            await kube.create(thing(namespace, "a"))
            path = f"/api/v1/namespaces/{namespace}/configmaps"
            watch = kube.watch(path, "0", allowWatchBookmarks="true")
            async with asyncio.timeout(60), aclosing(watch) as events:
                async for kind, _ in events:
                    return kind
        raise AssertionError("the watch ended without a word")

    assert asyncio.run(first()) == "ADDED"
