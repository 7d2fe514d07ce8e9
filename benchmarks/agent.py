"""What the node agent costs a node: processor time and memory of the real process.

Its driver is the stand-in of the tests, built from C (what the stand-in costs counts as the
agent's), its kubelet and its service answer from this process, the service over TLS.  One round is
ten seconds of the agent's life, so that each holds a post.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from subprocess import Popen
from typing import Any

import psutil

from benchmarks.measure import Aim, Variants, progress, report
from gpulease.gpus.agent.wire import ContainerDevice
from tests.gpus.kubelet import Kubelet
from tests.gpus.kubelet import serving as kubelet_serving
from tests.gpus.service import certificate, serving
from tests.gpus.stand_in import Driver

DEVICES = 8
ROUND_SECONDS = 10.0
#: The first seconds import modules and look at every device.
START_SECONDS = 10.0
CORE_PER_CENT, MEGABYTES = 1.0, 80.0
IDLE, BUSY = "agent, 8 devices, idle node", "agent, 8 devices, 8 busy pods"


async def measure(rounds: int, scale: float) -> dict[str, Any]:
    """Return the agent's seconds of processor time for each second, and its memory."""
    variants = Variants()
    memory = {}
    with tempfile.TemporaryDirectory() as made:
        for name in (IDLE, BUSY):
            path = Path(made) / name.split()[-1]
            path.mkdir()
            memory[name] = await _watch(path, name, rounds, scale, variants)
    share = max(variants.seconds[IDLE])
    aims = [
        Aim(
            "worst round of an idle node, per cent of a core", round(100 * share, 2), CORE_PER_CENT
        ),
        Aim("memory of an idle node, MB", memory[IDLE], MEGABYTES),
    ]
    return report("agent", variants, aims, devices=DEVICES, resident_megabytes=memory)


async def _watch(path: Path, name: str, rounds: int, scale: float, variants: Variants) -> float:
    """Run an agent for some rounds; return its resident memory at the end, in MB."""
    ca_file, tls = certificate(path)
    (path / "token").write_text("token")
    driver = Driver(path / "nvml", DEVICES)
    async with serving(tls=tls) as service:
        with kubelet_serving(path / "kubelet.sock") as kubelet:
            if name == BUSY:
                _make_busy(path, driver, kubelet)
            words = [sys.executable, "-m", "gpulease", "agent", "--service", service.url]
            words += ["--token-file", str(path / "token"), "--ca-file", str(ca_file)]
            words += ["--kubelet-socket", str(path / "kubelet.sock"), "--proc", str(path / "proc")]
            words += ["--ledger", str(path / "ledger"), "--host", "127.0.0.1", "--port", "0"]
            words += ["--log-level", "WARNING"]
            environment = {**os.environ, **driver.environment()}
            with Popen(words, env=environment) as process:  # noqa: ASYNC220 - returns at once
                try:
                    return await _rounds(psutil.Process(process.pid), name, rounds, scale, variants)
                finally:
                    process.terminate()
                    progress(f"  {len(service.posts)} posts")


async def _rounds(
    agent: psutil.Process, name: str, rounds: int, scale: float, variants: Variants
) -> float:
    await asyncio.sleep(START_SECONDS)
    for _ in range(rounds):
        before = agent.cpu_times()
        await asyncio.sleep(ROUND_SECONDS * scale)
        after = agent.cpu_times()
        used = (after.user + after.system) - (before.user + before.system)
        variants.add(name, used / (ROUND_SECONDS * scale))
    return round(agent.memory_info().rss / 1e6, 1)


def _make_busy(path: Path, driver: Driver, kubelet: Kubelet) -> None:
    """Let each device be held and used by a pod of its own."""
    for index in range(DEVICES):
        device = driver.keys[f"{index}.uuid"]
        kubelet.held.append(
            ContainerDevice("hub", f"lease-{index}", "gpu", "nvidia.com/gpu", device)
        )
        pid = 100 + index
        (path / "proc" / str(pid)).mkdir(parents=True)
        pod = f"{index:08x}-0000-0000-0000-000000000000"
        (path / "proc" / str(pid) / "cgroup").write_text(f"0::/kubepods/pod{pod}/c\n")
        driver.set({f"{index}.use": 90, f"{index}.process_use": f"{pid}:90"})
        driver.set({f"{index}.processes": f"{pid}:1000000"})
