"""Speaks for the companions of all lease pods, each by a websocket of its own.

A supervisor says hello with the pod's own token, sends a sample for each second in batches, answers
each key and drain, and says goodbye at the end; after a loss it reconnects.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import aiohttp

from gpulease.channel.timing import BackOff
from gpulease.companion.supervisor import BATCH_SECONDS, SAMPLE_SECONDS
from gpulease.protocol import labels
from gpulease.protocol.names import PROTOCOL_VERSION
from testcluster.api import ApiError, Object
from testcluster.many.kube import Kube
from tests.service.kit import z85_key

#: Seconds beyond a pod's grace after which it is ended in place of kwok, which forgets some.
_FORGOTTEN = 20.0


@dataclass
class Life:
    """One lease pod as it was seen; times are `time.monotonic`'s."""

    lease: str
    pod: Object
    running: float = 0.0
    registered: float = 0.0
    gone: float = 0.0
    connected: bool = False


@dataclass
class Companions:
    """All lease pods of a namespace, by UID."""

    kube: Kube
    session: aiohttp.ClientSession
    url: str
    namespace: str
    lives: dict[str, Life] = field(default_factory=dict)
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    endings: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    @property
    def present(self) -> list[Life]:
        """The lease pods that are there."""
        return [life for life in self.lives.values() if not life.gone]

    @property
    def connected(self) -> int:
        return sum(life.connected for life in self.lives.values())

    async def watch(self) -> None:
        """Start a companion in each lease pod that runs, until cancelled."""
        selector = labels.lease_selector(labels.APP)
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        async for kind, pod in self.kube.follow(path, labelSelector=selector):
            uid = pod["metadata"]["uid"]
            known = self.lives.setdefault(uid, Life(pod["metadata"]["labels"][labels.LEASE], pod))
            known.pod = pod
            if kind == "DELETED":
                known.gone = time.monotonic()
                for task in (self.tasks.get(uid), self.endings.get(uid)):
                    if task is not None:
                        task.cancel()
            elif "deletionTimestamp" in pod["metadata"] and uid not in self.endings:
                self.endings[uid] = asyncio.create_task(self._end(pod), name=f"end {known.lease}")
            elif not known.running and pod["status"].get("phase") == "Running":
                known.running = time.monotonic()
                self.tasks[uid] = asyncio.create_task(self._live(known), name=f"life {known.lease}")

    async def close(self) -> None:
        """End all of them without a word, as a node that dies does."""
        tasks = [*self.tasks.values(), *self.endings.values()]
        for task in tasks:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        for each in found:
            if isinstance(each, Exception):
                raise each

    async def _end(self, pod: Object) -> None:
        """Take a pod away whose time to end is long over, as a kubelet would have."""
        meta = pod["metadata"]
        await asyncio.sleep(meta.get("deletionGracePeriodSeconds", 0) + _FORGOTTEN)
        now = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": meta["uid"]},
        }
        with contextlib.suppress(ApiError):  # it went meanwhile
            path = f"/api/v1/namespaces/{self.namespace}/pods/{meta['name']}"
            await self.kube.request("DELETE", path, now)

    async def _live(self, life: Life) -> None:
        token = await self.kube.token(life.pod, "gpulease-lease", "gpulease")
        key = z85_key()
        pauses = BackOff()  # as a supervisor's own
        while True:
            try:
                if await self._speak(life, token, key):
                    return
            except (aiohttp.ClientError, OSError):
                pass  # the service is away: come back until it is there
            finally:
                if life.connected:
                    pauses.worked()
                life.connected = False
            await asyncio.sleep(pauses.pause())

    async def _speak(self, life: Life, token: str, key: str) -> bool:
        """Hold one connection until it is lost; return whether the lease is over."""
        where = f"{self.url}api/leases/{life.lease}/supervisor"
        headers = {"Authorization": f"Bearer {token}"}
        async with self.session.ws_connect(where, headers=headers) as socket:
            await socket.send_str(json.dumps(_hello(life, key)))
            await socket.send_str(_used())
            due = time.monotonic() + BATCH_SECONDS
            while True:
                try:
                    message = await socket.receive(max(0.001, due - time.monotonic()))
                except TimeoutError:
                    due += BATCH_SECONDS
                    await socket.send_str(_batch())
                    continue
                if message.type is not aiohttp.WSMsgType.TEXT:
                    return False
                life.connected = True
                life.registered = life.registered or time.monotonic()
                answer = _answer(json.loads(message.data))
                if answer is not None:
                    await socket.send_str(json.dumps(answer))
                    if answer["type"] == "bye":
                        return True


_QUIET: Final = {"cells": 0, "threads": 0, "processes": 0, "use": 0.0, "transfers": False}


def _hello(life: Life, key: str) -> dict[str, Any]:
    return {
        "type": "hello",
        "address": "tcp://198.18.128.1:8890",
        "public_key": key,
        "protocol": PROTOCOL_VERSION,
        "python": "3.11.2",
        "attempt": int(life.pod["metadata"]["labels"][labels.ATTEMPT]),
    }


def _used() -> str:
    """Return the sample of a notebook that has begun to work: an unused lease waits for ``claim``.

    No cell: 300 that end together look like a fault of the monitoring, which holds everything.
    """
    return _activity([{"at": datetime.now(UTC).isoformat(), **_QUIET, "threads": 1}])


def _batch() -> str:
    """Return the samples of the seconds until now, as one message.

    They are all the same, and made when they are sent: 5,000 companions that woke each second took
    a quarter of the machine that they are to measure.
    """
    now, number = datetime.now(UTC), round(BATCH_SECONDS / SAMPLE_SECONDS)
    ages = (timedelta(seconds=SAMPLE_SECONDS * each) for each in reversed(range(number)))
    return _activity([{"at": (now - age).isoformat(), **_QUIET} for age in ages])


def _activity(samples: list[dict[str, Any]]) -> str:
    return json.dumps({"type": "activity", "samples": samples})


def _answer(message: dict[str, Any]) -> dict[str, Any] | None:
    """Return what an obedient companion without variables says to a message."""
    match message["type"]:
        case "admit":
            return {"type": "admitted", "client_key": message["client_key"]}
        case "drain":
            return {"type": "drained", "result": "done"}
        case "end":
            return {"type": "bye", "reason": "ended"}
    return None


@asynccontextmanager
async def speaking(
    kube: Kube, session: aiohttp.ClientSession, url: str, namespace: str
) -> AsyncIterator[Companions]:
    """Speak for every companion while a block runs."""
    companions = Companions(kube, session, url, namespace)
    watching = asyncio.create_task(companions.watch(), name="lease pods")
    try:
        yield companions
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        await companions.close()
