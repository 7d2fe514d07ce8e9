"""What a hostile notebook server or supervisor may say of processes, and what comes of it."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest

from gpulease.gpus.base import GPUInfo, Sample
from gpulease.gpus.simulated import SimulatedProbe
from gpulease.policy.model import Lease
from gpulease.protocol.names import ENV_LEASE
from gpulease.providers.base import LinkState, SupervisorReport
from gpulease.providers.local import processes
from gpulease.system.process_table import process_table
from tests.contract.provider import ended
from tests.helpers import is_root, process_is_gone, wait_for_async
from tests.providers.test_local import LocalWorld, observed, start

NOBODY = 65534


@pytest.fixture
async def world() -> Iterator[LocalWorld]:
    made = LocalWorld(kill_after=10.0)
    await made.open()
    yield made
    made.clean_up()


def named(lease: Lease, *pids: int, account: int | None = None) -> SupervisorReport:
    return SupervisorReport(lease.id, lease.attempt, "started", "", pids, account)


async def stop(world: LocalWorld, lease: Lease, seconds: float = 0) -> None:
    """Stop the lease, and once more when ``seconds`` have passed."""
    await world.provider.stop(ended(lease))
    world.now += seconds
    await observed(world, lease)
    await world.provider.stop(ended(lease))


@dataclass
class Card:
    """A driver with one card, that lists these processes."""

    pids: tuple[int, ...] | None = ()
    gap: str = ""
    problem = ""

    def inventory(self) -> list[GPUInfo]:
        return [GPUInfo("GPU-1", 0, "Card", 2**30, simulated=False)]

    def sample(self) -> list[Sample]:
        return [Sample("GPU-1", datetime.now(UTC), 0.0, pids=self.pids, gap=self.gap)]

    def close(self) -> None:
        """Nothing to give back."""


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every process were of an account whose environment the service may not read."""
    monkeypatch.setattr(processes, "is_hidden", lambda process: True)


async def test_a_named_process_without_the_leases_mark_holds_no_device(world: LocalWorld) -> None:
    """The hub's proxy, say, where everybody's servers and the service share one account."""
    lease = await start(world)
    proxy = await asyncio.to_thread(world.spawn, "")
    world.provider.report(named(lease, proxy.pid, account=os.geteuid()))
    world.link.states[lease.id] = LinkState(lease.attempt, connected=False, pid=proxy.pid)
    await stop(world, lease)
    assert await observed(world, lease) is None
    device = (await world.provider.devices())[0]
    assert (device.healthy, device.occupied_by) == (True, None)
    assert not process_is_gone(proxy.pid)


def test_a_process_is_hidden_where_its_environment_cannot_be_read() -> None:
    if not is_root():
        pytest.skip("not root: a process of another account cannot be started")
    script = (
        "import os, subprocess, sys\n"
        "from gpulease.providers.local import processes as p\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "own = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "own.stdin.write(b'.\\n'); own.stdin.flush(); own.stdout.readline()\n"
        "pids = (int(sys.argv[1]), own.pid, 2**22 + 1)\n"
        "print([p.is_hidden(p.Process(pid, 0)) for pid in pids])\n"
        "own.communicate()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(os.getpid())],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "[True, False, False]", done.stderr


@pytest.mark.parametrize("seconds", [0, 100])
async def test_a_named_process_is_never_ended(world: LocalWorld, seconds: float) -> None:
    lease = await start(world)
    bystander = await asyncio.to_thread(world.spawn, "somebody-elses-lease")
    world.provider.report(named(lease, bystander.pid))
    world.link.states[lease.id] = LinkState(lease.attempt, connected=True, pid=bystander.pid)
    await stop(world, lease, seconds)
    await stop(world, lease, seconds)
    assert not process_is_gone(bystander.pid)


async def test_the_first_process_the_service_and_its_ancestors_hold_no_device(
    world: LocalWorld,
) -> None:
    lease = await start(world)
    world.provider.report(named(lease, 1, os.getpid(), os.getppid(), account=os.geteuid()))
    await stop(world, lease)
    assert await observed(world, lease) is None


def test_the_service_is_spared_though_its_environment_has_the_mark() -> None:
    """A demo that was started in a GPU cell, for example."""
    mark = f"outer-{secrets.token_hex(6)}"  # the whole machine is looked at
    script = (
        "import os; from gpulease.providers.local import processes as p\n"
        f"mine = p.marked()[{mark!r}]; assert mine, 'the mark is not there'\n"
        "assert {each.pid for each in mine} >= {os.getpid()}\n"
        "print(p.of_account(mine, os.geteuid()), p.kill(mine, os.geteuid()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, ENV_LEASE: mark}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, "set() 0"), done.stderr


async def test_a_child_that_cleaned_its_environment_is_ended_with_its_lease(
    world: LocalWorld,
) -> None:
    lease = await start(world)
    script = (
        "import subprocess, time\n"
        "subprocess.Popen(['sleep', '601'], env={}, start_new_session=True)\n"
        "time.sleep(600)"
    )
    parent = await asyncio.to_thread(world.spawn, lease.id, sys.executable, "-c", script)

    def child() -> int:
        rows = process_table().values()
        return next((row.pid for row in rows if row.parent == parent.pid and row.alive), 0)

    pid = await wait_for_async(child, 30, "the child")
    await observed(world, lease)
    parent.kill()  # the child is nobody's now, and was proved before
    await asyncio.to_thread(parent.wait)
    await stop(world, lease, 11)
    await wait_for_async(lambda: process_is_gone(pid), 30, "the child to be ended")


async def test_the_mark_counts_under_the_account_of_the_leases_server_only(
    world: LocalWorld,
) -> None:
    """Else anybody could hold, or have ended, what runs for another."""
    if not is_root():
        pytest.skip("not root: a process of another account cannot be started")
    lease = await start(world)
    world.provider.report(named(lease, account=os.geteuid()))
    stranger = await asyncio.to_thread(world.spawn, lease.id, user=NOBODY)
    await wait_for_async(lambda: lease.id in processes.marked(), 30, "the mark")
    world.provider.report(named(lease, stranger.pid, account=NOBODY))  # not believed either
    await stop(world, lease, 11)
    assert await observed(world, lease) is None
    assert not process_is_gone(stranger.pid)


@pytest.mark.parametrize("put_back", [False, True])
async def test_what_cannot_be_ended_puts_its_device_out_of_service_until_it_has_ended(
    world: LocalWorld, hidden: None, caplog: pytest.LogCaptureFixture, put_back: bool
) -> None:
    world.probe = card = Card()
    await world.open()
    lease = await start(world)
    bound = await asyncio.to_thread(world.spawn, "")
    card.pids = (bound.pid,)
    await world.provider.sample()
    # The driver does not list the second one: it is somebody else's.
    other = await asyncio.to_thread(world.spawn, "")
    world.provider.report(named(lease, bound.pid, other.pid))
    assert not world.provider.put_back(lease.id), "it is not over"
    await stop(world, lease, 11)
    assert (await observed(world, lease)).left == ()
    world.now += 5
    assert (await observed(world, lease)).left == (bound.pid,)
    device = (await world.provider.devices())[0]
    assert (device.healthy, device.occupied_by) == (False, lease.id)
    await observed(world, lease)
    (said,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert str(bound.pid) in said.getMessage()
    if put_back:
        assert world.provider.put_back(lease.id)
        assert not world.provider.put_back(lease.id)
    else:
        bound.kill()
        await asyncio.to_thread(bound.wait)
    assert await observed(world, lease) is None
    device = (await world.provider.devices())[0]
    assert (device.healthy, device.occupied_by) == (True, "foreign"), "the driver still lists it"


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize(
    ("probe", "pids", "gap"),
    [
        (SimulatedProbe, (), ""),
        (Card, (), ""),
        (Card, (2**22 + 1,), ""),
        (Card, None, ""),
        (Card, (), "no_permission"),
    ],
    ids=["simulated", "unused", "used by another", "not told", "a gap"],
)
async def test_hidden_processes_of_the_services_own_account_hold_no_device(
    world: LocalWorld,
    hidden: None,
    probe: type[Card | SimulatedProbe],
    pids: tuple[int, ...] | None,
    gap: str,
    stopped: bool,
) -> None:
    """In a sandbox even root may not look into the system's processes."""
    world.probe = SimulatedProbe(1) if probe is SimulatedProbe else Card(pids, gap)
    await world.open()
    lease = await start(world)
    other = await asyncio.to_thread(world.spawn, "")
    everybody = named(lease, *range(1, 1001), other.pid, account=os.geteuid())
    world.provider.report(everybody)
    world.link.states[lease.id] = LinkState(lease.attempt, connected=False, pid=other.pid)
    if stopped:
        await world.provider.stop(ended(lease))
    seen = await observed(world, lease)
    assert seen is None if stopped else seen.gone
    assert not process_is_gone(other.pid)


@pytest.mark.parametrize(
    ("listed", "stopped", "held"),
    [(None, True, True), ((), True, False), ((), False, True), (None, False, True)],
)
async def test_a_hidden_process_of_the_servers_account_counts_until_the_driver_says_otherwise(
    world: LocalWorld, hidden: None, listed: tuple[int, ...] | None, stopped: bool, held: bool
) -> None:
    if not is_root():
        pytest.skip("not root: a process of another account cannot be started")
    world.probe = card = Card()
    card.pids = listed
    await world.open()
    lease = await start(world)
    companion = await asyncio.to_thread(world.spawn, "", user=NOBODY)
    world.provider.report(named(lease, companion.pid, account=NOBODY))
    if stopped:
        await world.provider.stop(ended(lease))
    seen = await observed(world, lease)
    assert (seen is not None and not seen.gone) is held


async def test_a_named_process_that_the_driver_does_not_list_holds_no_device_for_long(
    world: LocalWorld, hidden: None
) -> None:
    world.probe = card = Card()
    await world.open()
    lease = await start(world)
    bound = await asyncio.to_thread(world.spawn, "")
    world.provider.report(named(lease, bound.pid))
    card.pids = (bound.pid,)
    await world.provider.sample()
    await stop(world, lease, 11)
    assert await observed(world, lease) is not None
    card.pids = ()
    await world.provider.sample()
    assert await observed(world, lease) is None
    assert not process_is_gone(bound.pid)


async def test_a_supervisor_that_keeps_its_channel_holds_no_device_for_long(
    world: LocalWorld,
) -> None:
    lease = await start(world)
    world.link.states[lease.id] = LinkState(lease.attempt, connected=True)
    await stop(world, lease)
    assert await observed(world, lease) is not None
    await stop(world, lease, 11)
    assert await observed(world, lease) is None


async def test_a_report_of_another_attempt_names_nothing(world: LocalWorld) -> None:
    lease = await start(world)
    bound = await asyncio.to_thread(world.spawn, "")
    world.provider.report(replace(named(lease, bound.pid), attempt=0))
    await stop(world, lease)
    assert await observed(world, lease) is None
