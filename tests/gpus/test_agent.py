"""The whole agent as a process: driver, kubelet and service come and go, and it keeps running."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import AsyncHTTPClient

from gpulease.cli import main
from gpulease.gpus.agent.wire import ContainerDevice
from gpulease.system.loopback_ports import free_port
from tests.gpus.kubelet import Kubelet
from tests.gpus.kubelet import serving as kubelet_serving
from tests.gpus.service import Service, serving
from tests.gpus.stand_in import Driver
from tests.gpus.test_nvml import FIRST, SECOND
from tests.helpers import wait_for_async

pytestmark = [pytest.mark.processes, pytest.mark.compiler]

HELD = ContainerDevice("hub", "lease-1", "gpu", "nvidia.com/gpu", FIRST)
UID = "12345678-9abc-def0-1234-56789abcdef0"


@dataclass
class Node:
    """A node with its driver, its kubelet and one agent."""

    path: Path
    driver: Driver
    url: str
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = [sys.executable, "-m", "gpulease", "agent", "--service", self.url, "--plain-http"]
        words += ["--token-file", str(self.path / "token"), "--ledger", str(self.path / "ledger")]
        words += ["--kubelet-socket", str(self.path / "kubelet.sock"), "--node", "n1"]
        words += [
            "--proc",
            str(self.path / "proc"),
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
        ]
        words += ["--every", "2", "--every-held", "1"]
        environment = {**os.environ, **self.driver.environment()}
        with (self.path / "log").open("ab") as log:
            self.process = subprocess.Popen(words, env=environment, stderr=log)

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(30)

    def log(self) -> str:
        return (self.path / "log").read_text()

    def run_in_pod(self, pid: int, uid: str = UID) -> None:
        """Give a process of the driver's a place in a pod."""
        (self.path / "proc" / str(pid)).mkdir(parents=True)
        (self.path / "proc" / str(pid) / "cgroup").write_text(f"0::/kubepods/pod{uid}/c\n")

    async def get(self, page: str) -> tuple[int, str]:
        try:
            url = f"http://127.0.0.1:{self.port}/{page}"
            found = await AsyncHTTPClient().fetch(url, raise_error=False)
        except OSError:
            return 0, ""
        return found.code, found.body.decode()

    async def state(self) -> dict[str, Any]:
        code, text = await self.get("healthz")
        return json.loads(text) if code == 200 else {}


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    with kubelet_serving(tmp_path / "kubelet.sock") as found:
        yield found


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with serving() as found:
        yield found


@asynccontextmanager
async def agent(path: Path, url: str, **changed: object) -> AsyncIterator[Node]:
    (path / "token").write_text("token")
    node = Node(path, Driver(path / "nvml", 2, **changed), url)
    node.start()
    try:
        yield node
    finally:
        assert node.process is not None
        node.process.kill()
        node.process.wait()


def seconds(service: Service, device: str = FIRST) -> list[dict[str, Any]]:
    return [
        each
        for post in service.posts
        for batch in post["batches"]
        for each in batch["seconds"]
        if each["device"] == device
    ]


async def test_a_pods_use_reaches_the_service_and_prometheus(
    tmp_path: Path, kubelet: Kubelet, service: Service
) -> None:
    kubelet.held = [HELD]
    service.answer = '{"resources": {"nvidia.com/gpu": {"pool": "a100", "gpu_class": "big"}}}'
    async with agent(tmp_path, service.url) as node:
        node.run_in_pod(77)
        await wait_for_async(lambda: seconds(service), 30, "the first second")
        assert seconds(service)[0]["use"] == 0.0
        node.driver.set(gpu0__use=60, gpu0__process_use="77:60")

        def used() -> Any:
            return [each for each in seconds(service) if each.get("pods")]

        found = (await wait_for_async(used, 30, "use"))[0]
        assert (found["use"], found["pods"]) == (0.6, {UID: 0.6})
        last = service.posts[-1]["batches"][-1]
        assert [(each["pod"], each["device"]) for each in last["holders"]] == [("lease-1", FIRST)]
        assert [each["level"] for each in last["devices"]] == ["process", "process"]
        code, text = await node.get("metrics")
        assert code == 200
        label = f'{{device="{FIRST}",gpu_class="big",node="n1",pool="a100"}}'
        assert f"gpulease_agent_utilisation{label} 0.6" in text
        assert f"gpulease_agent_held{label} 1.0" in text
        assert 'gpulease_agent_up{node="n1",part="driver"} 1.0' in text
        assert "lease-1" not in text
        assert UID not in text
        assert node.end() == 0
    assert "token" not in (tmp_path / "log").read_text().replace("--token-file", "")


async def test_it_waits_for_whatever_is_away_and_says_so(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}/hub/"
    async with agent(tmp_path, url) as node:
        node.driver.fail("nvmlInit", 9)

        async def missing() -> Any:
            found = await node.state()
            tried = "waits on disk" in (tmp_path / "log").read_text()  # a post has failed
            waits = "reboot" in found.get("driver", "") and found["service"] != "ok"
            return found if tried and waits and "no socket" in found["kubelet"] else None

        node.end()
        node.start()
        found = await wait_for_async(missing, 30, "a state")
        assert found["watching"] is True
        node.driver.fail("nvmlInit", None)
        with kubelet_serving(tmp_path / "kubelet.sock") as kubelet:
            kubelet.held = [HELD]
            async with serving(int(url.split(":")[2].split("/", maxsplit=1)[0])) as service:

                async def well() -> bool:
                    state = await node.state()
                    return all(
                        state.get(part) == "ok"
                        for part in ("driver", "events", "kubelet", "service")
                    )

                await wait_for_async(well, 60, "everything there")
                await wait_for_async(lambda: seconds(service), 30, "seconds")
    log = (tmp_path / "log").read_text()
    for sentence in ("no GPU can be read: driver_not_loaded", "no socket", "waits on disk"):
        assert sentence in log


async def test_nothing_is_lost_when_it_is_killed_while_the_service_is_away(
    tmp_path: Path, kubelet: Kubelet
) -> None:
    port = free_port()
    async with agent(tmp_path, f"http://127.0.0.1:{port}/hub/") as node:
        node.driver.event(8, 79)

        async def waiting(least: int) -> bool:
            _, text = await node.get("metrics")
            lines = [
                each for each in text.splitlines() if each.startswith("gpulease_agent_waiting")
            ]
            return bool(lines) and float(lines[0].split()[-1]) >= least

        await wait_for_async(lambda: waiting(3), 60, "batches on disk")
        node.end(signal.SIGKILL)
        node.start()
        await wait_for_async(lambda: waiting(4), 60, "more batches on disk")
        async with serving(port) as service:

            def numbers() -> list[int]:
                return sorted(n for each in service.sequences for n in each)

            await wait_for_async(lambda: numbers()[:4] == [1, 2, 3, 4], 60, "the whole ledger")
        assert len({post["run"] for post in service.posts}) == 1
        assert len(numbers()) == len(set(numbers()))


async def test_a_lost_device_is_told_at_once_and_is_still_known_after_a_kill(
    tmp_path: Path, kubelet: Kubelet, service: Service
) -> None:
    async with agent(tmp_path, service.url) as node:
        await wait_for_async(lambda: seconds(service), 30, "the first second")
        node.driver.fail("*", 15, card=1)

        def faults() -> Any:
            devices = service.posts[-1]["batches"][-1]["devices"]
            return [each["incidents"] for each in devices if each["uuid"] == SECOND]

        await wait_for_async(lambda: faults()[0], 30, "the fault")
        assert faults()[0][0]["kind"] == "gpu_lost"
        assert seconds(service, SECOND)[-1]["gap"] == "gpu_is_lost"
        assert seconds(service, FIRST)[-1]["use"] == 0.0
        began = faults()[0][0]["at"]
        node.end(signal.SIGKILL)
        node.driver.fail("*", None, card=1)
        service.posts.clear()
        node.start()
        await wait_for_async(lambda: service.posts and faults()[0][0]["until"], 60, "its end")
        assert faults()[0][0]["at"] == began


async def test_a_driver_that_hangs_is_a_gap_and_then_goes_on(
    tmp_path: Path, kubelet: Kubelet, service: Service
) -> None:
    async with agent(tmp_path, service.url) as node:
        await wait_for_async(lambda: seconds(service), 30, "the first second")
        node.driver.set({"hang.nvmlDeviceGetSamples": 1})

        def hangs() -> bool:
            return seconds(service)[-1].get("gap") == "driver_hangs"

        await wait_for_async(hangs, 60, "the gap")
        node.driver.set({"hang.nvmlDeviceGetSamples": None})
        await wait_for_async(lambda: seconds(service)[-1]["use"] == 0.0, 60, "seconds again")
        node.driver.set({"hang.nvmlDeviceGetSamples": 1})
        await wait_for_async(hangs, 60, "the gap again")
        assert await asyncio.to_thread(node.end) == 0


async def test_a_cordoned_node_without_leases_has_its_driver_released(
    tmp_path: Path, kubelet: Kubelet, service: Service
) -> None:
    """Else its kernel module could not be unloaded; who comes after all is watched again."""
    kubelet.held = [HELD]
    service.answer = '{"leaving": true}'
    async with agent(tmp_path, service.url) as node:
        assert node.process is not None
        files = Path(f"/proc/{node.process.pid}/fd")

        def is_open() -> bool:
            found = []
            for each in files.iterdir():
                with suppress(FileNotFoundError):  # closed meanwhile
                    found.append(each.readlink())
            return node.driver.path in found

        await wait_for_async(lambda: len(service.posts) > 2, 30, "several posts")
        assert is_open(), "a lease is watched to its end"
        kubelet.held = []
        await wait_for_async(lambda: not is_open(), 30, "the driver is released")
        assert "let_go" in (await node.state())["driver"]
        _, text = await node.get("metrics")
        assert 'gpulease_agent_up{node="n1",part="driver"} 1.0' in text
        last = len(service.posts)
        await wait_for_async(lambda: len(service.posts) > last, 30, "the agent posts on")
        assert service.posts[-1]["batches"][-1]["problem"] == ""
        kubelet.held = [HELD]
        await wait_for_async(is_open, 30, "the driver is opened for a lease")
        await wait_for_async(lambda: seconds(service)[-1]["use"] == 0.0, 30, "its use")


async def test_a_driver_that_this_container_cannot_read_asks_for_a_new_one(
    tmp_path: Path, kubelet: Kubelet, service: Service
) -> None:
    async with agent(tmp_path, service.url) as node:
        await wait_for_async(lambda: seconds(service), 30, "the first second")
        node.driver.fail("nvmlInit", 18)
        node.driver.fail("*", 1, card=0)

        async def told() -> bool:
            code, text = await node.get("healthz")
            return code == 503 and "restart this container" in text

        await wait_for_async(told, 30, "503 with what to do")

        def posted() -> bool:
            return "reboot" in service.posts[-1]["batches"][-1]["problem"]

        await wait_for_async(posted, 30, "the service knows it")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Nobody said the address"),
        (["--service", "https://s/"], "Nobody said the file"),
        (["--service", "http://s/", "--token-file", "t"], "not https"),
        (["--service", "s", "--token-file", "t"], "no address"),
        (["--service", "https://s/", "--token-file", "t", "--every", "0"], "make no sense"),
        (["--service", "https://s/", "--token-file", "t", "--every-held", "9"], "make no sense"),
    ],
)
def test_wrong_options_are_named_with_what_to_give(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["agent", *words]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert "Give" in said


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    async with serving() as service:
        port = service.url.split(":")[2].split("/")[0]
        (tmp_path / "token").write_text("t")
        words = [sys.executable, "-m", "gpulease", "agent", "--service", "https://s/"]
        words += ["--token-file", str(tmp_path / "token"), "--host", "127.0.0.1", "--port", port]
        found = await asyncio.to_thread(
            subprocess.run, words, capture_output=True, text=True, timeout=60, check=False
        )
        assert found.returncode == 2
        assert f"listen on port {port} of 127.0.0.1" in found.stderr
