"""WorkQueue: each lease's world is made to agree with its present record, whatever else fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from gpulease.errors import GPULeaseError
from gpulease.policy.model import EndReason, Lease, LeaseState, Observed
from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.control_loop.workqueue import WorkQueue
from gpulease.store import Change, Store
from tests.helpers import wait_for_async
from tests.store.tables import lay_tables

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class World:
    """A provider that keeps what it was told, and fails or hangs where a test says so."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str, int]] = []
        self.failing: dict[str, Exception] = {}
        self.hanging: dict[str, asyncio.Event] = {}

    async def start(self, lease: Lease) -> None:
        await self._do("start", lease)

    async def stop(self, lease: Lease) -> None:
        await self._do("stop", lease)

    async def _do(self, what: str, lease: Lease) -> None:
        self.done.append((what, lease.id, lease.version))
        if lease.id in self.hanging:
            await self.hanging[lease.id].wait()
        if lease.id in self.failing:
            raise self.failing[lease.id]

    def asked(self, lease_id: str) -> list[tuple[str, int]]:
        return [(what, version) for what, found, version in self.done if found == lease_id]


@dataclass
class Bench:
    ledger: Ledger
    world: World
    workqueue: WorkQueue
    checks: list[int] = field(default_factory=list)

    async def record(self, before: Lease | None, after: Lease) -> Lease:
        change = Change(before, after, "test", "test")
        await self.ledger.record([change], NOW)
        self.workqueue.changed(change)
        return after

    async def started(self, name: str) -> Lease:
        asked = await self.record(None, lease(name))
        return await self.record(asked, starting(asked))


def lease(name: str) -> Lease:
    return Lease(name, "stu", name, "any", 1, (NOW, 1), NOW)


def starting(asked: Lease) -> Lease:
    return replace(
        asked,
        state=LeaseState.STARTING,
        attempt=asked.attempt + 1,
        devices=(f"G-{asked.id}",),
        version=asked.version + 1,
    )


def ended(held: Lease) -> Lease:
    return replace(
        held,
        state=LeaseState.ENDED,
        end_reason=EndReason.FAILED,
        ended=NOW,
        version=held.version + 1,
    )


@pytest.fixture
async def bench(tmp_path: Any) -> AsyncIterator[Bench]:
    address = lay_tables(tmp_path / "leases.sqlite")
    ledger, world = Ledger(Store.open(address), lambda *_: None), World()
    made = Bench(ledger, world, WorkQueue(ledger, world, back_off=0.01))  # type: ignore[arg-type]
    yield made
    await made.workqueue.close()
    ledger.close()


async def test_one_that_fails_or_hangs_holds_no_other_back(bench: Bench) -> None:
    bench.world.failing["bad"] = OSError("no")
    bench.world.hanging["slow"] = asyncio.Event()
    for name in ("bad", "slow", "good"):
        await bench.started(name)
    await wait_for_async(lambda: bench.world.asked("good"), 10, "the good one")
    await wait_for_async(lambda: len(bench.world.asked("bad")) > 2, 10, "more tries")
    assert [alert.lease_id for alert in bench.workqueue.alerts()] == ["bad"]
    bench.world.failing.clear()
    await wait_for_async(lambda: not bench.workqueue.alerts(), what="the bad one works")
    assert len(bench.world.asked("slow")) == 1


async def test_a_try_is_made_with_the_record_as_it_is_then(bench: Bench) -> None:
    """What was asked for in between is not repeated: nothing that waits could be stale."""
    bench.world.hanging["one"] = asyncio.Event()
    held = await bench.started("one")
    await wait_for_async(lambda: bench.world.asked("one"), 10, "the start")
    active = replace(held, state=LeaseState.ACTIVE, version=held.version + 1)
    await bench.record(held, active)
    await bench.record(active, ended(active))
    bench.world.hanging.pop("one").set()
    await bench.workqueue.settled()
    assert bench.world.asked("one") == [("start", 2), ("stop", 4)]


async def test_a_lost_start_and_a_lost_stop_are_seen_and_made_good(bench: Bench) -> None:
    """Both are level-triggered: what counts is what the record says and what is seen."""
    one, two = await bench.started("one"), await bench.started("two")
    await bench.record(two, ended(two))
    await bench.workqueue.settled()
    bench.world.done.clear()
    bench.workqueue.compare({"two": Observed("two", 1)})
    await bench.workqueue.settled()
    assert bench.world.done == [("stop", "two", 3), ("start", "one", 2)]
    bench.world.done.clear()
    bench.workqueue.compare({"one": Observed("one", one.attempt)})
    await bench.workqueue.settled()
    assert bench.world.done == []


async def test_a_look_does_not_shorten_the_rest_after_a_failure_and_a_change_does(
    bench: Bench,
) -> None:
    bench.workqueue._back_off = 1000.0
    bench.world.failing["one"] = OSError("no")
    held = await bench.started("one")
    await wait_for_async(bench.workqueue.alerts, what="the failure")
    for _ in range(5):
        bench.workqueue.compare({})
        await asyncio.sleep(0)
    assert len(bench.world.asked("one")) == 1
    bench.world.failing.clear()
    await bench.record(held, ended(held))
    await wait_for_async(lambda: not bench.workqueue.alerts(), what="the stop")
    assert bench.world.asked("one")[-1] == ("stop", 3)


async def test_who_is_not_the_writer_any_more_does_nothing(bench: Bench, tmp_path: Any) -> None:
    """Another service took over: what it does with the lease is not undone by this one."""
    held = await bench.started("one")
    await bench.workqueue.settled()
    bench.world.done.clear()
    bench.ledger.store._lock.release()
    other = Store.open(f"sqlite:///{tmp_path / 'leases.sqlite'}")
    bench.ledger._confirmed_at = float("-inf")  # the last write is a while ago
    bench.workqueue.compare({})
    await wait_for_async(bench.workqueue.alerts, what="the refusal")
    assert bench.world.done == []
    with pytest.raises(GPULeaseError, match=r"taken over|writes to this"):
        await bench.ledger.confirm()
    other.close()
    assert held.state is LeaseState.STARTING


async def test_hundreds_that_ask_for_the_fence_at_once_are_one_question(bench: Bench) -> None:
    asked: list[int] = []
    whole = bench.ledger.store.check

    def check() -> None:
        asked.append(1)
        whole()

    bench.ledger.store.check = check  # type: ignore[method-assign]
    bench.ledger._confirmed_at = float("-inf")
    for number in range(300):
        made = lease(f"L{number}")
        bench.ledger.add(starting(made))
    bench.workqueue.recover()
    await bench.workqueue.settled()
    assert len(bench.world.done) == 300
    assert len(asked) == 1
