"""Notebook servers on kwok's nodes: their pods, their events channels, and their asks."""

import asyncio
import json
import secrets
import time
from collections.abc import Sequence, Set
from http import HTTPStatus
from typing import Any

import aiohttp

from gpulease.channel.timing import BackOff
from gpulease.protocol import labels
from testcluster.api import ApiError, Object
from testcluster.images import GPULEASE_IMAGE
from testcluster.kwok import LABEL, TAINT
from testcluster.many.kube import Kube
from testcluster.pods import pod
from tests.service.kit import Hub

#: Asks under way at once: a class that begins is no more.
ASKS_AT_ONCE = 32
#: Selects the servers' pods.
SERVERS = "test=many"


def user_names(number: int) -> list[str]:
    """Return names that nobody else has: an earlier crowd's pods may still be on their way out."""
    mark = secrets.token_hex(3)
    return [f"u{mark}-{each:03d}" for each in range(number)]


def server_pod(namespace: str, user: str) -> Object:
    """Return the pod of a user's server, as the spawner makes it as far as anybody reads it."""
    made = pod(
        namespace, f"jupyter-{user}", node=LABEL, tolerations=[{"operator": "Equal", **TAINT}]
    )
    made["metadata"]["annotations"] = {labels.USER: user, labels.SERVER: ""}
    made["metadata"]["labels"] = {
        labels.INSTANCE: labels.label_value(labels.APP),
        "test": SERVERS.partition("=")[2],
    }
    made["spec"]["containers"][0] |= {"name": "notebook", "image": GPULEASE_IMAGE}
    return made


async def create_servers(kube: Kube, namespace: str, users: Sequence[str], seconds: float) -> None:
    """Create the users' server pods; return when kwok calls them all running."""
    await asyncio.gather(*(kube.create(server_pod(namespace, user)) for user in users))
    names = {f"jupyter-{user}" for user in users}
    await until_running(kube, namespace, SERVERS, names, seconds)


async def until_running(
    kube: Kube, namespace: str, selector: str, names: Set[str], seconds: float
) -> None:
    """Wait until all these pods run, as kwok says."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    running: set[str] = set()
    async with asyncio.timeout(seconds):
        async for _, seen in kube.follow(path, labelSelector=selector):
            if seen["status"].get("phase") == "Running":
                running.add(seen["metadata"]["name"])
            if running >= names:
                return


async def delete_all(kube: Kube, namespace: str, *selectors: str) -> None:
    """Delete all pods of a kind at once: kwok may end before they do.

    Nothing runs in these pods, so they need no time to end.  The server gives up after a minute of
    it, whatever is left.
    """
    path = f"/api/v1/namespaces/{namespace}/pods"
    at_once = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    for selector in selectors:
        while True:
            try:
                await kube.request("DELETE", path, at_once, labelSelector=selector)
            except ApiError as error:
                if error.status != HTTPStatus.GATEWAY_TIMEOUT:
                    raise
            else:
                break


class Notebooks:
    """The notebooks of some users at the service's public address."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, hub: Hub, users: Sequence[str]
    ) -> None:
        self._session = session
        self._url = url
        self.hub = hub
        self._tokens = {user: hub.server_token(user) for user in users}
        for user in users:
            hub.user(user, "")
        #: When each lease was asked for, by lease.
        self.asked: dict[str, float] = {}

    async def ask_all(self) -> None:
        """Ask for one GPU for each user."""
        gate = asyncio.Semaphore(ASKS_AT_ONCE)

        async def ask(user: str) -> None:
            async with gate:
                began = time.monotonic()
                lease = await self._ask(user)
                self.asked[lease["id"]] = began

        await asyncio.gather(*(ask(user) for user in self._tokens))

    async def _ask(self, user: str) -> Any:
        """Ask as a notebook does: the same ask again while somebody does not answer."""
        headers = {
            "Authorization": f"token {self._tokens[user]}",
            "Idempotency-Key": secrets.token_hex(8),
        }
        while True:
            try:
                async with self._session.post(
                    f"{self._url}api/leases", json={"origin": "magic"}, headers=headers
                ) as answer:
                    document = await answer.json(content_type=None)
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.5)
                continue
            if answer.status < 400:
                return document
            if answer.status < 500:
                raise ApiError(answer.status, document)
            await asyncio.sleep(0.5)

    async def listen(self) -> None:
        """Hold every server's events channel, and come back after a loss, until cancelled."""
        await asyncio.gather(*(self._listen(user) for user in self._tokens))

    async def _listen(self, user: str) -> None:
        headers = {"Authorization": f"token {self._tokens[user]}"}
        pauses = BackOff()  # as a notebook server's own
        while True:
            try:
                async with self._session.ws_connect(
                    f"{self._url}api/events", headers=headers, heartbeat=20.0, max_msg_size=0
                ) as socket:
                    async for message in socket:
                        if message.type is not aiohttp.WSMsgType.TEXT:
                            break
                        pauses.worked()
            except (aiohttp.ClientError, OSError):
                pass  # the service is away
            await asyncio.sleep(pauses.pause())


class AdminPage:
    """What an admin's open page receives."""

    def __init__(self, session: aiohttp.ClientSession, url: str, hub: Hub) -> None:
        self._session = session
        self._url = url
        self._headers = {"Authorization": f"token {hub.admin_token()}"}
        self.events, self.event_bytes = 0, 0
        self.states: dict[str, str] = {}
        self.leases: dict[str, dict[str, Any]] = {}

    def count(self, state: str) -> int:
        """Return how many leases are in a state, as far as the page knows."""
        return sum(each == state for each in self.states.values())

    async def listen(self) -> None:
        """Follow all leases until cancelled."""
        while True:
            try:
                async with self._session.ws_connect(
                    f"{self._url}api/events", headers=self._headers, max_msg_size=0
                ) as socket:
                    async for message in socket:
                        if message.type is aiohttp.WSMsgType.TEXT:
                            self._take(message.data)
            except (aiohttp.ClientError, OSError):
                pass  # the service is away
            await asyncio.sleep(0.2)

    async def get(self, path: str) -> Any:
        async with self._session.get(f"{self._url}{path}", headers=self._headers) as answer:
            return await answer.json(content_type=None)

    async def put(self, path: str, body: Any) -> Any:
        async with self._session.put(
            f"{self._url}{path}", json=body, headers=self._headers
        ) as answer:
            document = await answer.json(content_type=None)
            if answer.status >= 400:
                raise ApiError(answer.status, document)
            return document

    def _take(self, text: str) -> None:
        self.events += 1
        self.event_bytes += len(text)
        message = json.loads(text)
        if message["type"] == "snapshot":
            self.leases, self.states = {}, {}
        for lease in message.get("leases", [message["lease"]] if "lease" in message else []):
            self.leases[lease["id"]] = lease
            self.states[lease["id"]] = lease["state"]
