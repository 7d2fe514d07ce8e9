"""The client that follows hundreds of pods: what it must not miss, on the real API server."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import aiohttp
import pytest

from testcluster.api import Object
from testcluster.cluster import Cluster
from testcluster.many.kube import Kube, kube

pytestmark = pytest.mark.cluster


def thing(namespace: str, name: str) -> Object:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


class Interrupted(Kube):
    """Its first watch ends at once, with these words; an object goes before anybody looks again."""

    words: tuple[str, Object] | Exception | None = None
    gone = ""
    watches = 0

    async def watch(
        self, path: str, since: str, **query: str
    ) -> AsyncGenerator[tuple[str, Object]]:
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
        async with kube(cluster.api, Interrupted) as pool:
            pool.words, pool.gone = words, "a"
            await pool.create(thing(namespace, "a"))
            path = f"/api/v1/namespaces/{namespace}/configmaps"
            async with asyncio.timeout(60), aclosing(pool.follow(path)) as events:
                async for kind, seen in events:
                    if kind == "DELETED":
                        return [kind, seen["metadata"]["name"]]
        raise AssertionError("a watch for ever ended")

    assert asyncio.run(told()) == ["DELETED", "a"]


def test_a_watch_from_any_version_is_served(cluster: Cluster, namespace: str) -> None:
    """kwok's watches are such; where they are refused it lists now and then, later and later."""

    async def first() -> str:
        async with kube(cluster.api, Kube) as pool:
            await pool.create(thing(namespace, "a"))
            path = f"/api/v1/namespaces/{namespace}/configmaps"
            watch = pool.watch(path, "0", allowWatchBookmarks="true")
            async with asyncio.timeout(60), aclosing(watch) as events:
                async for kind, _ in events:
                    return kind
        raise AssertionError("the watch ended without a word")

    assert asyncio.run(first()) == "ADDED"
