"""What must hold for the objects themselves: identity, versions, graphs, and what is sent."""

# ruff: noqa: E501 - one cell a line

import sys

import pytest
import torch

from gpulease.errors import GPULeaseError
from gpulease.transfer.side import Side
from tests.frameworks.notebooks import HEAD, NET
from tests.transfer.kinds import empty
from tests.transfer.pair import CellError, kept_notes

STEP = "opt.zero_grad(); loss = F.cross_entropy(model(X), y); loss.backward(); opt.step()"


@pytest.fixture
def pair(eager):
    """The file's pair, with an empty notebook."""
    sys.modules["__main__"] = eager.main
    if eager.side.connected:
        empty(eager)
    else:
        eager.restart()
    return eager


@pytest.fixture
def trained(pair):
    """A pair whose model was made at home, held from outside, and trained on the GPU."""
    pair.home(HEAD + NET + "opt = torch.optim.SGD(model.parameters(), lr=.1, momentum=.9)")
    pair.held = list(pair.ns["model"].parameters())
    pair.gpu(STEP)
    pair.home("model, opt, loss")
    return pair


def test_a_parameter_stays_the_very_object_that_others_hold(trained):
    before = [p.detach().clone() for p in trained.held]
    trained.gpu(STEP)
    trained.home("now = list(model.parameters()); group = opt.param_groups[0]['params']")
    ns = trained.ns
    assert all(a is b is c for a, b, c in zip(ns["now"], trained.held, ns["group"], strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(trained.held, before, strict=True))


def test_a_view_and_a_closure_at_home_see_what_was_written_beside_the_gpu(trained):
    view = trained.held[0].detach()[0]
    trained.gpu("with torch.no_grad(): model.a.weight.fill_(3)")
    trained.home("model")
    assert view.tolist() == [3.0] * 8


def test_backward_at_home_says_where_the_graph_is(trained):
    with pytest.raises(
        RuntimeError, match="the graph of loss is on the GPU: run backward in a GPU"
    ):
        trained.home("loss.backward()")
    trained.home("v = loss.item(); s = f'{loss:.3f}'; total = loss.detach() + 1")
    assert trained.ns["v"] > 0


def test_a_gradient_over_a_value_from_away_is_never_silently_wrong(trained):
    """Without the leaves as inputs of its node the answer would be that of ``w**2`` alone."""
    trained.gpu("w = model.a.weight; fresh = F.cross_entropy(model(X), y)")
    with pytest.raises(RuntimeError, match=r"graph of .*fresh"):
        trained.home("torch.autograd.grad(fresh + (w ** 2).sum(), w)")
    trained.home("g, = torch.autograd.grad((w ** 2).sum(), w)")
    assert torch.equal(trained.ns["g"], 2 * trained.held[0])


def test_a_value_of_a_graph_is_no_view_and_takes_in_place_sums(trained):
    trained.gpu("fresh = F.cross_entropy(model(X), y)")
    trained.home("t = fresh; t += 1; kinds = (t.requires_grad, t.is_leaf, t._is_view())")
    assert trained.ns["kinds"] == (True, False, False)


def test_back_beside_the_gpu_the_value_has_its_graph_again(trained):
    trained.gpu("opt.zero_grad(); loss = F.cross_entropy(model(X), y)")
    trained.home("v = loss.item()")
    trained.gpu("loss.backward(); opt.step(); g = model.a.weight.grad.abs().sum().item()")
    trained.home("assert g > 0")


def test_what_home_computed_from_it_has_no_whole_graph_anywhere(trained):
    trained.home("mean = (loss + loss) / 2")
    with pytest.raises(
        CellError, match="mean was computed in your notebook from a value whose graph"
    ):
        trained.gpu("mean.backward()")
    trained.gpu(STEP)  # and the model is none the worse for it
    trained.home("assert mean.grad_fn is not None")


def test_a_graph_at_home_over_values_that_did_not_change_still_runs_backward(trained):
    """Equal bytes are not written again: that would raise the version and break the graph."""
    trained.home("p = torch.nn.Parameter(torch.ones(3)); out = (p * p).sum(); q = torch.zeros(1)")
    versions = [p._version for p in trained.held]
    p = trained.ns["p"]
    trained.gpu("q += p.sum()")
    trained.home("out.backward(); q")
    assert p.grad.tolist() == [2.0, 2.0, 2.0]
    assert [p._version for p in trained.held] == versions


def test_a_graph_at_home_over_values_that_changed_stops(trained):
    trained.home("p = torch.nn.Parameter(torch.ones(3)); out = (p * p).sum()")
    trained.gpu("with torch.no_grad(): p.mul_(2)")
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        trained.home("out.backward()")


@pytest.mark.parametrize("write", ["v.mul_(2)", "d.mul_(2)", "b.add_(1)"])
def test_a_write_to_another_face_of_what_a_graph_saved_stops_it(pair, write):
    """Also where one was made on the other side, and its base is no value of the notebook."""
    pair.gpu("import torch; w = torch.arange(4.); v = w[1:3]; a, b = torch.arange(4.).chunk(2)")
    pair.home("p, q = (torch.ones(n, requires_grad=True) for n in (4, 2)); d = w.detach()")
    pair.home("both = (p * w).sum(), (q * a).sum()")
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        pair.home(f"{write}\nfor each in both: each.backward()")


def test_a_graph_written_into_a_view_reaches_its_base(pair):
    pair.gpu("import torch; whole = torch.zeros(4); part = whole[1:3]")
    pair.home("p = torch.ones(2, requires_grad=True); part.copy_(p * 3); whole.sum().backward()")
    assert pair.ns["p"].grad.tolist() == [3.0, 3.0]


def test_requires_grad_changes_no_version(trained):
    versions = [p._version for p in trained.held]
    trained.gpu("model.requires_grad_(False)")
    trained.home("model.requires_grad_(True)")
    trained.gpu("flags = [p.requires_grad for p in model.parameters()]")
    trained.home("assert all(flags)")
    assert [p._version for p in trained.held] == versions


def test_only_storages_that_changed_travel(pair):
    pair.home("import torch\nm = torch.nn.Linear(1000, 1000); n = torch.zeros(200_000)")
    pair.gpu("m.note = n; n += 1")
    assert 800_000 < pair.after.bytes < 1_200_000
    pair.home("m.bias.data += 1; assert m.note is n and n[0] == 1")
    pair.gpu("assert m.note is n")
    assert pair.last.bytes < 1_000_000, "what is larger is not sent again"


def test_a_hook_made_at_home_does_not_replace_one_from_away(trained):
    """A module keeps its hooks by number, and each process counts for itself."""
    trained.gpu("n = []\nfor _ in range(5): model.a.register_forward_hook(lambda *a: n.append(1))")
    trained.home("model.a.register_forward_hook(lambda *a: n.append(2)); model(X)")
    assert trained.ns["n"] == [1, 1, 1, 1, 1, 2]


def test_a_thousand_losses_are_over_one_node(trained):
    trained.gpu("many = [F.cross_entropy(model(X[:2]), y[:2]) for _ in range(1000)]")
    trained.home("nodes = {v.grad_fn.next_functions[0][0] for v in many}")
    assert len(trained.ns["nodes"]) == 1


def test_deleting_a_loss_at_home_frees_its_graph_before_the_next_cell(trained):
    trained.gpu(
        "import weakref\nbig = torch.zeros(10, requires_grad=True); loss2 = (big * 1).sum(); r = None"
    )
    trained.gpu("watch = lambda: None\nwatch.ref = None")
    trained.home("del loss2, big")
    trained.gpu(
        "import gc\nleft = sum(1 for o in gc.get_objects() if issubclass(type(o), torch.Tensor) and o.shape == (10,))"
    )
    trained.home("assert left == 0, left")


def test_a_graph_dies_with_its_companion_and_its_value_stays(trained):
    trained.home("v = loss.item()")
    trained.side.disconnect(died=False)
    trained.companion.close()
    trained.attach()
    trained.gpu("w = loss.item()")
    trained.home("assert v == w")
    with pytest.raises((CellError, GPULeaseError), match="graph of loss"):
        trained.gpu("loss.backward()")
    trained.gpu(STEP)


def test_a_generator_stays_the_object_that_others_hold(pair):
    pair.home("import sys, torch; g = torch.Generator().manual_seed(9); sys.held = g")
    pair.gpu("torch.rand(1, generator=g)")
    notes = pair.after.notes
    pair.home("seen = g is sys.held, torch.rand(1, generator=sys.held).item(); del sys.held")
    expected = torch.Generator().manual_seed(9)
    torch.rand(1, generator=expected)
    assert pair.ns["seen"] == (True, torch.rand(1, generator=expected).item())
    assert not (*notes, *pair.last.notes)


def test_the_cpu_generator_is_one(trained):
    trained.home("torch.manual_seed(5); a = torch.rand(2)")
    trained.gpu("b = torch.rand(2)")
    trained.home("c = torch.rand(2)")
    torch.manual_seed(5)
    expected = [torch.rand(2).tolist() for _ in range(3)]
    assert [trained.ns[n].tolist() for n in "abc"] == expected


def test_a_seed_counts_when_it_was_set_and_not_when_its_number_changed(trained):
    """It waits in torch's queue, for no device is initialised ahead of the user."""
    queue = "torch.cuda._lazy_seed_tracker.manual_seed_all_cb"
    trained.home("torch.manual_seed(3)")
    trained.gpu(f"first = id({queue}); seed = {queue}[0].__closure__[0].cell_contents")
    trained.home("assert seed == 3; torch.rand(1)")
    trained.gpu(f"same = id({queue}) == first")
    trained.home("assert same; torch.manual_seed(3)")
    trained.gpu(f"same = id({queue}) == first")
    trained.home("assert not same")
    trained.gpu("started = torch.cuda.is_initialized()")
    trained.home("assert not started")


def test_torch_imported_by_the_first_gpu_cell_goes_on_with_homes_generator(new_pair):
    pair = new_pair()
    pair.attach()
    torch.manual_seed(7)
    pair.gpu("import torch; a = torch.rand(1)")
    pair.home("a; b = torch.rand(1)")
    torch.manual_seed(7)
    assert [pair.ns["a"].item(), pair.ns["b"].item()] == [torch.rand(1).item() for _ in range(2)]


@pytest.mark.parametrize(
    "cell",
    [
        "buf = bytearray(16)\nt = torch.frombuffer(buf, dtype=torch.uint8)",
        "buf = bytearray(16)\nt = [torch.frombuffer(buf, dtype=torch.uint8, offset=8)]",
        "import array\nbuf = array.array('d', [1, 2])\nt = torch.frombuffer(buf, dtype=torch.float64)",
        "buf = bytearray(16)\nt = torch.from_numpy(np.frombuffer(buf, dtype='u1'))",
    ],
)
def test_a_tensor_and_a_buffer_that_share_memory_are_refused_by_name(pair, cell):
    pair.home("import torch, numpy as np\nx = 1\n" + cell)
    pair.gpu("x += 1")
    for name in ("buf", "t"):
        with pytest.raises(
            GPULeaseError, match=rf"{name}\b.* memory that a tensor and a \w+ share"
        ):
            pair.gpu(f"{name}[0]")
    pair.home("assert x == 2\ndel buf")
    pair.gpu("t")  # nobody else shows it any more


def test_what_came_by_dlpack_stays_over_the_same_memory(pair):
    """Given another storage, the tensor that owns the memory would let go of it."""
    pair.home("import torch\nt = torch.zeros(300); u = torch.from_dlpack(t); n = t.numpy()")
    pair.gpu("u += 1")
    pair.home("t[0] = 5; first = (u.tolist(), n.tolist())")
    pair.gpu("t[1] = 6; same = t.data_ptr() == u.data_ptr()")
    pair.home(
        "import gc; gc.collect(); more = torch.full((300,), 9.); seen = (t.tolist(), u.tolist(), n.tolist()); same"
    )
    assert pair.ns["first"] == ([5.0] + [1.0] * 299,) * 2
    assert pair.ns["seen"] == ([5.0, 6.0] + [1.0] * 298,) * 3
    assert pair.ns["same"]


@pytest.mark.parametrize("first", ["home", "gpu"])
def test_a_row_of_a_weight_that_has_changed_since_hinders_nothing(pair, first):
    """Not even torch says what its node is: the base of a view out of many was written."""
    here, there = (pair.home, pair.gpu)[:: 1 if first == "home" else -1]
    step = "net(torch.ones(2)).sum().backward(); opt.step()\n"
    same = "assert torch.equal(row.detach(), net.weight[2])\n"
    here(
        "import torch\nnet = torch.nn.Linear(2, 3); opt = torch.optim.SGD(net.parameters(), .1)\n"
        f"for row in net.weight: pass\n{step}"
    )
    there(same + step)
    here(same + step)
    with pytest.raises((CellError, RuntimeError), match=r"graph of row|view"):
        there("(row + 1).sum().backward()")
    there(f"{same}del row\n{step}")
    here("assert 'row' not in globals()")


@pytest.mark.filterwarnings("ignore")
def test_a_scripted_or_traced_module_is_refused_by_name(pair):
    """What its code was optimised to is in no file, and ``grad_fn`` would tell.

    It shows the parameters that it shares as they are after a GPU cell.
    """
    pair.home(
        "import torch\nnet = torch.nn.Linear(2, 2); x = torch.ones(1, 2); y = x + 1\n"
        "scripted = torch.jit.script(net)\ntraced = [torch.jit.trace(torch.nn.ReLU(), x)]"
    )
    pair.gpu("y += x; net.weight.data.zero_(); net.bias.data.fill_(2)")
    for name in ("scripted", "traced"):
        with pytest.raises(GPULeaseError, match=rf"{name}\b.* a scripted or traced module"):
            pair.gpu(f"{name}")
    pair.home("seen = (y.tolist(), scripted(x).tolist(), type(traced[0]).__name__)")
    assert pair.ns["seen"] == ([[3.0, 3.0]], [[2.0, 2.0]], "TopLevelTracedModule")


def test_an_array_is_held_by_its_variable_alone():
    """What the look for shared memory notes of it is no holder."""
    space = {"__name__": "__main__", "__builtins__": __builtins__}
    side = Side("h", space, hidden=set(space))
    exec("import numpy as np\na = np.zeros(3); b = a[1:]; m = np.ma.array([1.0, 2.0])", space)
    assert side.pack().pins == frozenset()


HELD = "import torch\ndef sums(x):\n    while True: yield float(x.sum())\n"


def kept(pair):
    return [note.sentence for note in kept_notes(pair)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("a += 1; del a", "a was deleted"),
        (
            "b += 1; b = [b.clone()]",
            "b is another object in your notebook since a GPU cell changed it",
        ),
        ("box = [c]; c += 1; del c, box", "c was deleted"),
    ],
)
def test_what_a_generator_of_home_goes_on_holding_is_named(pair, change, said):
    name = said[0]  # of each variable it is said once
    pair.home(f"{HELD}{name} = torch.zeros(3); seen = sums({name}); next(seen)")
    pair.gpu(change)
    pair.home("pass")
    (sentence,) = kept(pair)
    assert said in sentence
    assert ", and seen still has the one from before." in sentence


def test_what_a_generator_of_the_gpu_goes_on_holding_is_named(pair):
    pair.gpu(HELD + "d = torch.zeros(3); seen = sums(d); next(seen)")
    pair.home("d += 1; del d")
    pair.gpu("now = next(seen)")
    (sentence,) = kept(pair)
    assert "d was deleted" in sentence


def test_a_tensor_that_goes_on_elsewhere_in_the_notebook_is_not_named(pair):
    """In another variable, in an attribute, in an error's frames, or as what a model trains."""
    pair.home(
        "import torch\nt = torch.zeros(3); net = torch.nn.Linear(2, 2); a, b = net.parameters()\nclass Box: pass\n"
        "u, v = torch.zeros(2), [torch.zeros(2)]\nbox = Box(); inner = []\n"
        "def fails(x): x.no_such_name\ntry: fails(v[0])\nexcept AttributeError as error: kept = error"
    )
    pair.gpu(
        "t += 1; box.t = t; del t; inner.append(u); u += 1; del u; b.data += 1; del a, b; v = [1]"
    )
    pair.home("pass")
    assert kept(pair) == []


@pytest.mark.parametrize("first", ["home", "gpu"])
def test_what_something_holds_comes_at_once_however_large_it_is(new_pair, first):
    pair = new_pair(settings={"small_bytes": 1000})
    pair.attach()
    here, there = (pair.home, pair.gpu)[:: 1 if first == "home" else -1]
    here(HELD + "t = torch.zeros(1000); seen = sums(t)")
    there("t += 1")
    here("now = next(seen)")
    pair.home("now")
    assert pair.ns["now"] == 1000.0


@pytest.mark.parametrize("first", ["home", "gpu"])
def test_an_array_of_a_tensor_that_something_holds_is_written(pair, first):
    here, there = (pair.home, pair.gpu)[:: 1 if first == "home" else -1]
    here(HELD + "a = torch.zeros(3).numpy(); seen = sums(a); next(seen)")
    there("a += 1")
    here("now = (next(seen), a.tolist())")
    pair.home("now")
    assert pair.ns["now"] == (3.0, [1.0] * 3)


@pytest.mark.parametrize("value", ["torch.zeros(1000)", "(torch.zeros(1000), 1)"])
def test_by_need_a_generator_sees_what_was_changed_or_its_variable_is_named(new_pair, value):
    pair = new_pair(settings={"small_bytes": 1000})
    pair.attach()
    pair.home(
        f"import torch\ndef sums(x):\n    while True: yield float(x[0].sum())\n"
        f"e = {value}; seen = sums(e); f = {value}; more = sums(f)"
    )
    pair.gpu("e[0].add_(1); f[0].add_(1); f = torch.ones(2000)")
    pair.home("now = next(seen)")
    assert pair.ns["now"] == (1.0 if value[0] == "t" else 1000.0)
    (sentence,) = kept(pair)
    assert sentence.startswith("f is another object in your notebook")
    assert ", and more still has the one from before." in sentence
