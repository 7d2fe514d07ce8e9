"""Two sides in one process hand torch's values over: steps, graphs, a commit that fails."""

import pickle
import sys

import pytest
import torch

from gpulease.transfer.api import StageError
from gpulease.transfer.side import Side

MODEL = """
import torch, torch.nn as nn, torch.nn.functional as F
X = torch.randn(4, 8); y = torch.arange(4)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
"""
LOSSES = "losses = [F.cross_entropy(model(X), y) for _ in range({})]"
VALUES = "losses = [torch.tensor(float(n)) for n in range({})]"


def steps(cell, count):
    """Return the calls that it takes to bring the cell's names home, and those names there."""
    near, far = _sides()
    _run(near, MODEL + cell.format(count))
    taken = 0

    def see(_frame, event, _arg):
        nonlocal taken
        taken += event in ("call", "c_call")

    sys.setprofile(see)
    try:
        _move(near, far)
    finally:
        sys.setprofile(None)
    return taken, far.ns


@pytest.mark.parametrize(("cell", "most"), [(LOSSES, 450), (VALUES, 350)], ids=["graphs", "plain"])
def test_each_value_of_a_list_takes_few_steps(cell, most):
    few, _ = steps(cell, 100)
    many, home = steps(cell, 500)
    assert len(home["losses"]) == 500
    assert (many - few) / 400 < most


def test_losses_arrive_over_one_node_and_their_values():
    _, home = steps(LOSSES, 50)
    assert len({loss.grad_fn.next_functions[0][0] for loss in home["losses"]}) == 1
    assert len({loss.untyped_storage().data_ptr() for loss in home["losses"]}) == 50


def test_a_model_in_training_is_not_packed_again_where_it_arrives(monkeypatch):
    near, far = _sides()
    _run(near, MODEL + "optimizer = torch.optim.Adam(model.parameters())")
    _run(near, "loss = F.cross_entropy(model(X), y); loss.backward(); optimizer.step()")
    with monkeypatch.context() as patch:
        patch.setattr(Side, "_look_again", _fails)
        _move(near, far)
    assert not far.changed()
    _run(far, "seen = loss.item(), optimizer.param_groups[0]['params'][0] is model[0].weight")
    assert far.ns["seen"] == (near.ns["loss"].item(), True)


def test_a_commit_that_fails_leaves_tensors_as_they_were(monkeypatch):
    home, away = _sides()
    _run(home, "import torch; w = torch.nn.Parameter(torch.ones(3)); b = torch.ones(100_000)")
    _run(home, "v = b[:2]; g = torch.Generator().manual_seed(1); loss = (w * w).sum()")
    _move(home, away)
    _run(away, "w.grad = torch.ones(3); w.note = [1]; b *= 3; torch.rand(1, generator=g)")
    _run(away, "with torch.no_grad(): w.mul_(2); w.requires_grad_(False)")
    kept = home.ns["w"], home.ns["b"], home.ns["v"], home.ns["g"]
    before = _look(home)
    with monkeypatch.context() as patch:
        patch.setattr(torch.autograd.graph, "increment_version", _fails)
        with pytest.raises((RuntimeError, StageError), match="no room"):
            _move(away, home)
    assert _look(home) == before
    _run(home, "loss.backward(); assert w.grad.tolist() == [2.0] * 3; w.grad = None")
    _move(away, home)
    _run(home, "assert w.tolist() == [2.0] * 3 and v.tolist() == [3.0] * 2 and w.note == [1]")
    assert all(one is home.ns[name] for one, name in zip(kept, "wbvg", strict=True))


def _fails(*_):
    raise RuntimeError("no room")


def _sides():
    return [Side(label, _space(), hidden=set(_space())) for label in "ha"]


def _space():
    return {"__name__": "__main__", "__builtins__": __builtins__}


def _run(side, source):
    exec(compile(source, "<cell>", "exec"), side.ns)


def _move(start, to):
    parcel = start.pack()
    to.commit(to.stage(pickle.loads(pickle.dumps(parcel, protocol=5))))
    start.acknowledge(parcel)


def _look(side):
    ns = side.ns
    tensors = [ns["w"], ns["b"], ns["v"], ns["loss"]]
    return (
        [(t.tolist(), t.requires_grad, t._version, vars(t), t.shape) for t in tensors],
        ns["w"].grad,
        ns["g"].get_state().tolist(),
    )
