"""The API server from an event loop: what hundreds of pods at once need and `Api` is too slow for.

It acts with all rights, as the cluster's own parts would (kwok's nodes have no kubelet to do it).
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import aiohttp

from gpulease.system.connector import Connector
from testcluster.api import Api, ApiError, Object, path_of, token_request

#: Calls that are under way at once.
AT_ONCE = 16
WATCH_SECONDS = 300
#: Seconds until a server that was away is asked again.
PAUSE = 0.5

K = TypeVar("K", bound="Kube")


class Kube:
    """One connection pool to the API server; made by `kube`."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def request(
        self, method: str, path: str, body: Object | None = None, **query: str
    ) -> Object:
        """Send one request; raises ApiError."""
        async with (
            self._gate,
            self._session.request(method, self._url + path, json=body, params=query) as answer,
        ):
            document: Object = await answer.json(content_type=None)
            if answer.status >= 400:
                raise ApiError(answer.status, document)
            return document

    async def create(self, document: Object) -> Object:
        return await self.request("POST", path_of(document, collection=True), document)

    async def token(self, pod: Object, account: str, audience: str) -> str:
        """Return what the kubelet would put into a pod: a token that is bound to it."""
        bound = {"apiVersion": "v1", "kind": "Pod"} | pod  # a list's items do not say so
        path, body = token_request(pod["metadata"]["namespace"], account, audience, bound)
        found = await self.request("POST", path, body)
        return str(found["status"]["token"])

    async def follow(self, path: str, **query: str) -> AsyncGenerator[tuple[str, Object]]:
        """Yield kind and object of all that is there and of each later change, for ever.

        What went while nobody watched is told, too.  A server that is away is waited for.
        """
        known: dict[str, Object] = {}
        since = ""
        while True:
            try:
                if not since:
                    listed = await self.request("GET", path, None, **query)
                    there = {item["metadata"]["uid"]: item for item in listed["items"]}
                    for uid in known.keys() - there.keys():
                        yield "DELETED", known.pop(uid)
                    for uid, item in there.items():
                        known[uid] = item
                        yield "ADDED", item
                    since = listed["metadata"]["resourceVersion"]
                async for kind, item in self.watch(path, since, **query):
                    if kind == "ERROR":  # the version is too old to go on from
                        since = ""
                        break
                    since = item["metadata"]["resourceVersion"]
                    if kind == "DELETED":
                        known.pop(item["metadata"]["uid"], None)
                    else:
                        known[item["metadata"]["uid"]] = item
                    yield kind, item
            except (aiohttp.ClientError, OSError):
                await asyncio.sleep(PAUSE)

    async def watch(
        self, path: str, since: str, **query: str
    ) -> AsyncGenerator[tuple[str, Object]]:
        """Yield kind and object of each change after a version, until the server ends the watch."""
        more = {"watch": "true", "resourceVersion": since, "timeoutSeconds": str(WATCH_SECONDS)}
        async with self._session.get(
            self._url + path, params={**more, **query}, timeout=aiohttp.ClientTimeout()
        ) as answer:
            async for line in answer.content:
                event = json.loads(line)
                refused = event.get("kind") == "Status"
                yield ("ERROR", event) if refused else (event["type"], event["object"])


@asynccontextmanager
async def kube(api: Api, kind: type[K]) -> AsyncIterator[K]:
    """Open a pool whose connections end with the block; the caller is in the cluster's network."""
    connector = Connector(ssl=api.tls, limit=0)
    try:
        async with aiohttp.ClientSession(connector=connector, read_bufsize=2**22) as session:
            yield kind(session, api.url)
    finally:
        await connector.end()
