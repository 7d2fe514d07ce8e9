"""The loop, its store and a real cluster: the database is away, restored, the service replaced."""

import asyncio
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpulease.errors import GPULeaseError
from gpulease.policy import lifecycle
from gpulease.policy.model import EndReason, Lease, LeaseState, TimeOuts
from gpulease.protocol import labels
from gpulease.providers.kubernetes.manifests import manifest
from gpulease.store import Change, history
from testcluster.cluster import Cluster
from testcluster.lease_service import Service, service
from testcluster.lease_world import OBEDIENT, LeaseWorld
from tests.helpers import wait_for_async

pytestmark = pytest.mark.cluster


@pytest.fixture
async def world(cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch) -> LeaseWorld:
    monkeypatch.setattr(manifest, "COMMAND", OBEDIENT)
    found = LeaseWorld(cluster, namespace)
    found.account(manifest.SERVICE_ACCOUNT)
    found.server("stu")
    return found


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
            after = lifecycle.end(after, EndReason.FORCED, datetime.now(UTC))
            await running.loop.change([Change(lease, after, "admin", "forced")])
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
        changes = await second.ledger.read(history.transitions, name)
        assert [each.why for each in changes] == ["adopted"]
    async with service(world, tmp_path, backup.name) as third:
        await rounds(third)
        assert [alert.reason for alert in third.loop.alerts] == ["adopted"], "a restart forgot it"


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
