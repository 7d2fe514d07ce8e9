"""What is on a device that home has not: carried through ordinary memory, and back to its place."""

# ruff: noqa: E501 - one cell a line

import sys

import pytest
import torch

from gpulease.transfer.torch import devices
from tests.frameworks import standin
from tests.frameworks.standin import DEVICE, START
from tests.transfer.kinds import empty, open_pair
from tests.transfer.pair import CellError, Companion, Pair

only_standin = pytest.mark.skipif(DEVICE != standin.NAME, reason="of the device that stands in")
MODEL = "import torch, torch.nn as nn, torch.nn.functional as F\ntorch.manual_seed(0); torch.use_deterministic_algorithms(True)\nmodel = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2)); X = torch.randn(32, 8); y = (X.sum(1) > 0).long()"
MOVE = "model.to('standin'); X, y = X.to('standin'), y.to('standin'); opt = torch.optim.Adam(model.parameters())"
STEP = "opt.zero_grad(); loss = F.cross_entropy(model(X), y); loss.backward(); opt.step()"


class OnDevice(Pair):
    """A pair whose cells say "standin" and mean the device that is tested."""

    def home(self, source):
        return super().home(source.replace(standin.NAME, DEVICE))

    def start_gpu(self, source):
        if source != START:
            source = source.replace(standin.NAME, DEVICE)
        super().start_gpu(source)


@pytest.fixture(scope="module")
def module_pair():
    if standin.NAME == DEVICE:
        standin.library()
    with open_pair(kind=OnDevice) as pair:
        pair.gpu(START)
        yield pair


@pytest.fixture
def pair(module_pair):
    """A companion with a device that this process, home, does not have."""
    sys.modules["__main__"] = module_pair.main
    empty(module_pair)
    module_pair.gpu(START)
    assert not hasattr(torch, standin.NAME)
    return module_pair


def next_companion(pair, *, device=True):
    """Give the notebook another companion; its device is there before any value is."""
    pair.side.disconnect(died=False)
    pair.companion.close()
    pair.companion = Companion(pair.keys, pair.settings)
    if device:
        pair.companion.ask({"op": "run", "source": START, "count": 0})
        pair.companion.hear()
    pair.side.connect(pair.companion.endpoint, pair.keys)


@pytest.fixture
def trained(pair):
    pair.home(MODEL)
    pair.held = list(pair.ns["model"].parameters())
    pair.gpu(f"{MOVE}\n{STEP}")
    pair.home("model, opt, loss, X, y")
    return pair


def test_what_is_on_the_device_comes_home_wherever_it_sits_and_goes_back(trained):
    trained.home("""
inside = [*model.parameters(), *model.buffers(), *(p.grad for p in model.parameters()), loss, X, *(t for s in opt.state.values() for t in s.values())]
nested = {"deep": [(X[:2], {"w": model[0].weight.detach()})]}
devices = {str(t.device) for t in inside}; before = [t.tolist() for t in inside]
""")
    assert trained.ns["devices"] == {"cpu"}
    trained.gpu("""
where = [str(t.device) for t in inside if t.dim()]; kept = [t.tolist() for t in inside] == before
steps = {str(s["step"].device) for s in opt.state.values()}
deep = nested["deep"][0]; alias = (deep[0].data_ptr() == X.data_ptr(), deep[1]["w"].data_ptr() == model[0].weight.data_ptr())
""")
    trained.home("where, kept, steps, alias")
    assert set(trained.ns["where"]) == {f"{DEVICE}:0"}
    assert trained.ns["kept"]
    assert trained.ns["steps"] == {"cpu"}  # as the optimiser made it
    assert trained.ns["alias"] == (True, True)


def test_what_nobody_changed_does_not_travel_again(trained):
    trained.gpu("pass")
    assert not trained.last.moved
    trained.home("with torch.no_grad(): model[0].weight.mul_(2)\nseen = X[:2]")
    trained.gpu("pass")
    assert {"model", "opt", "X"} <= set(trained.last.moved)
    trained.gpu("X.mul_(3); opt.zero_grad()")
    assert {"model", "opt", "X"} <= set(trained.after.moved)
    trained.home("pass")
    trained.gpu("pass")
    assert not trained.last.moved
    assert not trained.after.moved


def test_a_parameter_stays_the_object_that_others_hold_when_its_model_moves(trained):
    assert all(a is b for a, b in zip(trained.ns["model"].parameters(), trained.held, strict=True))
    trained.gpu("model.cpu(); opt.zero_grad()")
    trained.home("model")
    trained.gpu("where = str(next(model.parameters()).device)")
    trained.home("where")
    assert trained.ns["where"] == "cpu"
    assert all(a is b for a, b in zip(trained.ns["model"].parameters(), trained.held, strict=True))


def test_training_that_changes_sides_gives_what_one_device_gives(pair):
    cells = [
        MODEL,
        MOVE,
        STEP,
        STEP,
        "w = model[0].weight.detach().cpu().clone(); v = loss.item()",
        STEP,
    ]
    pair.home(cells[0])
    for source in cells[1:4]:
        pair.gpu(source)
    pair.home(cells[4])
    pair.gpu(cells[5])
    pair.home(
        "seen = (w.tolist(), v, loss.item(), [p.tolist() for p in model.parameters()], [b.tolist() for b in model.buffers()])"
    )
    seen = pair.ns["seen"]
    pair.gpu(
        "\n".join(
            [
                *cells,
                "seen = (w.tolist(), v, loss.item(), [p.tolist() for p in model.parameters()], [b.tolist() for b in model.buffers()])",
            ]
        )
    )
    pair.home("seen")
    assert seen == pair.ns["seen"]


def test_what_home_writes_is_on_the_device_in_the_next_cell(trained):
    trained.home("with torch.no_grad(): model[0].weight.fill_(2); X[0] = 5")
    trained.gpu("ok = (model[0].weight.device.type, model[0].weight.sum().item(), X[0].tolist())")
    trained.home("ok")
    assert trained.ns["ok"] == (DEVICE, 256.0, [5.0] * 8)


def test_cpu_of_it_is_a_copy_as_it_is_on_the_device(trained):
    trained.home("""
a, b, c, d = X.cpu(), X.to("cpu"), X.to(torch.device("cpu")), X.to(torch.zeros(1)); n = X.numpy()
same = (X.to(torch.float32) is X, X.to(y) is X, X.float() is X); e = X.to(device="cpu")
for t in (a, b, c, d, e): t.zero_()
n[:] = 0
m = model.state_dict(); host = {k: v.cpu() for k, v in m.items()}; host["0.weight"].zero_()
""")
    assert trained.ns["X"].abs().sum() > 0
    assert trained.held[0].abs().sum() > 0
    assert trained.ns["same"][0]
    assert trained.ns["same"][2]
    trained.gpu(
        "where = [str(t.device) for t in (a, b, c, d, e, host['0.weight'], X, m['0.weight'])]"
    )
    trained.home("where")
    assert trained.ns["where"] == ["cpu"] * 6 + [f"{DEVICE}:0"] * 2


def test_without_a_copy_of_its_own_cpu_writes_into_the_value(trained, monkeypatch):
    """The wrong way: torch's own answer where the memory is home's already."""
    monkeypatch.setattr(devices, "is_tagged", lambda _tensor: False)
    with pytest.raises(AssertionError):
        test_cpu_of_it_is_a_copy_as_it_is_on_the_device(trained)


def test_a_model_that_home_moves_to_the_cpu_stays_there(trained):
    trained.home("model.cpu(); opt.zero_grad()")
    trained.gpu("where = {str(p.device) for p in model.parameters()}")
    trained.home("where")
    assert trained.ns["where"] == {"cpu"}
    assert all(a is b for a, b in zip(trained.ns["model"].parameters(), trained.held, strict=True))


def test_what_home_computes_from_it_is_a_cpu_tensor(trained):
    trained.home("mean = X.mean(0); part = X[:2]")
    trained.gpu("where = (str(mean.device), str(part.device))")
    trained.home("where")
    assert trained.ns["where"] == ("cpu", f"{DEVICE}:0")


def test_unchanged_memory_of_the_device_is_not_sent_and_no_graph_over_it_breaks(trained):
    trained.gpu("opt.zero_grad(); loss = F.cross_entropy(model(X), y)")
    trained.home("v = loss.item()")
    trained.gpu("loss.backward(); g = model[0].weight.grad.abs().sum().item()")
    trained.home("g")
    assert trained.ns["g"] > 0


def test_sparse_and_small_and_empty_tensors_of_the_device(pair):
    pair.gpu(
        "s = torch.eye(3).to('standin'); e = torch.empty(0).to('standin'); big = torch.arange(100_000).to('standin'); half = torch.ones(3).to(torch.bfloat16).to('standin'); t = big[10:20:2]"
    )
    pair.home("seen = (s.tolist(), e.shape, int(big.sum()), half.dtype, t.tolist()); t += 1")
    assert pair.ns["seen"] == (
        torch.eye(3).tolist(),
        (0,),
        4999950000,
        torch.bfloat16,
        [10, 12, 14, 16, 18],
    )
    pair.gpu(
        "seen = (str(e.device), str(half.device), big[10].item(), t.untyped_storage().data_ptr() == big.untyped_storage().data_ptr())"
    )
    pair.home("seen")
    assert pair.ns["seen"] == (f"{DEVICE}:0", f"{DEVICE}:0", 11, True)


def test_losses_of_the_device_in_a_list_come_home_and_have_their_graphs_there(trained):
    trained.gpu(
        "losses = [F.cross_entropy(model(X[:n]), y[:n]) for n in range(2, 302)]; plain = [v.detach() for v in losses]; host = torch.ones(1, requires_grad=True) * 2; mixed = [*losses[:2], host, losses[2]]"
    )
    trained.home(
        "v = [x.item() for x in losses]; same = [a.data_ptr() == b.data_ptr() for a, b in zip(losses, plain)]"
    )
    assert all(trained.ns["same"])
    trained.gpu(
        "w = [x.item() for x in losses]; where = {str(x.device) for x in losses}, str(host.device); losses[7].backward()"
    )
    trained.home("w, where, mixed[2].item()")
    assert trained.ns["v"] == trained.ns["w"]
    assert trained.ns["where"] == ({f"{DEVICE}:0"}, "cpu")


def test_a_default_device_stays_on_its_side(pair):
    pair.home("import torch; torch.set_default_device('meta'); a = 1")
    try:
        pair.gpu(
            "torch.set_default_device('standin'); x = torch.ones(3); s = torch.eye(2, device='cpu').to_sparse(); here = str(x.device), str(s.device)"
        )
        pair.home("here, x, s; y = torch.ones(2); z = s.to_dense().tolist()")
        ns = pair.ns
        assert (ns["here"], ns["y"].device.type, ns["x"].tolist(), ns["z"]) == (
            (f"{DEVICE}:0", "cpu"),
            "meta",
            [1.0] * 3,
            [[1, 0], [0, 1]],
        )
        pair.gpu("again = (str(torch.zeros(1).device), str(s.device)); del y")
        pair.home("again")
        assert ns["again"] == (f"{DEVICE}:0", "cpu")
    finally:
        torch.set_default_device(None)
        pair.gpu("torch.set_default_device(None)")


def test_the_device_is_empty_once_names_and_cache_are(trained):
    trained.gpu("del model, opt, loss, X, y")
    trained.gpu(
        'import gc; gc.collect(); getattr(torch._C, "_cuda_clearCublasWorkspaces", int)(); used = torch.standin.memory_allocated()'
    )
    trained.home("used")
    assert trained.ns["used"] == 0


def test_carrying_takes_little_room_on_the_device(pair):
    """64 MiB at most, whatever the size of what is compared and written."""
    pair.gpu("x = torch.zeros(2**27, dtype=torch.uint8).to('standin'); x[7] = 1")
    pair.home("x[0] = 3")
    pair.gpu("torch.standin.reset_peak_memory_stats()")
    pair.home("x[1] = 4; total = int(x.sum())")
    pair.gpu(
        "there = x[1].item(); extra = torch.standin.max_memory_allocated() - torch.standin.memory_allocated()"
    )
    pair.home("extra, total, there")
    assert pair.ns["there"] == 4
    assert pair.ns["total"] == 8
    assert pair.ns["extra"] <= 64 * 2**20


def test_the_next_companion_gets_it_on_its_device(trained):
    trained.home("model, opt, loss, X, y")
    before = [p.tolist() for p in trained.held]
    next_companion(trained, device=False)
    trained.gpu("w = str(X.device)")
    trained.home("w")
    assert trained.ns["w"] == "cpu"
    next_companion(trained)
    trained.gpu(f"w = {{str(t.device) for t in (X, *model.parameters())}}; {STEP}")
    trained.home("w, model, opt")
    assert trained.ns["w"] == {f"{DEVICE}:0"}
    assert [p.tolist() for p in trained.held] != before


@only_standin
def test_generators_of_the_device_go_on_with_the_next_companion(pair):
    expected = torch.Generator().manual_seed(5)
    expected = [torch.rand(2, generator=expected).tolist() for _ in range(4)]
    draw = "torch.zeros(1).to('standin'); seen.append(torch.rand(2, generator=torch.standin.generator).tolist())"
    pair.home("import torch; torch.manual_seed(5); seen = []")
    pair.gpu(draw)
    pair.home("seen")
    pair.gpu(draw)
    pair.home("seen")
    next_companion(pair)
    pair.gpu(draw)
    pair.home("seen")
    assert pair.ns["seen"] == expected[:3]
    pair.home("torch.manual_seed(5)")
    pair.gpu(draw)
    pair.home("seen")
    assert pair.ns["seen"] == [*expected[:3], expected[0]]


@only_standin
def test_no_device_is_started_before_the_notebook_does(new_pair):
    pair = new_pair()
    pair.attach()
    pair.home("import torch; x = torch.ones(3); torch.manual_seed(1)")
    pair.gpu(
        "from tests.frameworks import standin; m = standin.start(); x += 1; started = (m.is_initialized(), torch.cuda.is_initialized(), torch.cuda._is_in_bad_fork()); del m"
    )
    pair.home("x, started")
    pair.gpu(
        "started = (torch.standin.is_initialized(), torch.cuda.is_initialized(), torch.cuda._is_in_bad_fork())"
    )
    pair.home("started")
    assert pair.ns["started"] == (False, False, False)


@only_standin
def test_home_has_no_such_device(pair):
    with pytest.raises(RuntimeError, match="standin"):
        pair.home("import torch; torch.ones(2).to('standin')")


def test_a_mismatch_of_devices_names_the_tensor_and_the_home_cell_that_made_it(trained):
    trained.home("mean = X.mean(0); lr = torch.tensor(.1)")
    cell = trained.homes
    with pytest.raises(CellError) as caught:
        trained.gpu("def centre(): return X - mean * lr\ncentre()")
    said = "RuntimeError: Expected all tensors to be on the same device, but found at least two"
    sentence = trained.side.explain_error(said)
    assert sentence.startswith(f"mean was computed in your notebook by cell [{cell}] and is on the")
    assert "lr was" not in sentence
    assert "X was" not in sentence
    assert not trained.side.explain_error("ZeroDivisionError")
    assert caught.value


@only_standin
def test_no_room_on_the_device_is_explained_by_who_has_it(trained):
    trained.gpu("big = torch.zeros(2**20, dtype=torch.uint8).to('standin')")
    with pytest.raises(CellError) as caught:
        trained.gpu("""
torch.standin.limit(torch.standin.memory_allocated() + 5000)
kept = 7
try:
    torch.zeros(2**22, dtype=torch.uint8).to('standin')
finally:
    torch.standin.limit(2**62)
""")
    text = str(caught.value)
    assert "OutOfMemoryError" in text
    assert "In use on the GPU: big: 1.0 MB; " in text
    assert "model, opt: " in text  # they share their parameters, and no row counts those twice
    assert text.count("model") == 1
    trained.home("kept, big")
    assert trained.ns["kept"] == 7
    assert trained.ns["big"].sum() == 0
