"""A list of losses, each with a graph of its own: few steps for each of them, and one node at home.

Steps are Python's calls while values are looked at, packed, loaded and looked at again.
"""

import sys
import types

import pytest

from gpulease.transfer.switch.planning import Wanted, plan
from gpulease.transfer.values.acknowledgement import acknowledge
from gpulease.transfer.values.packing.shipment import Incoming
from gpulease.transfer.values.side import Side
from gpulease.transfer_next.api import TransferSettings
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


def two_sides(cell):
    """Return the GPU's side after a cell, and home, which has nothing yet."""
    away, home = types.ModuleType("__main__").__dict__, types.ModuleType("__main__").__dict__
    near = Side("a", away, set(away), TransferSettings())
    far = Side("h", home, set(home), TransferSettings())
    run(away, MODEL + cell)
    return near, far


def packed(side):
    """Return everything that changed on a side, and that on the wire."""
    shipment = plan(side, Wanted(everything=True))
    header, blobs = shipment.encode()
    return shipment, Incoming.decode(header, [bytearray(blob) for blob in blobs])


def bring(near, far):
    """Bring everything that changed from one side to the other, and say so."""
    shipment, incoming = packed(near)
    outcome = far.receive(incoming)
    assert outcome.ok
    acknowledge(near, shipment, outcome)


def steps(cell, count):
    """Return the calls that it takes to bring the cell's names home, and those names there."""
    near, far = two_sides(cell.format(count))
    _, taken = calls(lambda: bring(near, far))
    return taken, far.ns


def loading_steps(count, beside):
    """Return the calls that it takes home to load losses and to know what both sides hold."""
    near, far = two_sides(LOSSES.format(count))
    far.runs_beside = lambda: beside
    _, incoming = packed(near)
    outcome, taken = calls(lambda: far.receive(incoming))
    assert outcome.ok
    return taken


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


def test_home_does_not_look_at_what_came_again():
    each = (loading_steps(3000, False) - loading_steps(2000, False)) / 1000
    with_a_look = (loading_steps(3000, True) - loading_steps(2000, True)) / 1000
    assert each < 60
    assert with_a_look > 3 * each


TRAIN = """
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
for _ in range(3):
    opt.zero_grad(); loss = F.cross_entropy(model(X), y); loss.backward(); opt.step()
"""


def travels(near):
    """Return the names that a side would send."""
    return set(plan(near, Wanted(everything=True)).names)


@pytest.fixture
def agreed():
    """Two sides with a trained model and its losses, which came twice."""
    near, far = two_sides(TRAIN + LOSSES.format(1200))
    bring(near, far)
    run(near.ns, TRAIN + LOSSES.format(1200))
    bring(near, far)
    return near, far


def test_what_came_home_is_known_to_be_as_it_came(agreed):
    near, far = agreed
    assert not travels(far)
    assert not travels(near)


@pytest.mark.parametrize("change", [
    "losses[7].data += 1", "losses.pop()", "losses[0], losses[1] = losses[1], losses[0]",
    "with torch.no_grad(): model[0].weight.mul_(1)", "opt.param_groups[0]['lr'] = 3",
    "losses[3].tag = 1", "losses[5] = losses[5] * 1", "model.extra = 1",
])  # fmt: skip
def test_what_home_changes_of_it_is_seen(agreed, change):
    _, far = agreed
    run(far.ns, change)
    assert "losses" in travels(far)


def test_it_goes_back_and_comes_again(agreed):
    near, far = agreed
    run(far.ns, "losses[7].data += 1; losses.pop()")
    bring(far, near)
    assert len(near.ns["losses"]) == 1199
    assert near.ns["losses"][7].item() == far.ns["losses"][7].item()
    assert near.ns["losses"][7].grad_fn.name() == "NllLossBackward0"
    assert not travels(near)
    assert not travels(far)


def walk_steps(side):
    return calls(lambda: plan(side, Wanted(everything=True)))[1]


def test_graphs_are_walked_once_between_two_cells():
    """Steps do not tell: below a graph's nodes the walk asks for attributes alone."""
    near, _ = two_sides(LOSSES.format(50))
    near.noted = {}
    near.survey()
    reached = next(noted["reached"] for noted in near.noted.values() if "reached" in noted)
    looked = []
    reached._look, look = lambda roots: (looked.append(len(roots)), look(roots)), reached._look
    near.survey()
    assert set(looked) == {0}
    run(near.ns, "losses[3] = losses[3] * model[0].bias.sum(); losses[4] = losses[5].detach() * 2")
    group = next(g for g in near.survey().groups if "losses" in g.names)
    assert sum(looked) == 1, "the new graph alone"
    assert reached.graphs.keys() >= {id(loss) for loss in near.ns["losses"] if loss.grad_fn}
    assert near.ns["losses"][4].grad_fn is None
    assert "model" in group.names


GRAPHS = {
    "shared": "h = model(X); losses = [(h * i).sum() for i in range({})]",
    "running": "t = model(X).sum(); losses = []\nfor i in range({}): t = t + i; losses.append(t)",
    "chain": "h = model(X); losses = []\nfor i in range({}): h = h.sin(); losses.append(h)",
    "backwards": "h = model(X); losses = []\n"
    "for i in range({}): h = h.sin(); losses.append(h)\nlosses.reverse()",
    "other leaves": "ws = [torch.ones(1, requires_grad=True) for _ in range(7)]\n"
    "losses = [(ws[i % 7] * ws[i % 3]).sum() + i % 2 * model(X).sum() for i in range({})]",
    "diamonds": "h = model[0].bias; losses = []\nfor i in range({}): h = h.sin() + h.cos()\n"
    "losses = [h, h * 2]",
    "none": "losses = [torch.ones(1) for _ in range({})]",
}


def leaves_below(tensor):
    """Return the ids of the leaves of a graph, found the plain way."""
    found, seen, stack = set(), set(), [tensor.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        stack += [below for below, _ in node.next_functions]
    return found


@pytest.mark.parametrize("cell", GRAPHS.values(), ids=GRAPHS)
def test_all_leaves_of_a_graph_are_found(cell):
    near, _ = two_sides(cell.format(100))
    near.noted = {}
    near.survey()
    reached = next(noted["reached"] for noted in near.noted.values() if "reached" in noted)
    for loss in near.ns["losses"]:
        graph = reached.graphs.get(id(loss))
        assert (graph is not None) == (loss.grad_fn is not None)
        if graph is not None:
            assert {id(leaf) for leaf in graph.leaves} == leaves_below(loss)


def test_what_is_too_much_to_come_unasked_is_not_packed(monkeypatch):
    near, far = two_sides("")
    bring(near, far)
    near.settings = TransferSettings(small_objects=100)
    run(near.ns, LOSSES.format(200))
    packed, pack = [], near.packer.pack

    def see(group, *args, **options):
        packed.extend(group.names)
        return pack(group, *args, **options)

    monkeypatch.setattr(near.packer, "pack", see)
    shipment = plan(near, Wanted())
    assert {"losses", "model"} <= shipment.absent.keys()
    assert "losses" not in packed
    assert "losses" in plan(near, Wanted(soft=frozenset({"losses"}))).names
