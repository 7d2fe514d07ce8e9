"""On a real GPU: the driver's figures against what a process does, torch on the device, a notebook.

``python3 tools/test_gpu.py --device standin`` rehearses what can be without one.
"""

# ruff: noqa: E501 - one cell a line

import json
import subprocess
import sys
import time

import pytest

from tests.frameworks.standin import DEVICE, START
from tests.transfer.child import ROOT
from tests.transfer.pair import CellError, Companion

pytestmark = pytest.mark.gpu
real = pytest.mark.skipif(DEVICE != "cuda", reason="rehearsed without a GPU")

NET = "import torch, torch.nn as nn, torch.nn.functional as F\ntorch.manual_seed(0); torch.use_deterministic_algorithms(True)\nX = torch.randn(256, 16); y = (X[:, :8].sum(1) > X[:, 8:].sum(1)).long(); seen = []"
ON = f"X, y = X.to('{DEVICE}'), y.to('{DEVICE}'); model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to('{DEVICE}'); opt = torch.optim.Adam(model.parameters()); losses = []"
TRAIN = "for _ in range(5):\n    opt.zero_grad(); loss = F.cross_entropy(model(X), y); loss.backward(); opt.step(); losses.append(loss.item())"
LOOK = "seen.append((losses[:], loss.item(), [p.detach().cpu().tolist() for p in model.parameters()], model[0].weight.grad.abs().sum().item() > 0))"
#: Cells, and whether each runs on the GPU.
NOTEBOOK = [(NET, False), (ON, True), (TRAIN, True), (LOOK, False), (TRAIN, True), (TRAIN, True), (LOOK, False), ("host = [w.cpu() for w in model.state_dict().values()]; [w.zero_() for w in host]", False), (TRAIN, True), (LOOK, False)]  # fmt: skip


def one_process(cells):
    found = subprocess.run(
        [sys.executable, "-m", "tests.frameworks.plain"],
        input=json.dumps([START, *cells]), text=True, capture_output=True, check=True, cwd=ROOT,
    )  # fmt: skip
    return found.stdout.strip()


def attach(pair):
    """Give the notebook a companion whose device is there."""
    pair.companion = Companion(pair.keys, pair.settings)
    pair.companion.ask({"op": "run", "source": START, "count": 0})
    pair.companion.hear()
    pair.side.connect(pair.companion.endpoint, pair.keys)


def leave(pair):
    assert pair.side.drain(120).done
    pair.side.disconnect(died=False)
    pair.companion.close()


@pytest.fixture
def pair(new_pair):
    made = new_pair()
    attach(made)
    return made


@pytest.mark.parametrize("gone", [False, True], ids=["one lease", "a lease each"])
def test_a_notebook_gives_bit_by_bit_what_one_process_gives(pair, gone):
    for source, beside_gpu in NOTEBOOK:
        (pair.gpu if beside_gpu else pair.home)(source)
        if gone and beside_gpu:
            leave(pair)
            attach(pair)
    pair.home("seen")
    assert repr(pair.ns["seen"]) == one_process(source for source, _ in NOTEBOOK)


@real
def test_the_drivers_figures_are_what_a_process_does(figure):
    from gpulease.gpus.nvml import NVMLProbe

    probe = NVMLProbe()
    infos = probe.inventory()
    assert infos, probe.problem
    assert all(info.uuid.startswith("GPU-") and info.memory > 0 for info in infos)
    before = probe.sample()[0]
    work = "import torch; x = torch.empty(2**30, dtype=torch.uint8, device='cuda'); a = torch.rand(4096, 4096, device='cuda'); torch.cuda.synchronize(); print(torch.cuda.get_device_name(), flush=True)\nwhile True: a = (a @ a).clamp(0, 1)"
    busy = subprocess.Popen([sys.executable, "-c", work], stdout=subprocess.PIPE, text=True)
    try:
        assert busy.stdout.readline().strip() == infos[0].name
        during = until(probe, lambda sample: (sample.utilisation or 0) > 0.5)
    finally:
        busy.kill()
        busy.wait()
        busy.stdout.close()
    after = until(
        probe, lambda s: s.utilisation == 0 and s.memory_used < during.memory_used - 2**30
    )
    figure("nvml", {"name": infos[0].name, "memory": infos[0].memory, "busy": during.utilisation,
                    "taken": during.memory_used - before.memory_used, "pids": len(during.pids),
                    "left": after.memory_used - before.memory_used})  # fmt: skip
    assert during.memory_used - before.memory_used >= 2**30
    probe.close()


def until(probe, holds, seconds=30.0):
    """Sample as often as the driver measures until a sample is as it should be."""
    end = time.monotonic() + seconds
    while not holds(sample := probe.sample()[0]):
        assert time.monotonic() < end, sample
    return sample


@real
def test_the_devices_generator_is_one_over_all_companions(pair):
    draw = "seen.append(torch.rand(2, device='cuda').tolist())"
    cells = [
        "import torch; torch.manual_seed(5); seen = []",
        draw,
        draw,
        draw,
        "torch.manual_seed(5)",
        draw,
    ]
    for source in cells:
        beside_gpu = "cuda" in source
        (pair.gpu if beside_gpu else pair.home)(source)
        if beside_gpu:
            leave(pair)
            attach(pair)
    pair.home("seen")
    assert repr(pair.ns["seen"]) == one_process(cells)


@real
def test_a_fork_before_the_first_use_of_the_device_can_use_it(pair):
    pair.home("import torch; x = torch.ones(3); torch.manual_seed(1)")
    pair.gpu("""
import os
x += 1
pid = os.fork()
if not pid:
    try:
        torch.zeros(1, device="cuda")
    except BaseException:
        os._exit(1)
    os._exit(0)
ok = os.waitpid(pid, 0)[1] == 0 and not torch.cuda.is_initialized()
""")
    pair.home("ok, x")
    assert pair.ns["ok"]


@real
def test_no_room_on_the_device_says_who_has_it_and_keeps_the_names(pair):
    pair.gpu("import torch\nbig = torch.zeros(2**28, dtype=torch.uint8, device='cuda')")
    with pytest.raises(CellError) as caught:
        pair.gpu("kept = 7\ntorch.empty(2**45, dtype=torch.uint8, device='cuda')")
    assert "In use on the GPU: big: 0.27 GB" in str(caught.value)
    pair.home("kept")
    assert pair.ns["kept"] == 7


@pytest.mark.parametrize("million", [125, 500] if DEVICE == "cuda" else [1])
def test_a_model_with_adam_after_a_training_cell(new_pair, figure, million):
    """Figures, and that what came home is what is there."""
    pair = new_pair()
    attach(pair)
    wide = int((million * 1e6 / 8) ** 0.5)
    pair.gpu(
        f"import torch, torch.nn as nn\nmodel = nn.Sequential(*[nn.Linear({wide}, {wide}, bias=False) for _ in range(8)]).to('{DEVICE}'); opt = torch.optim.Adam(model.parameters()); x = torch.rand(4, {wide}, device='{DEVICE}')"
    )
    step = "opt.zero_grad(); loss = model(x).sum(); loss.backward(); opt.step()"
    told = []
    for _ in range(2):
        pair.gpu(step)
        told.append(round(pair.after.seconds, 3))
    started = time.monotonic()
    assert pair.side.drain(240).done
    seconds = time.monotonic() - started
    size = sum(
        t.nbytes
        for p in pair.ns["model"].parameters()
        for t in (p, p.grad, *pair.ns["opt"].state[p].values())
    )
    pair.gpu("sums = [p.double().sum().item() for p in model.parameters()]")
    pair.home("sums, model")
    assert pair.ns["sums"] == pytest.approx(
        [p.double().sum().item() for p in pair.ns["model"].parameters()]
    )
    figure(f"adam_{million}M", {"bytes": size, "reply_delay": told[0], "second_cells": told[1],
                                "home_complete": round(seconds, 2), "gb_per_second": round(size / seconds / 1e9, 2)})  # fmt: skip
