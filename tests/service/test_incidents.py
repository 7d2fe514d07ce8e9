"""Incidents: what a new service knows of what the one before it saw, and who reads what of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpulease.errors import GPULeaseError
from gpulease.policy import lifecycle
from gpulease.policy.model import EndReason, LeaseState
from gpulease.policy.reclaim.preemption_targets import contended_pools
from gpulease.service.control_loop.incidents import ContendedCapacity, Incidents, Orphans
from gpulease.service.control_loop.ledger import Ledger
from gpulease.store import Change, Store
from tests.policy.build import active, policy, request, snapshot, starting
from tests.service.kit import Site
from tests.store.tables import lay_tables

NOW = datetime.now(UTC)


class Homes:
    """What a provider keeps in mind of homes."""

    home_memory = 3600.0

    def __init__(self) -> None:
        self.kept: dict[str, tuple[str, datetime]] = {}

    def recall_home(self, user: str, why: str, at: datetime) -> None:
        self.kept[user] = (why, at)


async def ledger(tmp_path) -> Ledger:
    address = lay_tables(tmp_path / "store.sqlite")
    book = Ledger(Store.open(address), lambda *_: None)
    await book.load(NOW)
    return book


async def fails(book: Ledger, number: int, why: str, ago: float, detail: str = "") -> None:
    """Record a start that failed so many seconds ago."""
    before = starting(number, f"n0/{number}")
    await book.record([Change(None, before, "stu", "asked")], NOW)
    after = replace(
        before, state=LeaseState.QUEUED, reason=why, devices=(), detail=detail, version=2
    )
    await book.record([Change(before, after, "planner", why)], NOW - timedelta(seconds=ago))


async def starts(book: Ledger, number: int, ago: float) -> None:
    before = starting(number, f"n0/{number}")
    await book.record([Change(None, before, "stu", "asked")], NOW)
    after = replace(active(number, f"n0/{number}"), version=2)
    change = Change(before, after, "planner", "connected")
    await book.record([change], NOW - timedelta(seconds=ago))


async def recalled(tmp_path) -> tuple[ContendedCapacity, Orphans, Homes]:
    """What a service knows that begins with this store."""
    book = await ledger(tmp_path)
    contended, orphans, homes = ContendedCapacity(), Orphans(book, "planner"), Homes()
    provider: Any = homes
    await Incidents(book).recall(policy(), contended, orphans, provider, NOW)
    book.close()
    return contended, orphans, homes


async def test_a_robbed_pool_stays_robbed_when_the_service_is_restarted(tmp_path) -> None:
    book = await ledger(tmp_path)
    await fails(book, 1, "capacity_taken", 300)
    await fails(book, 2, "capacity_taken", 200)
    book.close()
    contended, _, _ = await recalled(tmp_path)
    view = replace(snapshot([]), now=NOW, contended=contended.times)
    assert contended_pools(view) == {"cards"}


async def test_what_is_long_past_or_made_good_is_not_recalled(tmp_path) -> None:
    book = await ledger(tmp_path)
    await fails(book, 1, "capacity_taken", 5000)
    await fails(book, 2, "capacity_taken", 400)
    await starts(book, 3, 300)
    await fails(book, 4, "capacity_taken", 200)
    await fails(book, 5, "image_error", 100)
    book.close()
    contended, _, homes = await recalled(tmp_path)
    assert [len(times) for times in contended.times.values()] == [1]
    assert homes.kept == {}


async def test_an_adopted_lease_is_still_told_of_until_it_ends(tmp_path) -> None:
    book = await ledger(tmp_path)
    lease = active(1, "n0/1", version=1)
    await book.record([Change(None, lease, "planner", "adopted")], NOW)
    book.close()
    _, orphans, _ = await recalled(tmp_path)
    assert [(each.lease_id, each.reason) for each in orphans._adopted.values()] == [
        ("r1", "adopted")
    ]
    book = await ledger(tmp_path)
    over = lifecycle.end(book.leases["r1"], EndReason.EXPIRED, NOW)
    await book.record([Change(lease, over, "planner", "expired")], NOW)
    book.close()
    _, orphans, _ = await recalled(tmp_path)
    assert orphans.alerts() == []


async def test_a_home_that_would_not_attach_is_kept_in_mind(tmp_path) -> None:
    book = await ledger(tmp_path)
    await fails(book, 1, "volume_failed", 600, "FailedAttachVolume: held by node n7")
    await fails(book, 2, "volume_failed", 7200, "long ago")
    book.close()
    _, _, homes = await recalled(tmp_path)
    why, at = homes.kept["user1"]
    assert why == "FailedAttachVolume: held by node n7"
    assert (NOW - at).total_seconds() == pytest.approx(600)
    assert set(homes.kept) == {"user1"}


async def test_incidents_are_listed_newest_first_with_when_who_and_why(tmp_path) -> None:
    book = await ledger(tmp_path)
    await fails(book, 1, "capacity_taken", 900, "0/3 nodes")
    await fails(book, 2, "image_error", 600)
    await fails(book, 3, "volume_failed", 300, "held by node n7")
    await book.record([Change(None, request(4), "u", "asked")], NOW)
    items, total = await Incidents(book).page(0, 1)
    assert total == 2
    (newest,) = items
    assert (newest["why"], newest["user"], newest["who"]) == ("volume_failed", "user3", "planner")
    assert newest["note"] == "held by node n7"
    assert newest["sentence"]
    (older,) = (await Incidents(book).page(1, 1))[0]
    assert (older["why"], older["note"]) == ("capacity_taken", "0/3 nodes")
    book.close()


async def test_admins_read_incidents_and_nobody_else(site: Site) -> None:
    book = site.service.services.ledger
    async with book.lock:
        await fails(book, 1, "capacity_taken", 900, "0/3 nodes of gpu-pool")
    admin = site.client(site.hub.admin_token())
    found = await admin.call("GET", "incidents")
    assert found["total"] == 1
    assert found["items"][0]["note"] == "0/3 nodes of gpu-pool"
    student = site.client(site.hub.page_token("user1"))
    with pytest.raises(GPULeaseError) as refused:
        await student.call("GET", "incidents")
    assert refused.value.reason == "admins_only"

    # Its holder reads that the start failed, not the cluster's own words.
    for client, note in ((admin, "0/3 nodes of gpu-pool"), (student, "")):
        told = (await client.call("GET", "leases/r1/events"))["items"]
        (failed,) = [each for each in told if each["why"] == "capacity_taken"]
        assert failed["note"] == note


async def test_the_audit_is_searched_by_words(tmp_path) -> None:
    book = await ledger(tmp_path)
    await fails(book, 1, "capacity_taken", 300)
    await fails(book, 2, "image_error", 200, detail="100%_broken")
    whole, number = await Incidents(book).changes("", 0, 50)
    assert [(each["why"], each["user"]) for each in whole] == [
        ("image_error", "user2"), ("asked", "user2"), ("capacity_taken", "user1"),
        ("asked", "user1"),
    ]  # fmt: skip
    assert (whole[0]["source"], whole[0]["target"], number) == ("starting", "queued", 4)
    assert whole[1]["sentence"] == "A GPU was requested."
    for words, found in (("USER1", 2), ("user1 taken", 1), ("100%_b", 1), ("%", 1), ("zz", 0)):
        rows, number = await Incidents(book).changes(words, 0, 1)
        assert (len(rows), number) == (min(found, 1), found), words
    book.close()


async def test_admins_alone_search_the_audit_and_see_all_devices(site: Site) -> None:
    admin = site.client(site.hub.admin_token())
    assert (await admin.call("GET", "audit?q=nothing"))["total"] == 0
    assert {each["use"] for each in (await admin.call("GET", "devices"))["items"]} == {"free"}
    for path in ("audit", "devices"):
        with pytest.raises(GPULeaseError) as refused:
            await site.client(site.hub.page_token("stu")).call("GET", path)
        assert refused.value.status == 403
