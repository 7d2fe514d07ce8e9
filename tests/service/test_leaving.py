"""What a drain leaves behind is named; a running cell's grace travels with the drain."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gpulease.channel import websocket
from gpulease.errors import GPULeaseError
from gpulease.service.leases import events as events_module
from gpulease.store import EvidenceMinute, history, writing
from tests.helpers import wait_for_async
from tests.service.kit import PREFIX, Server, Site, active_lease, connect, kernel

G = {"name": "g", "reason": "generator", "sentence": "a generator cannot travel", "size": None}


async def _view(channel: Server, lease_id: str, wanted: Any, what: str) -> Any:
    def there() -> Any:
        view = channel.view(lease_id)
        return view if view is not None and wanted(view) else None

    return await wait_for_async(there, 30, what)


async def test_a_blocked_drain_names_what_cannot_leave_and_the_end_what_is_parked_or_lost(
    run: Any,
) -> None:
    outs = {"idle": 0.5, "claim": 0.5, "warning": 0.2, "interrupt_grace": 7.0}
    async with run(outs=outs) as site:
        lease, channel, supervisor = await active_lease(site)
        await supervisor.live()
        drain = await supervisor.next("drain")
        assert (drain["park"], drain["interrupt_grace"]) == (False, 7.0)
        await supervisor.say({"type": "drained", "result": "blocked", "blockers": [G]})
        view = await _view(channel, lease["id"], lambda v: v["reason"] == "undrainable", "back")
        assert [(each["name"], each["sentence"]) for each in view["blockers"]] == [
            ("g", "a generator cannot travel")
        ]
        assert "Cannot be copied back: `g` (a generator cannot travel)." in view["sentence"]

        def again() -> bool:
            return len(supervisor.of("drain")) > 1

        for _ in range(200):
            if again():
                break
            await supervisor.live()
            await wait_for_async(lambda: len(site.service.services.events.readers) > 0)
            rounds = site.service.services.loop.rounds
            await wait_for_async(
                lambda rounds=rounds: site.service.services.loop.rounds > rounds + 1
            )
        assert supervisor.of("drain")[1]["park"] is True
        said = {"type": "drained", "result": "parked", "parked": 2, "blockers": [G]}
        await supervisor.say(said)
        ended = await _view(channel, lease["id"], lambda v: v["end"] is not None, "the end")
        assert (ended["end"]["parked"], ended["end"]["lost"][0]["name"]) == (2, "g")
        assert "2 values are parked" in ended["end"]["sentence"]
        assert "Lost: `g` (a generator cannot travel)." in ended["end"]["sentence"]
        assert ended["blockers"] == []
        stored = site.service.services.ledger.store.lease(lease["id"])
        assert (stored.parked, stored.blockers) == (2, (("g", "a generator cannot travel"),))
        await channel.close()
        await supervisor.close()


async def test_returning_from_a_page_loses_nothing_unasked(site: Site) -> None:
    lease, channel, supervisor = await active_lease(site)
    loop = site.service.services.loop
    await supervisor.live(cells=1)

    def cell_seen() -> bool:
        evidence = loop.observed_state.evidence.get(lease["id"])
        return evidence is not None and evidence.cells == 1

    await wait_for_async(cell_seen, 30, "the cell is seen")
    student = site.client(site.hub.page_token("stu"))
    with pytest.raises(GPULeaseError, match="A cell is running"):
        await student.end(lease["id"])

    await supervisor.live(cells=0)
    await wait_for_async(lambda: not cell_seen(), 30, "no cell runs")
    await student.end(lease["id"])
    assert (await supervisor.next("drain"))["park"] is False
    await supervisor.say({"type": "drained", "result": "blocked", "blockers": [G]})
    view = await _view(channel, lease["id"], lambda v: v["reason"] == "not_home", "it stays")
    assert view["state"] == "active"
    assert "Cannot be copied back: `g`" in view["sentence"]
    await supervisor.next("resume")

    await student.end(lease["id"], force=True)
    await wait_for_async(lambda: len(supervisor.of("drain")) == 2, 30, "the second drain")
    assert supervisor.of("drain")[1]["park"] is True
    await channel.close()
    await supervisor.close()


async def test_a_gone_server_tells_what_it_parked(site: Site) -> None:
    lease, channel, supervisor = await active_lease(site)
    lost = [{**G, "sentence": "x" * 5000}]
    await supervisor.say({"type": "bye", "reason": "parent_gone", "parked": 3, "blockers": lost})
    ended = await site.lease(lease["id"], "ended")
    assert (ended.end_reason, ended.parked) == ("server_gone", 3)
    assert ended.blockers == (("g", "x" * 400),)
    await channel.close()
    await supervisor.close()


async def test_keys_of_kernels_that_ended_while_the_service_was_away_are_withdrawn(
    site: Site,
) -> None:
    lease, channel, supervisor = await active_lease(site)
    await supervisor.close()
    await channel.close()
    # As after a restart: this service has admitted neither key.
    site.service.services.links.forget(set())
    services = site.service.services
    assert services.provider.server_started is not None
    grant = services.provider.server_started.grant(services.ledger.leases[lease["id"]])
    again = await type(supervisor).start(
        site, lease["id"], dict(grant or {}), keys={"A" * 40: "alive", "B" * 40: "gone"}
    )
    channel = await Server.join(site, site.hub.server_token("stu"))
    await channel.say({"type": "kernels", "kernels": [kernel("alive")]})
    revoked = await again.next("revoke")
    assert (revoked["client_key"], revoked["kernel_id"]) == ("B" * 40, "gone")
    assert site.service.services.links.state(lease["id"]).in_use  # type: ignore[union-attr]
    await channel.say({"type": "kernels", "kernels": []})
    await wait_for_async(lambda: len(again.of("revoke")) == 2, 30, "the other key withdrawn")
    await channel.close()
    await again.close()


async def test_the_busy_share_is_shown_and_goes_on_from_what_is_stored(site: Site) -> None:
    lease, channel, supervisor = await active_lease(site)
    loop, _store = site.service.services.loop, site.service.services.ledger.store
    assert channel.view(lease["id"])["busy_share"] is None  # type: ignore[index]
    at = loop.clock().replace(second=0, microsecond=0)
    minute = EvidenceMinute(lease["id"], at, busy=4500.0, idle=1400.0, unknown=100.0)
    await site.service.services.ledger.write(writing.add_evidence, [], [minute])
    await loop.recover()
    view = await _view(channel, lease["id"], lambda v: v["busy_share"] is not None, "a share")
    assert view["busy_share"] == 0.75
    await channel.close()
    await supervisor.close()


async def test_what_a_class_gives_one_request_is_told(site: Site) -> None:
    (offered,) = await site.client(site.hub.server_token("stu")).classes()
    assert offered["max_count"] == site.service.services.policies.current.classes[0].max_count


@pytest.mark.processes
@pytest.mark.postgresql
async def test_a_lease_lives_and_ends_on_postgresql(run: Any, cluster: Any) -> None:
    async with run(database_url=cluster.database()) as site:
        lease, channel, supervisor = await active_lease(site)
        await connect(site, site.hub.server_token("stu"), lease["id"])
        await supervisor.live(use=0.9, cells=1)
        await site.client(site.hub.server_token("stu")).end(lease["id"])
        await supervisor.next("drain")
        await supervisor.say({"type": "drained", "result": "done"})
        ended = await site.lease(lease["id"], "ended")
        assert ended.end_reason == "returned"
        page, total = await site.service.services.ledger.read(history.page,
            users=["stu"], groups=None, states=None, offset=0, limit=10,
        )  # fmt: skip
        assert ([each.id for each in page], total) == ([lease["id"]], 1)
        assert site.service.services.loop.problem == ""
        await channel.close()
        await supervisor.close()


async def test_a_reader_that_does_not_keep_up_is_dropped(site: Site, monkeypatch: Any) -> None:
    monkeypatch.setattr(websocket, "BACKLOG", 64 * 1024)
    monkeypatch.setattr(events_module, "CLASSES_EVERY", 0.0)
    events = site.service.services.events
    keeps_up = await Server.join(site, site.hub.server_token("stu"))
    # It takes the handshake's answer and then reads no more.
    reader, writer = await asyncio.open_connection("127.0.0.1", site.service.port, limit=2**10)
    token = site.hub.server_token("eve")
    writer.write(
        f"GET {PREFIX}api/events HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        f"Authorization: token {token}\r\n\r\n".encode()
    )
    assert b"101" in await reader.readline()
    await wait_for_async(lambda: len(events.readers) == 2, 30, "two readers")
    offered: Any = site.service.services.views.classes()
    for number in range(1000):
        big = [{**offered[0], "title": f"{number}" + "x" * 100_000}]
        events.publish_classes(big)
        rounds = site.service.services.loop.rounds
        if len(events.readers) == 1:
            break
        await wait_for_async(
            lambda rounds=rounds: (
                site.service.services.loop.rounds > rounds or len(events.readers) == 1
            )
        )
        site.service.services.loop.wake()
    (left,) = events.readers
    assert left.asker.name == "stu"
    assert keeps_up.of("classes")
    writer.transport.abort()  # type: ignore[attr-defined]
    await keeps_up.close()


async def test_a_reader_whose_connection_just_broke_costs_nobody_else_anything(site: Site) -> None:
    """Its handler is told of the end only later; what is published meanwhile must not fail."""
    events = site.service.services.events
    server = await Server.join(site, site.hub.server_token("stu"))
    (reader,) = events.readers
    sink: Any = reader.sink
    sink.ws_connection.stream.close()
    offered: Any = site.service.services.views.classes()
    events.publish_classes([{**offered[0], "title": "changed"}])
    client = site.client(site.hub.server_token("eve"))
    assert (await client.ask({}))["state"] == "queued"
    await server.close()
