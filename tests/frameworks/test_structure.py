"""A model that home's memory does not hold: all but its values is there while a cell looks."""

import pytest

from gpulease.errors import GPULeaseError
from gpulease.transfer.api import Place
from tests.frameworks.standin import DEVICE, START
from tests.frameworks.test_devices import OnDevice
from tests.transfer.kinds import BY_NEED
from tests.transfer.pair import CellError

MARGIN = 256 * 2**20
MAKE = """
import torch
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(300, 300); self.head = torch.nn.Linear(300, 2)
    def forward(self, x):
        return self.head(self.body(x).relu())
model = Net(); X = torch.ones(4, 300)
opt = torch.optim.Adam(model.parameters())
def step():
    opt.zero_grad(); loss = model(X).pow(2).sum(); loss.backward(); opt.step()
step()
"""
STATE = (
    "seen = [p.double().sum().item() for p in model.parameters()]"
    " + [s['exp_avg'].double().sum().item() for s in opt.state.values()]"
)
WATCH = "ids = {n: (id(p), p.data_ptr()) for n, p in model.named_parameters()}; me = id(model)"
SAME = (
    "assert me == id(model), 'the model'\n"
    "assert ids == {n: (id(p), p.data_ptr()) for n, p in model.named_parameters()}"
)


@pytest.fixture
def pair(new_halves):
    """Home takes values of up to 200 kB: the model has 360 kB, and Adam twice as much."""
    made = new_halves(available=lambda: MARGIN + 400_000)
    made.attach()
    made.home("import torch")
    made.gpu(MAKE)
    made.gpu(WATCH)
    return made


def plain(*cells):
    space = {}
    for cell in (MAKE, *cells):
        exec(cell, space)
    return space["seen"]


def test_it_is_named_when_it_is_made(new_halves):
    pair = new_halves(available=lambda: MARGIN + 400_000)
    pair.attach()
    pair.gpu(MAKE)
    told = {name for note in pair.after.notes if note.reason == "too_large" for name in note.names}
    assert "model" in told, "and what shares it is counted with it"


LOOKS = {
    "repr(model)": None,
    "sum(p.numel() for p in model.parameters())": None,
    "[tuple(p.shape) for p in model.parameters()]": None,
    "{n: (p.dtype, p.requires_grad, p.is_leaf, p.ndim, len(p)) for n, p in"
    " model.named_parameters()}": None,
    "isinstance(model.body.weight, torch.nn.Parameter)": None,
    "model.training, model.body.in_features": None,
    "type(model) is Net": None,
    "[len(s) for s in opt.state.values()], opt.param_groups[0]['lr']": None,
    "opt.param_groups[0]['params'][0] is model.body.weight": None,
    "model.head.bias.sum().item()": None,  # what is small is there
    "model.head.bias.grad.sum().item(), model.body.weight.grad is None": None,
    "model.body.weight.grad.shape": None,
}


@pytest.mark.parametrize("look", LOOKS)
def test_what_needs_no_value_is_as_in_a_plain_kernel(pair, look):
    space = {}
    exec(MAKE, space)
    assert pair.home(look) == eval(look, space)
    assert "model" not in pair.ns, "it is the GPU's"


READS = [
    "model(X)", "print(model.body.weight + 1)", "model.body.weight.sum()", "model.state_dict()",
    "model.body.weight[0]", "list(model.body.weight)", "model.body.weight.tolist()",
    "bool((model.body.weight == 0).all())", "model.body.weight.grad.sum()", "model.cpu()",
    "model.body.weight.data.zero_()", "torch.save(model, '/dev/null')", "model.body(X).mean()",
    "__import__('copy').deepcopy(model)", "model.body.weight.numpy()", "model.to(torch.float16)",
    "torch.nn.utils.parameters_to_vector(model.parameters())", "model.body.weight.requires_grad_()",
    "__import__('pickle').dumps(model)", "model.body.weight.detach()",
    "model.body.weight.mul_(0)", "torch.equal(model.body.weight, model.body.weight)",
]  # fmt: skip


@pytest.mark.parametrize("read", READS)
def test_reading_or_writing_a_value_says_where_it_is(pair, read):
    with pytest.raises(GPULeaseError, match=r"The values of .*model.* are on the GPU") as caught:
        pair.home(read)
    assert "GPU cell" in caught.value.next_step
    pair.gpu(SAME)
    pair.gpu(STATE)
    assert pair.home("seen") == plain(STATE)


def test_training_goes_on_with_the_same_object(pair):
    for _ in range(2):
        pair.gpu("step()")
        pair.home("count = sum(p.numel() for p in model.parameters())")
    pair.gpu(SAME)
    pair.gpu(STATE)
    assert pair.home("seen") == plain("step()", "step()", STATE)
    row = next(row for row in pair.side.status() if row.name == "model")
    assert row.place is Place.GPU
    assert "Too large" in row.blocker


CHANGES = [
    "model.eval()", "model.head = torch.nn.Linear(3, 3)", "opt.param_groups[0]['lr'] = 9.0",
    "model.note = 'changed'", "model.head.bias.data += 1", "del model.head",
    "try: opt.step()\nexcept Exception: pass",
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("on_gpu", [True, False], ids=["gpu", "home"])
def test_what_home_changes_of_it_is_refused_by_name(pair, change, on_gpu):
    pair.home(change)
    with pytest.raises(GPULeaseError, match=r"changed of .*model.* is not taken"):
        (pair.gpu if on_gpu else pair.home)("1")
    pair.gpu(SAME)
    pair.gpu("step()")
    pair.gpu(STATE)
    assert pair.home("seen") == plain("step()", STATE)


KEPT = [
    "part = model.body", "part = model.head.bias", "part = [model.body.weight]",
    "part = {1: model}",
    "part = opt.param_groups[0]", "part = model.body.weight.grad", "part = model.parameters",
    "class Part: weight = model.body.weight\npart = Part()", "part = lambda m=model: m",
]  # fmt: skip


@pytest.mark.parametrize("keep", KEPT)
def test_a_part_that_home_keeps_is_gone_by_name(pair, keep):
    """On the GPU it would be another object than the model's."""
    pair.home(keep)
    with pytest.raises(GPULeaseError, match="part had a part of such a value, and is gone"):
        pair.gpu("1")
    with pytest.raises(CellError, match="NameError"):
        pair.gpu("part")
    pair.gpu(SAME)


def test_what_was_told_of_a_structure_may_be_kept(pair):
    pair.home("a = [p.shape for p in model.parameters()]; b = model.body.weight.dtype")
    pair.home(
        "c = dict(model.named_parameters()).keys(); c = list(c); d = type(model); e = repr(opt)"
    )
    pair.gpu("assert len(a) == len(c) == 4 and d is Net and b is torch.float32 and 'Adam' in e")


def test_home_may_bind_and_delete_the_name(pair):
    pair.home("model = len(list(model.parameters()))")
    pair.gpu("assert model == 4; opt.param_groups[0]['params'][0].sum().item()")
    pair.home("opt.state; del opt")
    with pytest.raises(CellError, match="NameError"):
        pair.gpu("opt")


def test_what_is_lost_is_lost_by_name(pair):
    pair.home("repr(model)")
    notes = pair.side.disconnect(died=True, cell="3")
    assert {"model", "opt"} <= {name for note in notes for name in note.names}
    with pytest.raises(GPULeaseError, match="model"):
        pair.home("repr(model)")


def test_a_cell_that_does_not_come_to_run_leaves_nothing_of_it(pair):
    pair.gpu("g = (i for i in range(3))")
    with pytest.raises(GPULeaseError, match="g cannot travel"):
        pair.home("repr(model); g")
    assert "model" not in pair.ns
    pair.gpu(SAME)


def test_a_death_while_it_is_looked_at_recovers_no_structure(pair):
    pair.side.before_home_cell("repr(model)")
    assert "model" in pair.ns
    pair.companion.kill()
    notes = pair.side.disconnect(died=True, cell="3")
    assert {"model", "opt"} <= {name for note in notes for name in note.names}
    assert "model" not in pair.ns
    found, (why,) = pair.side.recover(["model"])
    assert not found
    assert "no older value" in why.sentence


def test_its_class_is_one_from_cell_to_cell(new_halves):
    """Also where the class has not come for itself yet: a busy machine leaves it for later."""
    pair = new_halves(settings=BY_NEED, available=lambda: MARGIN + 400_000)
    pair.attach()
    pair.gpu(MAKE)
    pair.home("kind = type(model)")
    pair.home("assert kind is type(model) and isinstance(model, kind)")
    pair.home("assert kind is Net and Net.forward is kind.forward")
    pair.home("assert kind is type(model) is Net")
    pair.gpu("assert kind is Net is type(model)\nclass Net(Net): more = 1")
    pair.home("assert kind is type(model) is Net.__base__ and Net.more == 1")


OTHERS = """
import numpy as np, pandas as pd
big = {
    "model": model, "array": np.arange(300_000.).reshape(1000, 300), "few": np.arange(3),
    "frame": pd.DataFrame({"a": np.arange(50_000), "b": ["text"] * 50_000}),
    "loss": model(X).sum(), "act": model.body(torch.ones(100, 300)),
}
big["part"] = big["array"][:2]; big["column"] = big["frame"].a
big["masked"] = np.ma.masked_less(big["array"], 3); big["shows"] = torch.from_numpy(big["array"])
"""
OTHER_LOOKS = [
    "{n: (v.shape, v.dtype, v.ndim, v.size, v.nbytes, len(v)) for n, v in big.items() if"
    " n in ('array', 'part', 'masked')}",
    "isinstance(big['array'], np.ndarray), isinstance(big['frame'], pd.DataFrame)",
    "type(big['few']) is np.ndarray, big['few'].tolist(), sorted(big)",
    "big['frame'].shape, list(big['frame'].columns), len(big['frame']), big['frame'].empty",
    "[str(t) for t in big['frame'].dtypes], big['column'].name, str(big['column'].dtype)",
    "big['loss'].item(), big['loss'].requires_grad, big['loss'].is_leaf, big['shows'].shape",
    "big['act'].shape, big['act'].requires_grad, big['act'].numel()",
    "callable(getattr(big['array'], 'no', None)), hasattr(big['array'], '__arrow_array__')",
]  # fmt: skip


@pytest.fixture
def full(pair):
    pair.gpu(OTHERS)
    pair.gpu("kept = [id(v) for v in big.values()]")
    return pair


def test_arrays_and_frames_and_tensors_of_a_graph_are_left_out_as_well(full):
    space = {}
    exec(MAKE + OTHERS, space)
    full.home("import numpy as np, pandas as pd")
    for look in OTHER_LOOKS:
        assert full.home(look) == eval(look, space), look


def test_each_of_them_is_shown_as_what_it_is(full):
    said = full.home("repr([big['array'], big['frame'], big['column'], big['act']])")
    assert said == (
        "[<ndarray (1000, 300), float64: the values are on the GPU>, <DataFrame (50000, 2): the "
        "values are on the GPU>, <Series (50000,), int64: the values are on the GPU>, "
        "<(100, 300), torch.float32: the values are on the GPU>]"
    )


OTHER_READS = [
    "big['array'] + 1", "1 + big['array']", "np.ones(300) * big['array']", "np.sum(big['array'])",
    "np.asarray(big['array'])", "big['array'][0]", "list(big['array'])", "big['part'].tolist()",
    "big['array'] == 0", "bool(big['array'])", "big['array'].sum()", "big['array'].fill(0)",
    "big['array'][0] = 1", "pd.DataFrame(big['array'])",
    "np.save('/dev/null', big['array'])", "np.dot(big['array'], 2)", "big['masked'].mean()",
    "big['frame'].a", "big['frame']['a']", "big['frame'].sum()", "big['frame'].head()",
    "big['frame'].index", "pd.concat([big['frame']])", "big['frame'].iloc[0]",
    "big['frame']['c'] = 1", "big['column'] + 1", "np.log(big['column'])",
    "for v in big['frame']: 1",
    "__import__('pickle').dumps(big)", "__import__('copy').copy(big['array'])",
    "big['act'].is_leaf", "big['act'].grad_fn", "big['act'].grad", "big['act'].sum()",
    "big['act']._version", "big['act'].backward()", "f\"{big['array'] @ big['array'].T}\"",
]  # fmt: skip


def answer(pair, read):
    """Return what home said to a read that the explained error should have stopped, else ''."""
    try:
        return f"it gave {pair.home(read)!r}"
    except Exception as error:
        explained = isinstance(error, GPULeaseError) and "are on the GPU" in str(error)
        return "" if explained else f"{type(error).__name__}: {error}"


def test_a_value_of_any_of_them_says_where_it_is(full):
    full.home("import numpy as np, pandas as pd")
    wrong = {read: said for read in OTHER_READS if (said := answer(full, read))}
    assert not wrong
    full.gpu("assert kept == [id(v) for v in big.values()] and big['frame'].a.sum() > 0")


def test_a_part_of_them_that_home_keeps_is_gone_by_name(full):
    for part in ("array", "frame", "act"):
        full.home(f"part = big[{part!r}]")
        with pytest.raises(GPULeaseError, match="part had a part of such a value, and is gone"):
            full.gpu("1")


def test_a_small_graph_over_large_parameters_says_where_its_graph_is(full):
    with pytest.raises(RuntimeError, match=r"the graph of .*big.* is on the GPU: run backward"):
        full.home("big['loss'].backward()")


def test_a_tree_of_jax(pair):
    pytest.importorskip("jax")
    pair.gpu("import jax.numpy as jnp; params = {'w': jnp.ones((1000, 1000)), 'b': jnp.ones(3)}")
    pair.home("import jax; told = jax.tree.map(lambda v: (v.shape, str(v.dtype)), params)")
    assert pair.ns["told"] == {"w": ((1000, 1000), "float32"), "b": ((3,), "float32")}
    for read in ("params['w'].sum()", "params['w'] + 1", "jax.numpy.sin(params['w'])"):
        with pytest.raises(GPULeaseError, match="The values of params are on the GPU"):
            pair.home(read)


def test_what_is_no_array_is_refused_as_a_whole(pair):
    pair.gpu("big = [model, b'1' * 3_000_000]")
    with pytest.raises(GPULeaseError) as caught:
        pair.home("len(big)")
    assert caught.value.reason == "too_big_for_home"
    assert "model" not in pair.ns
    pair.gpu(SAME)


LARGE = """
torch.manual_seed(0); model = torch.nn.Linear(700, 700).to('standin')
X = torch.ones(2, 700).to('standin')
opt = torch.optim.Adam(model.parameters())
def step():
    opt.zero_grad(); loss = model(X).pow(2).sum(); loss.backward(); opt.step(); return loss
loss = step(); act = model(X); keep = [(id(p), p.data_ptr()) for p in model.parameters()]
"""


def test_of_a_model_on_the_device_that_home_has_no_room_for_the_structure_is_there(monkeypatch):
    """A weight has 1.96 MB, and home takes 0.2 MB."""
    pair = OnDevice(monkeypatch, available=lambda: 256 * 2**20 + 400_000)
    try:
        pair.attach()
        pair.gpu(START)
        pair.gpu(LARGE)
        seen = pair.home(
            "repr(model), sum(p.numel() for p in model.parameters()), model.weight.shape,"
            "str(model.bias.device), loss.item() > 0, act.shape,"
            "opt.param_groups[0]['params'][0] is model.weight,"
            "opt.state[model.weight]['exp_avg'].shape"
        )
        assert seen == (
            "Linear(in_features=700, out_features=700, bias=True)", 490700, (700, 700), "cpu",
            True, (2, 700), True, (700, 700),
        )  # fmt: skip
        for read in ("model(X)", "model.cpu()", "model.weight.cpu()", "model.state_dict()",
                     "model.weight.numpy()", "model.weight[0]"):  # fmt: skip
            with pytest.raises(GPULeaseError, match=r"The values of .*model.* are on the GPU"):
                pair.home(read)
        pair.home("model.eval()")
        with pytest.raises(GPULeaseError, match="model, opt is not taken"):
            pair.gpu("1")
        pair.gpu("""
assert model.training and keep == [(id(p), p.data_ptr()) for p in model.parameters()]
inside = (*model.parameters(), act, opt.state[model.weight]['exp_avg'])
where = {str(t.device) for t in inside}; step()
""")
        assert pair.home("where") == {f"{DEVICE}:0"}
    finally:
        pair.close()
