"""Hostile supervisors and notebook servers, as a running service meets them."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from gpulease.protocol.reports import KEYS_MAX
from tests.helpers import wait_for_async
from tests.service.kit import Site, Supervisor, active_lease, connect, z85_key


async def rounds(site: Site, count: int) -> None:
    loop = site.service.services.loop
    wanted = loop.rounds + count
    await wait_for_async(lambda: loop.rounds >= wanted, 60, f"{count} more rounds")


async def test_a_server_and_its_supervisor_name_processes_that_are_not_theirs(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are left alone, and the device comes free; once, whatever was named was killed."""
    monkeypatch.setattr(site.service.services.provider, "_kill_after", 0.0)
    lease, server, supervisor = await active_lease(site)
    state = site.service.services.links.state(lease["id"])
    assert state is not None
    assert state.account == os.geteuid()
    bystander = await asyncio.create_subprocess_exec("sleep", "600")
    try:
        report = {"type": "supervisor", "lease_id": lease["id"], "attempt": 1, "state": "started"}
        await server.say({**report, "pids": [1, os.getpid(), os.getppid(), bystander.pid]})
        await site.client(site.hub.server_token("stu")).end(lease["id"])
        await supervisor.next("drain")
        await supervisor.say({"type": "drained", "result": "done"})
        await site.lease(lease["id"], "ended")
        await rounds(site, 10)
        assert bystander.returncode is None
    finally:
        bystander.kill()
        await bystander.wait()
    for peer in (supervisor, server):
        await peer.close()


async def test_a_second_supervisor_with_another_key_is_refused_and_told_to_an_admin(
    site: Site,
) -> None:
    """Whoever has a lease's token cannot have its kernels sent to another address."""
    lease, server, supervisor = await active_lease(site)
    token = site.hub.server_token("stu")
    true = await connect(site, token, lease["id"])
    grant = await server.grant(lease["id"])
    other: dict[str, Any] = {"address": "tcp://127.0.0.1:666", "public_key": z85_key()}
    forged = await Supervisor.start(site, lease["id"], grant, **other)
    await forged.closed.wait()
    again = await connect(site, token, lease["id"], "k2")
    assert (again["address"], again["server_key"]) == (true["address"], true["server_key"])
    assert not supervisor.closed.is_set()
    await rounds(site, 1)
    health = await site.client("").call("GET", "health")  # nobody need log in for it
    assert (health["status"], health["alerts"]) == ("degraded", ["second_supervisor"])
    assert lease["id"] not in str(health)
    (alert,) = (await site.client(site.hub.admin_token()).call("GET", "alerts"))["items"]
    assert (alert["lease"], alert["reason"]) == (lease["id"], "second_supervisor")
    assert "another key" in alert["sentence"]
    text = site.service.services.metrics.text().decode()
    assert 'gpulease_alerts{reason="second_supervisor"} 1.0' in text
    for peer in (supervisor, server):
        await peer.close()


async def test_the_same_supervisor_may_come_back(site: Site) -> None:
    lease, server, supervisor = await active_lease(site)
    grant = await server.grant(lease["id"])
    await supervisor.close()
    back = await Supervisor.start(site, lease["id"], grant)
    await back.next("lease")
    assert site.service.services.links.alerts() == []
    for peer in (back, server):
        await peer.close()


async def test_a_supervisor_that_names_new_keys_for_ever_is_remembered_a_few(site: Site) -> None:
    lease, server, supervisor = await active_lease(site)
    links = site.service.services.links
    hello = {"type": "hello", "address": "tcp://127.0.0.1:1", "protocol": "1.0"}
    hello["public_key"] = links._lines[lease["id"]].public_key
    for many in range(4):
        keys = {f"{many * 400 + number:040}": "k1" for number in range(400)}
        await supervisor.say({**hello, "keys": keys})
    newest = f"{1599:040}"
    await wait_for_async(lambda: newest in links._lines[lease["id"]].admitted, 30, "the last key")
    assert len(links._lines[lease["id"]].admitted) == KEYS_MAX
    await supervisor.say({**hello, "keys": {"k" * 3000: "k1"}})
    await supervisor.say({**hello, "keys": {f"{7777:040}": "k" * 3000}})
    await supervisor.say({**hello, "keys": {f"{8888:040}": "k1"}})
    await wait_for_async(lambda: f"{8888:040}" in links._lines[lease["id"]].admitted, 30, "it")
    assert all(len(k) + len(v) < 200 for k, v in links._lines[lease["id"]].admitted.items())
    for peer in (supervisor, server):
        await peer.close()
