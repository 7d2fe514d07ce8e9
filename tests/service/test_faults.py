"""Disk full, database locked, no driver, port taken: clear errors, no half-written state."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gpulease.errors import GPULeaseError
from tests.helpers import wait_for_async
from tests.service.kit import Hub, Site, active_lease, options


async def test_a_locked_database_grants_nothing_and_recovers(site: Site, tmp_path: Path) -> None:
    client = site.client(site.hub.server_token("stu"))
    lock = sqlite3.connect(tmp_path / "leases.sqlite", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    with pytest.raises(GPULeaseError) as refused:
        await client.ask({})
    assert (refused.value.reason, refused.value.status) == ("store_unavailable", 503)
    assert site.service.services.ledger.leases == {}
    assert site.service.services.health()["status"] == "error"
    lock.execute("ROLLBACK")
    lock.close()
    lease = await client.ask({})
    await site.lease(lease["id"], "starting")

    def recovered() -> bool:
        health = site.service.services.health()
        assert (health["store"], health["planning"]) == ("ok", "ok"), health
        return True

    await wait_for_async(recovered)


async def test_a_grant_that_cannot_be_stored_is_not_made(site: Site, tmp_path: Path) -> None:
    client = site.client(site.hub.server_token("stu"))
    loop = site.service.services.loop
    lease = await client.ask({"server": ""})
    started = await site.lease(lease["id"], "starting")
    await client.end(lease["id"])
    await site.lease(lease["id"], "ended")
    assert started.devices
    # A trigger refuses every grant, as a full disk refuses every write.
    with sqlite3.connect(tmp_path / "leases.sqlite") as database:
        database.execute(
            "CREATE TRIGGER full BEFORE INSERT ON grants BEGIN"
            " SELECT RAISE(ABORT, 'database or disk is full'); END"
        )
    database.close()
    again = await client.ask({})
    await wait_for_async(lambda: loop.problem, 30, "the loop to be degraded")
    assert site.service.services.ledger.leases[again["id"]].state == "queued"
    free = site.service.services.views.classes
    await wait_for_async(lambda: free()[0]["free"] == 2, 30, "both devices to be free")
    with sqlite3.connect(tmp_path / "leases.sqlite") as database:
        database.execute("DROP TRIGGER full")
    database.close()
    await site.lease(again["id"], "starting")


async def test_a_database_that_was_deleted_grants_nothing_and_health_says_so(
    hub: Hub, run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpulease.service.run._FENCE_EVERY", 0.1)
    async with run() as site:
        lease, server, supervisor = await active_lease(site)
        health = site.service.services.health
        (tmp_path / "leases.sqlite").rename(tmp_path / "aside")
        await wait_for_async(lambda: health()["status"] == "error", 30, "health to say so")
        assert "deleted" in health()["store"]
        with pytest.raises(GPULeaseError) as refused:
            await site.client(hub.server_token("eve")).ask({})
        assert refused.value.reason == "store_replaced"
        assert site.service.services.ledger.leases[lease["id"]].state == "active"
        assert not supervisor.closed.is_set()
        (tmp_path / "aside").rename(tmp_path / "leases.sqlite")
        parts = ("store", "planning")
        await wait_for_async(lambda: [health()[part] for part in parts] == ["ok", "ok"], 30)
        await supervisor.close()
        await server.close()


async def test_a_database_that_takes_no_change_is_named_while_it_can_be_read(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpulease.service.run._FENCE_EVERY", 0.1)
    async with run() as site:
        services = site.service.services
        other = sqlite3.connect(tmp_path / "leases.sqlite", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        await wait_for_async(lambda: services.health()["store"] != "ok", 30, "health to say so")
        await services.ledger.call(services.ledger.store.live)
        assert "another process holds the database" in services.health()["store"]
        other.close()
        await wait_for_async(lambda: services.health()["store"] == "ok", 30, "the next change")


async def test_what_the_service_writes_is_its_own(site: Site, tmp_path: Path) -> None:
    await site.client(site.hub.server_token("stu")).ask({})
    written = await asyncio.to_thread(lambda: list(tmp_path.iterdir()))
    modes = {each.name: each.stat().st_mode & 0o777 for each in written}
    assert {"leases.sqlite", "leases.sqlite.key"} <= modes.keys()
    assert set(modes.values()) == {0o600}
    secret = (tmp_path / "leases.sqlite.key").read_text().strip().encode()
    assert not any(secret in each.read_bytes() for each in written if each.suffix != ".key")


async def test_it_starts_without_gpu_driver_and_companion_and_says_so(run) -> None:
    async with run(gpus=0, simulate=False) as site:
        health = await site.client("").call("GET", "health")
        if health["devices"]:
            pytest.skip("this machine has a GPU")
        assert health["status"] == "degraded"
        assert health["device_problem"]
        with pytest.raises(GPULeaseError) as refused:
            await site.client(site.hub.server_token("stu")).ask({})
        assert refused.value.reason == "bad_count"


async def test_a_hub_that_does_not_answer_is_named(site: Site, hub) -> None:
    hub.down = True
    with pytest.raises(GPULeaseError) as refused:
        await site.client(hub.server_token("stu")).ask({})
    assert (refused.value.reason, refused.value.status) == ("hub_unreachable", 502)


async def test_a_hub_that_stopped_is_on_health_while_nobody_has_a_lease(site: Site, hub) -> None:
    services = site.service.services
    hub.down = True
    await wait_for_async(lambda: services.health()["status"] == "degraded", 30, "it is noticed")
    assert "the hub answered" in services.health()["hub"]
    hub.down = False
    await wait_for_async(lambda: services.health()["hub"] == "ok", 30, "it is back")


async def test_a_round_that_fails_is_tried_again(site: Site, monkeypatch) -> None:
    services = site.service.services
    whole = services.provider.observe

    async def broken() -> None:
        raise RuntimeError("a wire was cut")

    monkeypatch.setattr(services.provider, "observe", broken)
    await wait_for_async(lambda: services.loop.problem, 30, "the loop to be degraded")
    assert services.health()["status"] == "error"
    monkeypatch.setattr(services.provider, "observe", whole)
    lease, channel, supervisor = await active_lease(site)
    assert lease
    assert services.loop.problem == ""
    await channel.close()
    await supervisor.close()


async def test_unknown_capacity_grants_nothing(site: Site, monkeypatch) -> None:
    services = site.service.services

    async def unknown() -> None:
        raise OSError("no answer")

    monkeypatch.setattr(services.provider, "devices", unknown)
    await wait_for_async(lambda: not services.loop.observed_state.capacity_known, 30)
    lease = await site.client(site.hub.server_token("stu")).ask({})
    seen = services.loop.rounds
    await wait_for_async(lambda: services.loop.rounds > seen + 5, 30)
    assert services.ledger.leases[lease["id"]].state == "queued"
    monkeypatch.undo()
    await site.lease(lease["id"], "starting")


async def test_a_time_out_that_is_none_refuses_to_start(hub, tmp_path: Path) -> None:
    from gpulease.service.run import RunningService

    with pytest.raises(GPULeaseError) as refused:
        await RunningService(options(tmp_path, outs={"idel": 3.0})).open()
    assert refused.value.reason == "bad_option"
    assert "idle" in refused.value.next_step


async def test_a_verdict_that_could_not_be_stored_is_stored_later(
    site: Site, tmp_path: Path
) -> None:
    """The rounds go on meanwhile, and the history has no hole afterwards."""
    path = tmp_path / "leases.sqlite"

    def stored(lease: str) -> list[str]:
        with closing(sqlite3.connect(path)) as database:
            rows = database.execute("SELECT verdict FROM verdicts WHERE lease_id = ?", (lease,))
            return [row[0] for row in rows]

    with closing(sqlite3.connect(path)) as database, database:
        database.execute("ALTER TABLE verdicts RENAME TO away")
    lease, channel, supervisor = await active_lease(site)
    services = site.service.services
    await wait_for_async(
        lambda: services.loop.observed_state.evidence.get(lease["id"]), 30, "a verdict"
    )
    rounds = services.loop.rounds
    await wait_for_async(lambda: services.loop.rounds > rounds, 30, "rounds go on")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("ALTER TABLE away RENAME TO verdicts")
    await wait_for_async(lambda: stored(lease["id"]), 30, "the verdict in the store")
    assert (
        stored(lease["id"])[0] == services.loop.observed_state.evidence[lease["id"]].verdict.value
    )
    await channel.close()
    await supervisor.close()
