"""Whatever a peer sends on the service's websockets and to its agents' address does no harm."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, websocket_connect

from gpulease.service.rate_limit import LoopTime
from tests.fuzzing import LONG, Fuzz, unharmed
from tests.service.kit import Site, active_lease
from tests.service.test_agents import Cluster, batch, cluster, posted  # noqa: F401 - a fixture

NOW = datetime.now(UTC).isoformat()


class Hostile:
    """A websocket that is opened again whenever the service hangs up."""

    def __init__(self, url: str, token: str) -> None:
        where = f"ws{url.removeprefix('http')}"
        self._request = HTTPRequest(where, headers={"Authorization": token})
        self._connection: WebSocketClientConnection | None = None
        self._reading: asyncio.Task[None] | None = None
        self.opened = 0

    async def send(self, frame: bytes) -> None:
        if self._connection is None:
            with suppress(HTTPClientError):  # too many at once: those before are being closed
                self._connection = await websocket_connect(self._request)
                self._reading = asyncio.ensure_future(self._read(self._connection))
                self.opened += 1
        if self._connection is not None:
            with suppress(WebSocketClosedError, UnicodeDecodeError):
                binary = self.opened % 3 == 0
                text = frame.decode("utf-8", "replace")
                await self._connection.write_message(frame if binary else text, binary=binary)

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._reading is not None:
            await self._reading

    async def _read(self, connection: WebSocketClientConnection) -> None:
        while await connection.read_message() is not None:
            pass
        connection.close()
        self._connection = None


@pytest.fixture(autouse=True)
def unbounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read all that comes: that a flood is read slowly is another test's."""
    monkeypatch.setattr(LoopTime, "spent", lambda *_: 0.0)


def works(site: Site) -> None:
    """See that nothing that was said has come into the state of the service."""
    assert site.service.services.loop.problem == ""
    assert site.service.services.ledger.problem == ""
    assert len(site.service.services.ledger.leases) == 1


@pytest.mark.parametrize("seconds", LONG)
async def test_the_events_of_a_notebook_server(site: Site, seconds: int) -> None:
    lease, channel, supervisor = await active_lease(site)
    fuzz = Fuzz(seconds)
    report = {"type": "supervisor", "lease_id": lease["id"], "attempt": 1, "detail": "no"}
    messages = [
        {"type": "kernels", "kernels": [{"id": "k1", "last_cell": NOW, "busy": True}]},
        {"type": "language", "language": "de"},
        {**report, "state": "started", "pids": [1, 2**22]},
        {**report, "lease_id": "another", "state": "failed", "pids": []},
    ]
    peer = Hostile(f"{site.url}api/events", f"token {site.hub.server_token('eve')}")
    async with unharmed(fuzz):
        async for frame in fuzz.frames(messages):
            await peer.send(frame)
        await peer.close()
    works(site)
    # Nobody comes for it meanwhile: at length it is warned for that, and for nothing else.
    assert site.service.services.ledger.leases[lease["id"]].reason in {"connected", "unclaimed"}
    await supervisor.close()
    await channel.close()


@pytest.mark.parametrize("seconds", LONG)
async def test_the_channel_of_a_supervisor(site: Site, seconds: int) -> None:
    lease, channel, supervisor = await active_lease(site)
    grant = await channel.grant(lease["id"])
    fuzz = Fuzz(seconds)
    sample = {"at": NOW, "cells": 1, "threads": 0, "processes": 0, "use": 0.5, "transfers": False}
    messages: list[dict[str, Any]] = [
        {"type": "hello", "address": "tcp://10.0.0.1:1", "public_key": "x" * 40,
         "protocol": "1.0", "python": "3.11.2", "pid": 1, "attempt": 1, "keys": {"k" * 40: "k1"}},
        {"type": "activity", "samples": [sample]},
        {"type": "admitted", "client_key": "k" * 40},
        {"type": "drained", "result": "blocked", "blockers": [{"name": "x", "size": 1}]},
    ]  # fmt: skip
    url = f"{site.url}api/leases/{lease['id']}/supervisor"
    peer = Hostile(url, f"Bearer {grant['token']}")
    async with unharmed(fuzz):
        async for frame in fuzz.frames(messages):
            await peer.send(frame)
        await peer.close()
    works(site)
    known = site.service.services.links._lines[lease["id"]]
    assert known.address == "tcp://127.0.0.1:1", f"another address was believed; {fuzz}"
    await supervisor.close()
    await channel.close()


@pytest.mark.parametrize("seconds", LONG)
async def test_what_an_agent_posts(
    site: Site,
    cluster: Cluster,  # noqa: F811
    seconds: int,
) -> None:
    fuzz = Fuzz(seconds)
    client = AsyncHTTPClient()
    codes: dict[int, int] = {}
    messages = [posted(batch(1)), posted(batch(2), batch(3)), posted(batch(1, holders=None))]
    async with unharmed(fuzz):
        async for frame in fuzz.frames(messages):
            known = not fuzz.chance(5)
            token = "of-n1" if known else "of-a-stranger"
            response = await client.fetch(
                f"{site.url}api/agents/batches", method="POST", body=frame,
                headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
                raise_error=False,
            )  # fmt: skip
            codes[response.code] = codes.get(response.code, 0) + 1
            assert (response.code == 403) != known or response.code == 413, f"{frame!r}; {fuzz}"
            json.loads(response.body)
            cluster.batches.clear()
    assert set(codes) <= {200, 400, 403, 413, 422, 426}, f"{codes}; {fuzz}"
