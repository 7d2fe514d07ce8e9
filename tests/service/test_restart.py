"""The service is killed with ``kill -9`` and started again: no lease is lost, doubled or leaked."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from gpulease.client import ServiceClient
from gpulease.errors import GPULeaseError
from gpulease.protocol.names import ENV_LEASE
from gpulease.system.loopback_ports import free_port
from tests.helpers import wait_for_async
from tests.service import kit
from tests.service.kit import PREFIX, QUICK, Hub, Server, Supervisor

pytestmark = pytest.mark.processes


class Process:
    """A lease service in a process of its own."""

    def __init__(self, hub: Hub, path: Path) -> None:
        self.hub = hub
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}{PREFIX}"
        self._path = path
        self._process: subprocess.Popen[bytes] | None = None

    def client(self, token: str) -> ServiceClient:
        return ServiceClient(self.url, token)

    async def start(self) -> None:
        self._process = self._spawn()
        await wait_for_async(self._up, 60, "the service to answer")

    def _spawn(self) -> subprocess.Popen[bytes]:
        outs = [
            f"--GPULeaseService.first_time_outs={name}={value}" for name, value in QUICK.items()
        ]
        command = [
            *(sys.executable, "-m", "gpulease.service.app", "--simulate", "--gpus=2"),
            f"--database=sqlite:///{self._path / 'leases.sqlite'}",
            f"--url=http://127.0.0.1:{self.port}",
            "--GPULeaseService.tick=0.1",
            "--GPULeaseService.hub_seconds=0.2",
            "--GPULeaseService.lost_seconds=2",
            *outs,
        ]
        with (self._path / "service.log").open("ab") as log:
            return subprocess.Popen(command, stderr=log)

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> int:
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(30)

    def log(self) -> str:
        return (self._path / "service.log").read_text()

    async def state(self, lease_id: str, *states: str, seconds: float = 60) -> Any:
        """Wait until a lease is in one of these states; return its view."""
        admin = self.client(self.hub.admin_token())

        async def there() -> Any:
            view = await admin.lease(lease_id)
            return view if view["state"] in states else None

        return await wait_for_async(there, seconds, f"lease {lease_id} {states}")

    async def place(self, lease_id: str) -> int:
        """Wait until who asked is told their place in the queue and return it."""
        admin = self.client(self.hub.admin_token())

        async def told() -> int | None:
            return (await admin.lease(lease_id))["position"]

        return await wait_for_async(told, 60, f"the place of lease {lease_id}")

    async def free(self, count: int) -> None:
        admin = self.client(self.hub.admin_token())

        async def there() -> bool:
            return (await admin.classes())[0]["free"] == count

        await wait_for_async(there, 60, f"{count} free devices")

    async def _up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        try:
            return (await self.client("").call("GET", "health"))["status"] != "error"
        except GPULeaseError:
            return False


def _second(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "gpulease.service.app", "--simulate"),
            f"--database=sqlite:///{path / 'leases.sqlite'}",
            "--url=http://127.0.0.1:0",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
async def process(hub: Hub, tmp_path: Path) -> AsyncIterator[Process]:
    found = Process(hub, tmp_path)
    try:
        await found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture
def companion() -> Any:
    """Start processes that carry a lease's mark, as companions do."""
    started: list[subprocess.Popen[bytes]] = []

    def start(lease_id: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, ENV_LEASE: lease_id}
        started.append(subprocess.Popen(["sleep", "600"], env=environment))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.wait()


async def lease_of(process: Any, user: str, start: Callable[[str], Any]) -> tuple[Any, Any, Any]:
    """Return an active lease, its grant and its companion's process."""
    token = process.hub.server_token(user)
    channel = await Server.join(process, token)
    lease = await process.client(token).ask({})
    grant = await channel.grant(lease["id"])
    companion = start(lease["id"])
    supervisor = await Supervisor.start(process, lease["id"], grant)
    view = await process.state(lease["id"], "active")
    await supervisor.close()
    await channel.close()
    return view, grant, companion


async def test_running_leases_go_on_with_the_service_killed_and_started_again(
    process: Process, hub: Hub, companion: Any
) -> None:
    hub.user("ann", "")
    one, grant, _ = await lease_of(process, "stu", companion)
    two, _, _ = await lease_of(process, "eve", companion)
    assert one["devices"][0]["uuid"] != two["devices"][0]["uuid"]
    waiting = await process.client(hub.server_token("ann")).ask({})
    process.kill()
    await process.start()

    again = await process.state(one["id"], "active")
    assert again["devices"] == one["devices"]
    assert (await process.state(two["id"], "active"))["devices"] == two["devices"]
    assert await process.place(waiting["id"]) == 1
    token = hub.server_token("stu")
    assert (await process.client(token).ask({}))["id"] == one["id"]
    supervisor = await Supervisor.start(process, one["id"], grant)
    view = await kit.connect(process, token, one["id"])  # type: ignore[arg-type]
    assert view["lease_id"] == one["id"]
    await process.client(token).end(one["id"])
    await supervisor.next("drain")
    await supervisor.close()


async def test_a_device_stays_taken_until_nothing_of_its_lease_is_left(
    process: Process, hub: Hub, companion: Any
) -> None:
    lease, grant, child = await lease_of(process, "stu", companion)
    supervisor = await Supervisor.start(process, lease["id"], grant)
    await process.client(hub.server_token("stu")).end(lease["id"])
    await supervisor.next("drain")
    await supervisor.say({"type": "drained", "result": "done"})
    await process.state(lease["id"], "ended")
    process.kill()
    await process.start()

    async def looked() -> bool:
        return (await process.client("").call("GET", "health"))["devices"] == 2

    await wait_for_async(looked, 30, "the new service's first look at the devices")
    await process.free(1)
    child.kill()
    child.wait()
    await process.free(2)
    await supervisor.close()


async def test_a_lease_whose_companion_died_meanwhile_ends(
    process: Process, companion: Any
) -> None:
    lease, _, child = await lease_of(process, "stu", companion)
    process.kill()
    child.kill()
    child.wait()
    await process.start()
    view = await process.state(lease["id"], "ended")
    assert view["end"]["reason"] == "failed"
    await process.free(2)


async def test_a_lease_killed_between_grant_and_hello_connects_to_the_next_service(
    process: Process, hub: Hub
) -> None:
    token = hub.server_token("stu")
    channel = await Server.join(process, token)  # type: ignore[arg-type]
    lease = await process.client(token).ask({})
    grant = await channel.grant(lease["id"])
    process.kill()
    await process.start()
    rejoined = await Server.join(process, token)  # type: ignore[arg-type]
    assert await rejoined.grant(lease["id"]) == grant
    supervisor = await Supervisor.start(process, lease["id"], grant)  # type: ignore[arg-type]
    assert (await process.state(lease["id"], "active"))["id"] == lease["id"]
    for peer in (supervisor, channel, rejoined):
        await peer.close()


async def test_servers_that_come_back_after_a_restart_ask_the_hub_once_each(
    process: Process, hub: Hub
) -> None:
    """Whose token it is, for each; whether their servers run is asked for all of them."""
    users = [f"user-{number}" for number in range(80)]
    for user in users:
        hub.user(user, "")
    tokens = [hub.server_token(user) for user in users]
    process.kill()
    await process.start()
    hub.answer_seconds = 0.02
    hub.asked.clear()
    back = await asyncio.gather(*(Server.join(process, token) for token in tokens))  # type: ignore[arg-type]
    asked = Counter(hub.asked)
    whose = asked.pop("/hub/api/user") - len(users)
    # Beside them the service asks who it is, again and again while nobody has a lease.
    assert 0 <= whose < len(users) / 4
    assert asked.total() <= 15, asked
    for each in back:
        await each.close()


async def test_sigterm_ends_in_order_and_logs_hold_no_token(
    process: Process, hub: Hub, companion: Any
) -> None:
    _, grant, _ = await lease_of(process, "stu", companion)
    assert process.stop() == 0
    log = process.log()
    lines = [json.loads(line) for line in log.splitlines()]
    assert any(line["event"].startswith("the lease service ended") for line in lines)
    secrets = [*hub.tokens, grant["token"], "the-service's-own-token"]
    assert not [secret for secret in secrets if secret in log]
    moved = next(line for line in lines if line["event"] == "starting -> active")
    assert moved["lease"]
    assert moved["server"] == "stu/"
    await process.start()


def test_a_second_service_cannot_be_started_on_nothing(tmp_path: Path) -> None:
    assert _second(tmp_path / "no" / "such").returncode == 1


def test_a_second_service_on_the_same_database_is_refused(process: Process, tmp_path: Path) -> None:
    second = _second(tmp_path)
    assert second.returncode == 1
    assert "Another lease service writes to this database" in second.stderr
