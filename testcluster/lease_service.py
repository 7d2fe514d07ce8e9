"""The parts of a lease service that keep, plan and perform, over a test's world on the cluster."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpulease.policy.model import Lease, LeaseState, Snapshot, TimeOuts
from gpulease.service.control_loop.evidence import EvidenceCollector
from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.control_loop.policies import Policies
from gpulease.service.control_loop.reconcile import Reconciler
from gpulease.service.metrics import Metrics
from gpulease.service.supervisors.supervisor_connections import SupervisorConnections
from gpulease.store import Change, Store, upgrade
from testcluster.lease_world import LeaseWorld
from tests.helpers import wait_for_async

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
        self.links = SupervisorConnections(self.wake)
        self.provider = world.fresh()
        self.provider._link = self.links
        self.provider._classes = lambda: self.policies.current.classes
        self.provider._starts._classes = lambda: {c.name: c for c in self.policies.current.classes}
        self.loop = Reconciler(
            self.ledger,
            self.provider,
            self.links,
            EvidenceCollector(),
            self.policies,
            metrics=Metrics(),
            publish=self._publish,
            tick=0.2,
        )
        self._task: asyncio.Task[None] | None = None

    async def _publish(self, _: Snapshot) -> None:
        """Tell nobody."""

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
        await self.loop.close()
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
