"""A model that each GPU cell trains on: what home has of it, and says it has."""

import os
import signal

import pytest

from gpulease.errors import GPULeaseError
from gpulease.kernel.status import variable_lines

MAKE = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(300, 300); X = torch.ones(4, 300)
opt = torch.optim.Adam(model.parameters())
"""
TRAIN = "opt.zero_grad(); loss = model(X).pow(2).sum(); loss.backward(); opt.step()"
TOTAL = "total = sum(p.double().abs().sum().item() for p in model.parameters())"


@pytest.fixture
def pair(new_pair):
    """The model is large: it comes by need."""
    made = new_pair(settings={"small_bytes": 100_000})
    made.attach()
    made.home(MAKE + "weights = list(model.parameters())")
    return made


def plain(steps):
    """Return what a plain interpreter has after so many training cells."""
    space = {}
    exec(MAKE + (TRAIN + "\n") * steps + TOTAL, space)
    return space["total"]


def older(pair):
    """Return after which cell home's last whole model is, as `%gpu` says."""
    return {row.name: row.older for row in pair.side.status()}["model"]


def dies(pair):
    """Kill the companion in the middle of nothing."""
    os.kill(pair.companion.process.pid, signal.SIGKILL)
    return pair.side.disconnect(died=True, cell=str(pair.count))


def test_fetch_brings_it(pair):
    for step in range(1, 4):
        pair.gpu(TRAIN)
        pair.side.fetch(["model"])
        pair.ns.pop("total", None)
        assert older(pair) is None
        pair.home(TOTAL)
        assert pair.ns["total"] == plain(step)


def test_home_says_how_old_its_whole_one_is(pair):
    pair.gpu(TRAIN)
    pair.gpu(TRAIN)
    pair.side.fetch(["model"])
    for _ in range(3):
        pair.gpu(TRAIN)
        assert older(pair) == 2
    said = "\n".join(variable_lines(pair.side.status()))
    assert "your notebook's last whole value is of after cell [2]" in said


def test_what_is_recovered_is_what_was_said(pair):
    pair.gpu(TRAIN)
    pair.side.fetch(["model"])
    pair.gpu(TRAIN)
    pair.gpu(TRAIN)
    assert older(pair) == 1
    assert "model" in {name for note in dies(pair) for name in note.names}
    with pytest.raises(GPULeaseError, match="model"):
        pair.home(TOTAL)
    pair.side.recover()
    pair.home(TOTAL)
    assert pair.ns["total"] == plain(1)
