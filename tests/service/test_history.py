"""Lists page; what happened to a lease can be read; our own failures carry a reference."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import pytest

from gpulease.errors import GPULeaseError
from gpulease.policy.model import LeaseState
from gpulease.service.hubs.auth import Asker
from gpulease.store import EvidenceMinute, history, writing
from tests.service.kit import Site

START = datetime(2026, 1, 1, 12, tzinfo=UTC)


async def end_some(site: Site, user: str, count: int) -> list[str]:
    """Ask and withdraw so many times; return the leases, newest first."""
    client = site.client(site.hub.server_token(user))
    found = []
    for _ in range(count):
        lease = await client.ask({})
        await client.end(lease["id"])
        await site.lease(lease["id"], "ended")
        found.insert(0, lease["id"])
    return found


async def test_lists_page_newest_first_and_say_how_many_there_are(site: Site) -> None:
    mine = await end_some(site, "stu", 5)
    other = await end_some(site, "eve", 2)
    client = site.client(site.hub.page_token("stu"))
    page = await client.call("GET", "leases?state=ended&offset=1&limit=2")
    assert ([each["id"] for each in page["items"]], page["total"]) == (mine[1:3], 5)
    assert [each["id"] for each in await client.leases(state="ended", limit=2)] == mine
    assert await client.leases(state="live") == []
    for query, theirs in (("user=eve", 0), ("user=stu", 5), ("project=none", 0)):
        page = await client.call("GET", f"leases?state=ended&{query}")
        assert page["total"] == theirs
    admin = site.client(site.hub.admin_token())
    assert [each["id"] for each in await admin.leases(state="ended")] == other + mine
    name = (await admin.leases(state="ended"))[0]["gpu_class"]
    for query in ("user=eve", f"user=eve&gpu_class={name}"):
        page = await admin.call("GET", f"leases?state=ended&{query}")
        assert [each["id"] for each in page["items"]] == other
    page = await admin.call("GET", "leases?state=ended&mine=1")
    assert page["total"] == 0


async def test_who_changed_a_lease_when_and_why_can_be_read(site: Site) -> None:
    (lease_id,) = await end_some(site, "stu", 1)
    client = site.client(site.hub.page_token("stu"))
    events = (await client.call("GET", f"leases/{lease_id}/events"))["items"]
    assert events[0]["who"] == "stu"
    assert (events[0]["why"], events[0]["to"]) == ("asked", "queued")
    assert (events[-1]["who"], events[-1]["to"]) == ("stu", "ended")
    assert [each["version"] for each in events] == sorted(each["version"] for each in events)
    eve = site.client(site.hub.page_token("eve"))
    with pytest.raises(GPULeaseError) as refused:
        await eve.call("GET", f"leases/{lease_id}/events")
    assert refused.value.status == 404


async def test_leases_of_an_earlier_service_are_shown(hub, run) -> None:
    async with run() as site:
        (lease_id,) = await end_some(site, "stu", 1)
    async with run() as site:
        ledger = site.service.services.ledger
        ledger.leases.pop(lease_id, None)
        minute = EvidenceMinute(lease_id, START, busy=30.0, idle=90.0)
        await ledger.write(writing.add_evidence, [], [minute])
        client = site.client(hub.page_token("stu"))
        shown = await client.lease(lease_id)
        assert (shown["state"], shown["busy_share"]) == ("ended", 0.25)
        assert [each["busy_share"] for each in await client.leases(state="ended")] == [0.25]
        with pytest.raises(GPULeaseError):
            await site.client(hub.page_token("eve")).lease(lease_id)


async def test_our_own_failure_is_logged_under_the_reference_that_is_told(
    site: Site, monkeypatch, caplog
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("token=abcdefghijklmnop burst")

    monkeypatch.setattr(site.service.services.requests, "ask", broken)
    with caplog.at_level(logging.ERROR), pytest.raises(GPULeaseError) as refused:
        await site.client(site.hub.server_token("stu")).ask({})
    assert (refused.value.reason, refused.value.status) == ("internal", 500)
    assert "burst" not in str(refused.value)
    reference = refused.value.numbers["reference"]
    assert reference in refused.value.next_step
    assert [record.ref for record in caplog.records if hasattr(record, "ref")] == [reference]


async def test_a_service_that_is_away_is_named(site: Site) -> None:
    from gpulease.client import ServiceClient

    with pytest.raises(GPULeaseError) as refused:
        await ServiceClient("http://127.0.0.1:1/services/gpulease", "t").classes()
    assert (refused.value.reason, refused.value.status) == ("service_unreachable", 503)


async def test_a_page_of_live_leases_is_the_stores(site: Site) -> None:
    for user in ("stu", "eve"):
        await site.client(site.hub.server_token(user)).ask({})
        site.hub.user(f"{user}2", "", groups=("cs101",))
        await site.client(site.hub.server_token(f"{user}2")).ask({})
    ledger = site.service.services.ledger
    live = [state for state in LeaseState if state is not LeaseState.ENDED]
    askers = [
        Asker("stu"),
        Asker("ann", admin=True),
        Asker("stu", leads=("cs101",)),
        Asker("ina", leads_all=True),
        Asker("ina", leads=("no-such-group",)),
    ]
    for asker in askers:
        for mine in (False, True):
            everybody = not mine and (asker.admin or asker.leads_all)
            for offset, limit in ((0, 50), (1, 2), (3, 0)):
                found = await site.service.services.history.page(
                    asker, state="live", mine=mine, offset=offset, limit=limit
                )
                stored = await ledger.read(history.page,
                    users=None if everybody else [asker.name],
                    groups=None if everybody else [] if mine else list(asker.leads),
                    states=live, offset=offset, limit=limit,
                )  # fmt: skip
                ids = [[each.id for each in leases] for leases, _ in (found, stored)]
                assert (ids[0], found[1]) == (ids[1], stored[1]), (asker, mine, offset)
