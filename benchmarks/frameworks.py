"""`frameworks`: what torch's values cost between a notebook and its companion on this machine.

A model of 125 million parameters with Adam after training cells, 10,000 losses in a list, a
ping-pong of training cells of a small network, and the first GPU cell that needs torch.  ``scale``
is the share of the large model's layers.  A delay is what a cell takes beyond its own body.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.kernels import OwnKernel, run
from benchmarks.measure import Aim, Variants, progress, report
from benchmarks.transfer.whole import have_at_hand, socket_seconds

FIRST, PLAIN_IMPORT = "first gpu cell, import torch", "plain kernel, import torch"
TRAIN, AGAIN, HOME = "large model: 1st gpu cell", "large model: 2nd gpu cell", "large model: home"
WIRE = "large model: bare socket"
LOSSES, LOSSES_HOME = "10,000 losses: gpu cell", "10,000 losses: home"
OURS, THEIRS = "small network: gpu and home", "small network: one kernel"

SMALL = """
import time, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
X = torch.randn(512, 32); y = (X.sum(1) > 0).long(); seen = []
net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2))
opt = torch.optim.Adam(net.parameters())
"""
STEPS = """
for _ in range(20):
    opt.zero_grad(); loss = F.cross_entropy(net(X), y); loss.backward(); opt.step()
"""
LOOK = "seen.append(loss.item())"
MANY = "losses = [F.cross_entropy(net(X[:4]), y[:4]) for _ in range(10_000)]"
#: 16.8 million parameters a layer: 126 million in seven and a half.
LARGE = """
model = nn.Sequential(*(nn.Linear(4096, 4096) for _ in range({})), nn.Linear(4096, 2048))
optimizer = torch.optim.Adam(model.parameters()); Z = torch.randn(2, 4096)
"""
LARGE_STEP = """
optimizer.zero_grad(); large_loss = model(Z).pow(2).mean(); large_loss.backward(); optimizer.step()
"""
LAYERS = 7
#: Times that the large model is brought home, each between two bare sockets of its bytes.
PAIRS = 5
READ = "total = sum(p.numel() for p in model.parameters()); len(optimizer.state)"


async def measure(*, rounds: int, scale: float) -> dict[str, Any]:
    """Run the benchmark and return its report."""
    environment = _environment()
    variants, times = Variants(), []
    layers = max(1, round(LAYERS * scale))
    parameters = layers * 4096 * 4097 + 2048 * 4097
    size = 4 * 4 * parameters  # with gradients and two of Adam's for each, in float32
    for number in range(rounds):
        progress(f"frameworks: round {number + 1}, imports")
        await _imports(variants, environment)
        progress(f"frameworks: round {number + 1}, values")
        async with OwnKernel.start(**environment) as ours, OwnKernel.start(**environment) as plain:
            await run(ours, "%load_ext gpulease")
            await run(ours, "%gpu connect local")
            await run(ours, SMALL)
            await run(plain, SMALL)
            await run(ours, "%%gpu\nnet(X)")  # torch is there
            await _ping_pong(ours, plain, variants)
            await _losses(ours, variants)
            times += await _large(ours, variants, layers, size)
    medians = {name: numbers["median"] for name, numbers in variants.summaries().items()}
    aims = [
        Aim("first GPU cell that imports torch, share of a plain import",
            round(medians[FIRST] / medians[PLAIN_IMPORT], 2), 0.3),
        Aim("large model, delay of the 1st cell, seconds", round(medians[TRAIN], 3), 0.3),
        Aim("large model, delay of the 2nd cell, seconds", round(medians[AGAIN], 3), 0.3),
        Aim("large model home, times a bare socket of its bytes",
            round(statistics.median(times), 1), 1.7),
        Aim("10,000 losses home, seconds",
            round(medians[LOSSES] + medians[LOSSES_HOME], 3), 0.63),
        Aim("20 training cells, times one kernel's",
            round(medians[OURS] / medians[THEIRS], 2), 2.5),
    ]  # fmt: skip
    return report("frameworks", variants, aims, parameters=parameters, bytes=size)


async def _imports(variants: Variants, environment: dict[str, str]) -> None:
    """One plain import of torch, and a first GPU cell that needs it.

    The student reads for as long as the import takes, as people do after a cell of imports.
    """
    async with OwnKernel.start(**environment) as plain:
        taken = (await run(plain, "import torch")).seconds
        variants.add(PLAIN_IMPORT, taken)
    async with OwnKernel.start(**environment) as ours:
        await run(ours, "%load_ext gpulease")
        await run(ours, "%gpu connect local")
        await run(ours, "import torch")
        await asyncio.sleep(1.5 * taken)
        variants.add(
            FIRST, (await run(ours, "%%gpu\nimport torch; a = torch.ones(3).sum()")).seconds
        )


async def _ping_pong(ours: OwnKernel, plain: OwnKernel, variants: Variants) -> None:
    for _ in range(20):
        gpu = await run(ours, "%%gpu\n" + STEPS)
        home = await run(ours, LOOK)
        variants.add(OURS, gpu.seconds + home.seconds)
        first, second = await run(plain, STEPS), await run(plain, LOOK)
        variants.add(THEIRS, first.seconds + second.seconds)


async def _losses(kernel: OwnKernel, variants: Variants) -> None:
    variants.add(LOSSES, await _delay(kernel, MANY))
    variants.add(LOSSES_HOME, (await run(kernel, "len(losses), losses[-1].item()")).seconds)
    await run(kernel, "del losses")


async def _large(kernel: OwnKernel, variants: Variants, layers: int, size: int) -> list[float]:
    """Return how many times a bare socket's time each way home took.

    Each way home counts against the faster of its two sockets, as in ``transfer.whole``.
    """
    variants.add(TRAIN, await _delay(kernel, LARGE.format(layers) + LARGE_STEP))
    variants.add(AGAIN, await _delay(kernel, LARGE_STEP))
    times = []
    before = await asyncio.to_thread(socket_seconds, size)
    for _ in range(PAIRS):
        await asyncio.to_thread(have_at_hand, 3 * size)
        await run(kernel, "%%gpu\n" + LARGE_STEP)
        taken = (await run(kernel, READ)).seconds
        after = await asyncio.to_thread(socket_seconds, size)
        variants.add(HOME, taken)
        variants.add(WIRE, min(before, after))
        times.append(taken / min(before, after))
        before = after
    return times


async def _delay(kernel: OwnKernel, body: str) -> float:
    """Return what a GPU cell takes beyond its body, which says how long it took."""
    timed = f"%%gpu\n_begun = time.perf_counter()\n{body}\nprint(time.perf_counter() - _begun)"
    cell = await run(kernel, timed)
    return cell.seconds - float(cell.text.split()[0])


def _environment() -> dict[str, str]:
    """Return what lets kernels find torch: the packages of `make test-frameworks`, if not here."""
    if importlib.util.find_spec("torch") is not None:
        return {}
    tool = Path(__file__).parents[1] / "tools" / "set_up_frameworks.py"
    folder = subprocess.check_output([sys.executable, str(tool)], text=True).strip()
    return {"PYTHONPATH": os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))}
