"""The local provider: the contract, and what only it does."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpulease.gpus.nvml import NVMLProbe
from gpulease.gpus.simulated import SimulatedProbe
from gpulease.policy.model import DevicesBy, EvidenceLevel, Lease, LeaseState
from gpulease.protocol.names import ENV_LEASE
from gpulease.protocol.service import GrantView
from gpulease.providers.base import LinkState, SupervisorReport
from gpulease.providers.local import LocalProvider, processes
from tests.contract.provider import Links, ProviderContract, World, active, ended, lease_on
from tests.gpus.conftest import driver  # noqa: F401 - a fixture: the NVML stand-in
from tests.gpus.stand_in import Driver
from tests.helpers import process_is_gone, wait_for_async


def grant(lease: Lease, token: str, visible: str, simulated: bool) -> GrantView:
    return {
        "attempt": lease.attempt,
        "token": token,
        "visible_devices": visible,
        "simulated": simulated,
        "drain_max": 1.0,
        "park_dir": "",
    }


class LocalWorld(World):
    """Real processes that carry the mark of their lease."""

    def __init__(self, **settings: float) -> None:
        self.link = Links()
        self.now = 1000.0
        self.settings = {"lost_after": 0.0, **settings}
        self.children: dict[str, list[subprocess.Popen[bytes]]] = {}
        self.probe: object = SimulatedProbe(3)

    async def open(self) -> None:
        self.provider = LocalProvider(
            self.probe,  # type: ignore[arg-type]
            self.link,
            b"a secret of the service",
            grant,
            clock=lambda: self.now,
            **self.settings,
        )
        await self.provider.open()

    async def run(self, lease: Lease) -> None:
        child = await asyncio.to_thread(self.spawn, lease.id)
        self.link.states[lease.id] = LinkState(lease.attempt, connected=True, pid=child.pid)

    async def die(self, lease: Lease) -> None:
        self.link.states.pop(lease.id, None)
        for child in self.children.pop(lease.id, []):
            child.kill()
            await asyncio.to_thread(child.wait)

    async def disconnect(self, lease: Lease) -> None:
        self.link.states[lease.id] = replace(self.link.states[lease.id], connected=False)

    async def token(self, lease: Lease) -> str:
        found = self.provider.grant(lease)
        assert found is not None
        return found["token"]

    async def restart(self) -> None:
        self.link = Links()
        self.probe = SimulatedProbe(3)
        await self.open()

    def spawn(
        self, lease_id: str, *command: str, user: int | None = None
    ) -> subprocess.Popen[bytes]:
        environment = {**os.environ, ENV_LEASE: lease_id}
        child = subprocess.Popen(command or ("sleep", "600"), env=environment, user=user)
        self.children.setdefault(lease_id, []).append(child)
        return child

    def clean_up(self) -> None:
        for children in self.children.values():
            for child in children:
                child.kill()
                child.wait()


@pytest.fixture
def plain() -> Iterator[LocalWorld]:
    world = LocalWorld()
    yield world
    world.clean_up()


@pytest.fixture
async def world(plain: LocalWorld) -> LocalWorld:
    await plain.open()
    return plain


class TestContract(ProviderContract):
    """The local provider keeps the contract."""


async def start(world: LocalWorld) -> Lease:
    lease = lease_on((await world.provider.devices())[0])
    await world.provider.start(lease)
    return lease


async def observed(world: LocalWorld, lease: Lease):
    return next((s for s in await world.provider.observe() if s.lease_id == lease.id), None)


async def test_a_child_in_a_session_of_its_own_keeps_the_device(world: LocalWorld) -> None:
    lease = await start(world)
    script = "import os,sys,time; os.setsid(); print(os.getpid(), flush=True); time.sleep(600)"
    child = await asyncio.to_thread(world.spawn, lease.id, sys.executable, "-c", script)
    await wait_for_async(lambda: lease.id in processes.marked(), 30, "the mark")
    await world.provider.stop(ended(lease))
    assert await observed(world, lease) is not None
    child.kill()
    await asyncio.to_thread(child.wait)
    assert await observed(world, lease) is None


async def test_stop_tells_the_supervisor_once_and_ends_what_is_left_in_the_end(
    world: LocalWorld,
) -> None:
    lease = await start(world)
    await world.run(lease)
    child = world.children[lease.id][0]
    await observed(world, lease)
    await world.provider.stop(ended(lease))
    await world.provider.stop(ended(lease))
    assert [message["type"] for _, message in world.link.sent] == ["end"]
    assert not process_is_gone(child.pid)
    world.now += 16
    await world.provider.stop(ended(lease))
    await asyncio.to_thread(child.wait)
    world.link.states.clear()
    assert await observed(world, lease) is None


async def test_what_the_server_reports_counts_at_once(world: LocalWorld) -> None:
    lease = await start(world)
    world.provider.report(SupervisorReport(lease.id, 1, "failed", "no module named gpulease"))
    seen = await observed(world, lease)
    assert seen is not None
    assert seen.failed == "no module named gpulease"


async def test_a_report_on_an_old_attempt_counts_for_nothing(world: LocalWorld) -> None:
    lease = await start(world)
    world.provider.report(SupervisorReport(lease.id, 0, "failed", "late"))
    world.provider.report(SupervisorReport("unknown", 1, "failed", "late"))
    seen = await observed(world, lease)
    assert seen is not None
    assert seen.failed == ""


async def test_an_exited_supervisor_whose_children_live_is_not_gone(world: LocalWorld) -> None:
    lease = await start(world)
    child = await asyncio.to_thread(world.spawn, lease.id)
    await wait_for_async(lambda: lease.id in processes.marked(), 30, "the mark")
    world.provider.report(SupervisorReport(lease.id, 1, "exited", "killed", ()))
    seen = await observed(world, lease)
    assert seen is not None
    assert (seen.gone, seen.failed) == (False, "killed")
    child.kill()
    await asyncio.to_thread(child.wait)
    seen = await observed(world, lease)
    assert seen is not None
    assert seen.gone


async def test_without_a_sign_a_lease_is_lost_only_after_a_while(plain: LocalWorld) -> None:
    plain.settings["lost_after"] = 15.0
    await plain.open()
    lease = await start(plain)
    await plain.provider.start(active(lease))
    await plain.run(lease)
    await observed(plain, lease)
    await plain.die(lease)
    seen = await observed(plain, lease)
    assert seen is not None
    assert not seen.gone
    plain.now += 15
    seen = await observed(plain, lease)
    assert seen is not None
    assert seen.gone


async def test_a_grant_is_for_leases_that_hold_devices_only(world: LocalWorld) -> None:
    lease = await start(world)
    found = world.provider.grant(lease)
    assert found is not None
    assert (found["simulated"], found["visible_devices"]) == (True, "")
    assert world.provider.grant(ended(lease)) is None
    queued = replace(lease, state=LeaseState.QUEUED, devices=())
    assert world.provider.grant(queued) is None


async def test_two_leases_hold_parts_of_one_card() -> None:
    world = LocalWorld(card_parts=lambda _pool: 10)  # type: ignore[arg-type]
    await world.open()
    devices = await world.provider.devices()
    assert len(devices) == 30
    first = [d for d in devices if d.card == "SIM-0000"]
    assert [d.place for d in first] == ["SIM-0000"] * 10
    lease = replace(lease_on(first[0]), count=7, devices=tuple(d.uuid for d in first[:7]))
    other = replace(lease_on(first[8]), id="other", count=2)
    other = replace(other, devices=tuple(d.uuid for d in first[8:]))
    await world.provider.start(lease)
    await world.provider.start(other)
    shown = [d.occupied_by for d in await world.provider.devices() if d.card == "SIM-0000"]
    assert shown == [lease.id] * 7 + [None] + ["other"] * 2
    samples = {each.uuid for each in await world.provider.sample()}
    assert {*lease.devices, *other.devices, "SIM-0001"} <= samples


async def test_a_card_that_somebody_has_whole_is_no_part_free() -> None:
    """A policy may divide cards while leases of whole ones run, and put them together again."""
    parts = {"simulated-gpu": 0}
    world = LocalWorld(card_parts=lambda pool: parts[pool])  # type: ignore[arg-type]
    await world.open()
    whole = lease_on((await world.provider.devices())[0])
    await world.provider.start(whole)
    parts["simulated-gpu"] = 4
    devices = await world.provider.devices()
    assert [d.occupied_by for d in devices[:5]] == [whole.id] * 4 + [None]
    part = replace(lease_on(devices[5]), id="part")
    await world.provider.start(part)
    parts["simulated-gpu"] = 0
    assert [d.occupied_by for d in await world.provider.devices()] == [whole.id, "part", None]


@pytest.mark.compiler
async def test_parts_of_a_real_card_are_granted_as_the_card(
    plain: LocalWorld,
    driver: Driver,  # noqa: F811
) -> None:
    driver.set(gpu0__processes="4242:100")
    plain.probe = NVMLProbe()
    plain.settings["card_parts"] = lambda _pool: 2  # type: ignore[assignment]
    await plain.open()
    first, second, *_ = await plain.provider.devices()
    assert (first.occupied_by, second.occupied_by) == ("foreign", "foreign")
    lease = lease_on(first)
    await plain.provider.start(lease)
    found = plain.provider.grant(lease)
    assert found is not None
    assert found["visible_devices"] == first.card
    # Whose the processes on the card are nobody can tell; its use counts for each of its leases.
    assert [d.occupied_by for d in await plain.provider.devices()][:2] == [lease.id, None]
    (mine,) = [each for each in await plain.provider.sample() if each.uuid == first.uuid]
    assert mine.level is EvidenceLevel.CELLS


@pytest.mark.compiler
async def test_a_class_may_name_its_devices_by_number(
    plain: LocalWorld,
    driver: Driver,  # noqa: F811
) -> None:
    driver.set({"1.mig": 1, "1.mig0.uuid": "MIG-0", "1.mig0.name": "slice"})
    plain.probe = NVMLProbe()
    plain.settings["devices_by"] = lambda _class: DevicesBy.INDEX  # type: ignore[assignment]
    await plain.open()
    named = []
    for device in await plain.provider.devices():
        found = plain.provider.grant(lease_on(device))
        assert found is not None
        named.append(found["visible_devices"])
    assert named == ["0", "MIG-0"], "a MIG device has no number"


@pytest.mark.compiler
async def test_real_devices_are_granted_by_uuid_and_free_when_nvml_lists_nothing(
    plain: LocalWorld,
    driver: Driver,  # noqa: F811
) -> None:
    driver.set(gpu1__processes="4242:100")
    plain.probe = NVMLProbe()
    await plain.open()
    first, second = await plain.provider.devices()
    assert (first.occupied_by, second.occupied_by) == (None, "foreign")
    assert first.pool == "nvidia-test"
    lease = lease_on(first)
    await plain.provider.start(lease)
    found = plain.provider.grant(lease)
    assert found is not None
    assert (found["visible_devices"], found["simulated"]) == (first.uuid, False)
    driver.set(gpu0__processes="4243:100")
    await plain.provider.sample()
    await plain.provider.stop(ended(lease))
    assert await observed(plain, lease) is None
    assert (await plain.provider.devices())[0].occupied_by == "foreign"
    driver.set(gpu0__processes=None)
    await plain.provider.sample()
    assert (await plain.provider.devices())[0].occupied_by is None


@pytest.mark.compiler
async def test_processes_that_nobody_tells_of_are_not_gone(
    plain: LocalWorld,
    driver: Driver,  # noqa: F811
) -> None:
    """Else a device could be given on while what was named still computes there."""
    plain.probe = NVMLProbe()
    await plain.open()
    lease = lease_on((await plain.provider.devices())[0])
    assert plain.provider._pids_on(lease) == set()
    driver.fail("nvmlDeviceGetComputeRunningProcesses", 3)
    await plain.provider.sample()
    assert plain.provider._pids_on(lease) is None


@pytest.mark.compiler
async def test_a_lost_device_is_neither_free_nor_used(
    plain: LocalWorld,
    driver: Driver,  # noqa: F811
) -> None:
    plain.probe = NVMLProbe()
    await plain.open()
    driver.fail("*", 15, card=0)  # NVML_ERROR_GPU_IS_LOST
    await plain.provider.sample()
    assert [device.lost for device in await plain.provider.devices()] == [True, False]
    (said,) = plain.provider.problem().split("; ")
    assert said.startswith("GPU-00000000-")
    assert "Drain and reboot" in said


async def test_activity_is_the_use_of_a_simulated_device(world: LocalWorld) -> None:
    from datetime import UTC, datetime

    lease = await start(world)
    sample = {
        "at": datetime.now(UTC).isoformat(), "cells": 1, "threads": 0, "processes": 0,
        "use": 0.7, "transfers": False,
    }  # fmt: skip
    world.provider.heard(lease, [sample])  # type: ignore[list-item]
    use = {each.uuid: each.utilisation for each in await world.provider.sample()}
    assert use[lease.devices[0]] == 0.7


def test_a_process_is_never_taken_for_another_with_its_id() -> None:
    child = subprocess.Popen(["sleep", "600"])
    found = processes.find(child.pid)
    assert found is not None
    me = os.geteuid()
    other = found._replace(started=found.started - 1)
    assert not processes.alive(other)
    assert processes.kill([other], me) == 0
    assert processes.kill([found], me + 1) == 0
    assert processes.kill([found], me) == 1
    child.wait()
    assert processes.find(child.pid) is None
    assert processes.kill([found], me) == 0
