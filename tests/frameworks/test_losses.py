"""A list of losses, each with a graph of its own: few steps for each of them, and one node at home.

Steps are Python's calls while values are looked at, packed, loaded and looked at again.
"""

import sys
import types

import pytest

from gpulease.transfer.api import TransferSettings
from gpulease.transfer.switch.planning import Wanted, plan
from gpulease.transfer.values.shipment import Incoming
from gpulease.transfer.values.side import Side
from tests.transfer.companion_main import run

MODEL = """
import torch, torch.nn as nn, torch.nn.functional as F
X = torch.randn(4, 8); y = torch.arange(4)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
"""
LOSSES = "losses = [F.cross_entropy(model(X), y) for _ in range({})]"
VALUES = "losses = [torch.tensor(float(n)) for n in range({})]"


def calls(function):
    """Return what ``function`` returns, and how many calls it took."""
    count = 0

    def see(_frame, event, _arg):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(see)
    try:
        out = function()
    finally:
        sys.setprofile(None)
    return out, count


def steps(cell, count):
    """Return the calls that it takes to bring the cell's names home, and those names there."""
    away, home = types.ModuleType("__main__").__dict__, types.ModuleType("__main__").__dict__
    near = Side("a", away, set(away), TransferSettings())
    far = Side("h", home, set(home), TransferSettings())
    run(away, MODEL + cell.format(count))

    def bring():
        shipment = plan(near, Wanted(everything=True))
        header, blobs = shipment.encode()
        return far.receive(Incoming.decode(header, [bytearray(blob) for blob in blobs]))

    outcome, taken = calls(bring)
    assert outcome.ok
    return taken, home


# Looked at one by one they took 714 and 432; other libraries that are loaded add to it.
@pytest.mark.parametrize(("cell", "most"), [(LOSSES, 450), (VALUES, 350)], ids=["graphs", "plain"])
def test_each_value_of_a_list_takes_few_steps(cell, most):
    few, _ = steps(cell, 100)
    many, home = steps(cell, 500)
    assert len(home["losses"]) == 500
    assert (many - few) / 400 < most


def test_losses_arrive_with_one_node_and_their_values():
    _, home = steps(LOSSES, 50)
    assert len({id(loss.grad_fn) for loss in home["losses"]}) == 1
    assert len({loss.untyped_storage().data_ptr() for loss in home["losses"]}) == 50
