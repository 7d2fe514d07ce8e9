"""The loop, its store and a real cluster: the database is away, restored, the service replaced."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpulease import labels
from gpulease.errors import GPULeaseError
from gpulease.policy import lifecycle
from gpulease.policy.model import Lease, LeaseState, TimeOuts
from gpulease.providers.kubernetes import manifest
from gpulease.service.evidence import Watch
from gpulease.service.ledger import Ledger
from gpulease.service.links import Links
from gpulease.service.metrics import Metrics
from gpulease.service.policies import Policies
from gpulease.service.reconcile import Reconciler
from gpulease.store import Change, Store, upgrade
from tests.cluster.cluster import Cluster
from tests.cluster.lease_world import OBEDIENT, LeaseWorld
from tests.helpers import wait_for_async

pytestmark = pytest.mark.cluster
POLICY = """
pools: {cards: {}}
classes:
  any: {pool: cards, max_count: 4}
"""


class Wire:
    """A supervisor that is connected and says nothing."""

    def tell(self, message: Any) -> None:
        pass

    def hang_up(self) -> None:
        pass


class Service:
    """The parts of a lease service that keep, plan and perform, over one database."""

    def __init__(self, world: LeaseWorld, path: Path) -> None:
        self.world = world
        address = f"sqlite:///{path}"
        upgrade(address)
        self.ledger = Ledger(Store.open(address), lambda *_: None)
        self.policies = Policies(self.ledger, self.wake)
        self.links = Links(self.wake)
        self.provider = world.fresh()
        self.provider._link = self.links
        self.provider._classes = lambda: self.policies.classes
        self.provider._starts._classes = lambda: {c.name: c for c in self.policies.classes}
        self.loop = Reconciler(
            self.ledger,
            self.provider,
            self.links,
            Watch(),
            self.policies,
            metrics=Metrics(),
            publish=lambda _: None,
            tick=0.2,
        )
        self._task: asyncio.Task[None] | None = None

    async def open(self, first: Path) -> None:
        await asyncio.wait_for(self.provider.open(), 120)
        await self.ledger.load(datetime.now(UTC))
        outs = replace(TimeOuts(), claim=3600.0)
        await self.policies.open(await self.provider.devices(), first, outs)
        await self.loop.recover()
        self._task = asyncio.create_task(self.loop.run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.provider.close()
        self.ledger.close()

    def wake(self) -> None:
        if hasattr(self, "loop"):
            self.loop.wake()

    async def ask(self, name: str, user: str = "stu", count: int = 1) -> Lease:
        now = datetime.now(UTC)
        store = self.ledger.store
        ticket = await self.ledger.call(store.next_ticket, now)
        lease = Lease(name, user, "", "any", count, ticket, now, state_since=now)
        async with self.ledger.lock:
            await self.ledger.record([Change(None, lease, user, "asked")], now)
        self.wake()
        return lease

    def lease(self, name: str) -> Lease:
        found = self.ledger.leases.get(name)
        assert found is not None, f"{name} is not known"
        return found

    async def state(self, name: str, wanted: LeaseState, seconds: float = 60) -> Lease:
        def reached() -> Lease:
            lease = self.lease(name)
            assert lease.state is wanted, (lease.state, lease.reason, self.loop.problem)
            return lease

        return await wait_for_async(reached, seconds, f"{name} {wanted.value}")

    async def connect(self, name: str) -> Lease:
        """Let the lease's supervisor connect once its pod runs."""
        lease = await self.state(name, LeaseState.STARTING)
        await self.world.running(lease)
        hello: Any = {"type": "hello", "address": "tcp://x:1", "public_key": "k"}
        self.links.connected(self.lease(name), Wire(), hello)
        return await self.state(name, LeaseState.ACTIVE)


@pytest.fixture
async def world(cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch) -> LeaseWorld:
    monkeypatch.setattr(manifest, "COMMAND", OBEDIENT)
    found = LeaseWorld(cluster, namespace)
    found.account(manifest.SERVICE_ACCOUNT)
    found.server("stu")
    return found


@asynccontextmanager
async def service(
    world: LeaseWorld, directory: Path, database: str = "a.sqlite"
) -> AsyncIterator[Service]:
    policy = directory / "policy.yaml"
    await asyncio.to_thread(policy.write_text, POLICY)
    running = Service(world, directory / database)
    await running.open(policy)
    try:
        yield running
    finally:
        await running.close()


def uid_of(world: LeaseWorld, lease: Lease) -> str:
    found = world.lease_pod(lease)
    assert found is not None
    assert "deletionTimestamp" not in found["metadata"], "it is being ended"
    return str(found["metadata"]["uid"])


async def rounds(running: Service, count: int = 5) -> None:
    """Let the loop look, plan and perform a few times."""
    before = running.loop.rounds
    await wait_for_async(lambda: running.loop.rounds >= before + count, 120, "some rounds")


async def test_a_lease_goes_from_the_queue_to_its_pod_and_back(
    world: LeaseWorld, tmp_path: Path
) -> None:
    name = f"round-{world.namespace}"
    async with service(world, tmp_path) as running:
        await running.ask(name)
        lease = await running.connect(name)
        assert lease.devices[0].startswith("node1/nvidia.com/gpu/")
        async with running.ledger.lock:
            after = lifecycle.force_end(lease, datetime.now(UTC), TimeOuts(), "enough")
            after = lifecycle.end(after, after.end_reason_wanted, datetime.now(UTC))
            await running.loop.change(lease, after, "admin", "forced")
        await wait_for_async(lambda: world.lease_pod(lease) is None, 120, "the pod to be gone")

        async def free() -> bool:
            return all(d.occupied_by != name for d in await running.provider.devices())

        await wait_for_async(free, 120, "the device to be free")


async def test_a_replaced_service_finds_its_leases_and_ends_none(
    world: LeaseWorld, tmp_path: Path
) -> None:
    name = f"replaced-{world.namespace}"
    async with service(world, tmp_path) as first:
        await first.ask(name)
        lease = await first.connect(name)
        uid = uid_of(world, lease)
    async with service(world, tmp_path) as second:
        await rounds(second)
        assert second.lease(name).state is LeaseState.ACTIVE
        assert uid_of(world, lease) == uid
        assert second.lease(name).devices == lease.devices
        held = [d.uuid for d in await second.provider.devices() if d.occupied_by == name]
        assert held == list(lease.devices)
        assert second.loop.alerts == []


async def test_a_restored_backup_adopts_what_it_does_not_know(
    world: LeaseWorld, tmp_path: Path
) -> None:
    name = f"restored-{world.namespace}"
    async with service(world, tmp_path):
        pass
    backup = tmp_path / "backup.sqlite"
    await asyncio.to_thread(shutil.copy, tmp_path / "a.sqlite", backup)
    async with service(world, tmp_path) as first:
        await first.ask(name)
        lease = await first.connect(name)
        uid = uid_of(world, lease)
    async with service(world, tmp_path, backup.name) as second:
        await wait_for_async(lambda: name in second.ledger.leases, 120, "the lease to be adopted")
        await rounds(second)
        adopted = second.lease(name)
        assert adopted.state is LeaseState.ACTIVE
        assert (adopted.user, adopted.attempt, adopted.gpu_class) == ("stu", 1, "any")
        assert uid_of(world, lease) == uid
        left = adopted.hard_end - datetime.now(UTC) if adopted.hard_end else timedelta()
        assert timedelta(minutes=55) < left <= timedelta(hours=1)
        assert [alert.reason for alert in second.loop.alerts] == ["adopted"]
        history = await second.ledger.call(second.ledger.store.transitions, name)
        assert [each.why for each in history] == ["adopted"]


async def test_while_the_database_is_away_nothing_is_granted_or_ended(
    world: LeaseWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, other = f"away-{world.namespace}", f"waits-{world.namespace}"
    async with service(world, tmp_path) as running:
        await running.ask(name)
        lease = await running.connect(name)
        uid = uid_of(world, lease)
        real = running.ledger.call

        async def away(*_: Any) -> None:
            running.ledger.problem = "The lease database is away."
            raise GPULeaseError("store_unavailable", "The lease database is away.", status=503)

        world.server("ann")
        monkeypatch.setattr(running.ledger, "call", away)
        asked = running.loop.rounds
        async with running.ledger.lock:
            with pytest.raises(GPULeaseError):
                await running.ledger.record(
                    [Change(lease, replace(lease, version=lease.version + 1), "x", "x")],
                    datetime.now(UTC),
                )
        assert running.ledger.problem
        running.ledger.leases[name] = ended = lifecycle.server_gone(lease, datetime.now(UTC))
        await rounds(running)
        assert running.loop.rounds > asked
        assert uid_of(world, lease) == uid, "nothing is ended on the word of an old picture"
        assert ended.state is LeaseState.ENDED
        running.ledger.leases[name] = lease
        monkeypatch.setattr(running.ledger, "call", real)
        await running.ask(other, user="ann")
        await running.state(other, LeaseState.STARTING)
        assert running.lease(name).state is LeaseState.ACTIVE
        assert uid_of(world, lease) == uid


async def test_two_leases_that_land_on_each_others_slots_both_start(
    world: LeaseWorld, tmp_path: Path
) -> None:
    world.server("ann")
    names = [f"one-{world.namespace}", f"two-{world.namespace}"]
    async with service(world, tmp_path) as running:
        await running.ask(names[0])
        await running.ask(names[1], user="ann")
        leases = [await running.connect(name) for name in names]
        slots = [slot for lease in leases for slot in lease.devices]
        assert len(slots) == len(set(slots)) == 2
        found = world.api.items(world.pods_path, labelSelector=f"{labels.NAME}={labels.APP}")
        assert len(found) == 2
