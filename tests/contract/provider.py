"""What every provider must do, whichever machine its leases run on.

A provider's own tests give a ``World``: the provider and the means to make a lease's processes come
and go as they really would.  Subclass ``ProviderContract`` and define the fixture ``world``.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from gpulease.policy.model import Device, EndReason, Lease, LeaseState, Observed
from gpulease.protocol.supervisor import ToSupervisor
from gpulease.providers.base import LinkState, Provider
from tests.helpers import wait_for_async


class Links:
    """The supervisor channels, as a test says they are."""

    def __init__(self) -> None:
        self.states: dict[str, LinkState] = {}
        self.sent: list[tuple[str, ToSupervisor]] = []

    def state(self, lease_id: str) -> LinkState | None:
        return self.states.get(lease_id)

    def send(self, lease_id: str, message: ToSupervisor) -> bool:
        self.sent.append((lease_id, message))
        return lease_id in self.states

    def cut(self, lease_id: str) -> None:
        if lease_id in self.states:
            self.states[lease_id] = replace(self.states[lease_id], connected=False)


class World(ABC):
    """A provider and what its leases run on; it has at least two devices."""

    provider: Provider

    @abstractmethod
    async def run(self, lease: Lease) -> None:
        """Make the lease's supervisor run and connect, as a started lease does."""

    @abstractmethod
    async def die(self, lease: Lease) -> None:
        """End everything of a lease at once, as a crash does."""

    @abstractmethod
    async def disconnect(self, lease: Lease) -> None:
        """Break the supervisor's channel; its processes run on."""

    @abstractmethod
    async def token(self, lease: Lease) -> str:
        """Return the credential that the lease's supervisor of this attempt has."""

    @abstractmethod
    async def restart(self) -> None:
        """Put a fresh provider in the place of one that was killed; leases run on."""


#: Processes are found by their lease's id, machine-wide: no other test process may use the same.
LEASE_ID = f"contract-{os.getpid()}"


def lease_on(*devices: Device, name: str = LEASE_ID, attempt: int = 1) -> Lease:
    """Return a lease that the store intends to start on these devices."""
    now = datetime.now(UTC)
    return Lease(
        id=name,
        user="stu",
        server="",
        gpu_class="any",
        count=len(devices),
        ticket=(now, 1),
        created=now,
        state=LeaseState.STARTING,
        state_since=now,
        attempt=attempt,
        devices=tuple(device.uuid for device in devices),
    )


def active(lease: Lease) -> Lease:
    return replace(lease, state=LeaseState.ACTIVE, active_since=datetime.now(UTC))


def ended(lease: Lease) -> Lease:
    return replace(lease, state=LeaseState.ENDED, end_reason=EndReason.RETURNED)


class ProviderContract:
    """The tests; each subclass runs them against its own world."""

    async def shown(self, world: World, lease: Lease) -> Observed | None:
        """Return what the provider shows of a lease."""
        return next((s for s in await world.provider.observe() if s.lease_id == lease.id), None)

    async def occupants(self, world: World) -> list[str | None]:
        """Return what occupies each device."""
        return [device.occupied_by for device in await world.provider.devices()]

    async def start(self, world: World, count: int = 1) -> Lease:
        """Start a lease on the first devices and make it run."""
        lease = lease_on(*list(await world.provider.devices())[:count])
        await world.provider.start(lease)
        await world.run(lease)
        return lease

    async def freed(self, world: World, lease: Lease) -> None:
        """Wait until nothing of a stopped lease is shown and its device is free."""

        async def gone() -> bool:
            assert await self.shown(world, lease) is None
            return (await self.occupants(world))[0] is None

        await wait_for_async(gone, 60, "the lease to be gone and its device free")

    async def test_devices_are_distinct_healthy_and_free_at_first(self, world: Any) -> None:
        devices = await world.provider.devices()
        assert len({device.uuid for device in devices}) == len(devices) >= 2
        assert all(device.healthy and not device.lost and device.pool for device in devices)
        assert await self.occupants(world) == [None] * len(devices)
        assert await world.provider.observe() == []

    async def test_a_started_lease_occupies_its_device_before_anything_runs(
        self, world: Any
    ) -> None:
        lease = lease_on((await world.provider.devices())[0])
        await world.provider.start(lease)
        seen = await self.shown(world, lease)
        assert seen is not None
        assert (seen.connected, seen.gone, seen.failed) == (False, False, "")
        assert (await self.occupants(world))[0] == lease.id

    async def test_a_running_lease_is_connected(self, world: Any) -> None:
        lease = await self.start(world)
        seen = await self.shown(world, lease)
        assert seen is not None
        assert (seen.connected, seen.gone, seen.attempt) == (True, False, 1)

    async def test_starting_twice_is_starting_once(self, world: Any) -> None:
        lease = await self.start(world, 2)
        await world.provider.start(lease)
        await world.provider.start(active(lease))
        assert [s.lease_id for s in await world.provider.observe()] == [lease.id]
        assert (await self.occupants(world))[:2] == [lease.id, lease.id]

    async def test_a_stopped_lease_is_shown_until_nothing_of_it_is_left(self, world: Any) -> None:
        lease = await self.start(world)
        await world.provider.stop(ended(lease))
        await world.provider.stop(ended(lease))

        async def free() -> bool:
            seen = await self.shown(world, lease)
            assert (await self.occupants(world))[0] == (lease.id if seen else None)
            return seen is None

        await world.die(lease)
        await wait_for_async(free, 60, "the lease to be gone")
        assert (await self.occupants(world))[0] is None

    async def test_stopping_a_lease_that_never_ran_frees_its_device(self, world: Any) -> None:
        lease = lease_on((await world.provider.devices())[0])
        await world.provider.start(lease)
        await world.provider.stop(ended(lease))
        await self.freed(world, lease)

    async def test_stopping_an_unknown_lease_does_nothing(self, world: Any) -> None:
        await world.provider.stop(ended(lease_on(name="never-seen")))
        assert await world.provider.observe() == []

    async def test_a_lease_that_died_is_gone_and_keeps_its_device_until_stopped(
        self, world: Any
    ) -> None:
        lease = await self.start(world)
        await self.shown(world, lease)
        await world.die(lease)

        async def gone() -> bool:
            seen = await self.shown(world, lease)
            return seen is not None and seen.gone

        await wait_for_async(gone, 60, "the lease to be seen gone")
        assert (await self.occupants(world))[0] == lease.id
        await world.provider.stop(ended(lease))
        await self.freed(world, lease)

    async def test_a_broken_channel_is_no_death(self, world: Any) -> None:
        lease = await self.start(world)
        await world.disconnect(lease)
        seen = await self.shown(world, lease)
        assert seen is not None
        assert (seen.connected, seen.gone) == (False, False)

    async def test_a_supervisor_proves_itself_by_the_token_of_its_attempt(self, world: Any) -> None:
        lease = await self.start(world)
        token = await world.token(lease)
        assert await world.provider.rank_of(lease, token) == 0
        await world.restart()
        await world.provider.start(active(lease))
        assert await world.provider.rank_of(active(lease), token) == 0

    async def test_no_other_token_proves_a_supervisor(self, world: Any) -> None:
        one, two = list(await world.provider.devices())[:2]
        lease = lease_on(one)
        other = lease_on(two, name=f"{LEASE_ID}-other")
        for each in (lease, other):
            await world.provider.start(each)
            await world.run(each)
        token = await world.token(lease)
        assert await world.provider.rank_of(other, token) is None
        assert await world.provider.rank_of(replace(lease, attempt=2), token) is None
        for junk in ("", "x", token[:-1], token + "x", token.swapcase() + "é", "\ud800"):
            assert await world.provider.rank_of(lease, junk) is None
        for each in (lease, other):
            await world.die(each)

    async def test_leases_are_found_again_after_a_kill(self, world: Any) -> None:
        lease = await self.start(world)
        await world.restart()
        await world.provider.start(active(lease))
        seen = await self.shown(world, lease)
        assert seen is not None
        assert not seen.gone
        assert (await self.occupants(world))[0] == lease.id

    async def test_an_ended_lease_that_still_runs_keeps_its_device_after_a_kill(
        self, world: Any
    ) -> None:
        lease = await self.start(world)
        await world.disconnect(lease)
        await world.restart()
        await world.provider.stop(ended(lease))
        assert await self.shown(world, lease) is not None
        assert (await self.occupants(world))[0] == lease.id
        await world.die(lease)
        await self.freed(world, lease)

    async def test_a_new_attempt_is_not_taken_for_the_old_one(self, world: Any) -> None:
        lease = await self.start(world)
        await world.die(lease)
        await world.provider.stop(lease)
        await self.freed(world, lease)
        again = lease_on(*(await world.provider.devices())[:1], attempt=2)
        await world.provider.start(again)
        seen = await self.shown(world, again)
        assert seen is not None
        assert (seen.attempt, seen.connected, seen.gone) == (2, False, False)
