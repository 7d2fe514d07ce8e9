"""``%gpu auto``: which cells run on the GPU, as a table, and in a kernel."""

import random
import types

import pytest

from gpulease.kernel.auto.classify import decide
from gpulease.kernel.auto.kinds import Kinds
from tests.kernel.parts import HomeKernel

#: A library of that name and shape: the real one takes seconds to import.
TORCH = """
class Tensor:
    def item(self): return 1.0
    def backward(self): pass
    def __add__(self, other): return self
class Module:
    def __call__(self, x): return Tensor()
    def parameters(self): return []
def rand(*shape): return Tensor()
def manual_seed(n): pass
class cuda:
    @staticmethod
    def is_available(): return False
"""
BEFORE = """
import pandas as pd, numpy as np
import torch
nn = torch
x = torch.rand(3); losses = [1.0, 2.0]; history = [x]; df = pd.DataFrame({'a': [1]}); n = 3
class Net(torch.Module): pass
model = Net()
def train(steps): return model(x)
def score(m, data): return m(data)
def twice(v): return 2 * v
def plot(v): return v
"""


@pytest.fixture(scope="module")
def space():
    torch = types.ModuleType("torch")
    exec(TORCH, torch.__dict__)
    for value in vars(torch).values():
        if isinstance(value, type):
            value.__module__ = "torch"
    main = types.ModuleType("__main__")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("sys").modules, "torch", torch)
        exec(BEFORE, main.__dict__)
        yield main.__dict__


AWAY = [
    "device = 'cuda' if torch.cuda.is_available() else 'cpu'",
    "x = torch.rand(3)",
    "import torch\ny = torch.zeros(3)",
    "from torch import nn\nlayer = nn.Linear(3, 4)",
    "import jax.numpy as jnp\na = jnp.ones(3)",
    "out = model(x)",
    "model = Net()",
    "loss = x + 1",
    "x += 1",
    "x[mask] = 0",
    "loss.backward() if n else x.backward()",
    "train(3)",
    "score(model, 3)",
    "for i in range(3):\n    out = model(x)",
    "if n:\n    model(x)",
    "[model(v) for v in losses]",
    "print(model(x).item())",
    "!nvidia-smi",
    "gpus = !nvidia-smi -L",
    "%%time\nmodel(x)",
    "%time model(x)",
    "def f():\n    return torch.rand(3)\nf()",
    "for v in history:\n    v.backward()",
    "from numba import cuda\ncuda.synchronize()",
    "from transformers import pipeline\npipe = pipeline('x')",
    "big",
]
HOME = [
    "import torch",
    "import torch.nn as nn, pandas as pd\nfrom torch import nn",
    "def f(x):\n    return torch.rand(3)",
    "class Net2(torch.Module):\n    def forward(self, x): return x + 1",
    "torch.manual_seed(0)",
    "df.describe()",
    "df['a'] = df['a'] * 2",
    "print(x)",
    "x",
    "x.item()",
    "print(x.item(), len(history))",
    "losses.append(x.item())",
    "mean = sum(losses) / len(losses)",
    "total = x.item() + 1",
    "import matplotlib.pyplot as plt\nplt.plot(losses)",
    "twice(n)",
    "np.mean([v.item() for v in history])",
    "sum(p.numel() for p in model.parameters())",
    "print(torch.__version__)",
    "print(x.shape)",
    "f = lambda: torch.rand(3)",
    "%%bash\nnvidia-smi || true".replace("nvidia-smi", "ls"),
    "%matplotlib inline",
    "!ls",
    "x = = 1",
    "",
    "model is None",
]


@pytest.mark.parametrize("source", AWAY)
def test_what_uses_a_gpu_library_goes_away(space, source):
    found = decide(source, Kinds(space, away={"big"}).of)
    assert found.away, found.why
    assert found.why


@pytest.mark.parametrize("source", HOME)
def test_what_only_defines_reads_or_plots_stays(space, source):
    found = decide(source, Kinds(space, away={"big"}).of)
    assert not found.away, found.why


def test_the_reason_names_the_code_and_the_library(space):
    look = Kinds(space, away={"big"}).of
    assert decide("n = 1\nout = model(x)", look).why == "model(x) uses torch"
    assert decide("print(big)", look).why == "big is on the GPU only"
    assert decide("!nvidia-smi", look).why == "nvidia-smi is about the GPU"
    assert decide("n = 1", look).why == "it uses no GPU library"


def test_a_module_of_ones_own_that_imports_one_counts(space, tmp_path):
    own = types.ModuleType("mymodel")
    own.__file__ = str(tmp_path / "mymodel.py")
    own.torch = space["torch"]
    other = types.ModuleType("mytools")
    other.__file__ = str(tmp_path / "mytools.py")
    look = Kinds({**space, "mymodel": own, "mytools": other}).of
    assert decide("mymodel.fit()", look).away
    assert not decide("mytools.read()", look).away
    assert not decide("np.linalg.norm([1])", look).away


def test_a_notebook_as_it_is_found(home: HomeKernel) -> None:
    """Not one character changed: the GPU is asked for beside it, what is read is read at home."""
    (home.directory / "cupy.py").write_text(TORCH)
    home.run("import os; here = os.getpid()")
    try:
        assert "run on the GPU and say why" in home.run("%gpu auto").text()
        cell = home.run("import cupy\nhere == os.getpid()")
        assert cell.result == "True"
        assert not cell.shown(), "what is as ever needs no word"
        cell = home.run("device = 'cuda' if cupy.cuda.is_available() else 'cpu'\nos.getpid()")
        assert int(cell.result or 0) != home.pid
        assert "Ran on the GPU: cupy.cuda.is_available() uses cupy." in cell.shown()
        cell = home.run("%%capture caught\nx = cupy.rand(3); there = os.getpid()")
        assert cell.ok, cell.traceback
        assert "Ran on the GPU" in cell.shown(), "under the cell, not in what it captured"
        cell = home.run("print(x.item(), here == os.getpid(), there == here)")
        assert cell.text() == "1.0 True False\n"
        assert "Ran" not in home.run("%%cpu\nx + 1").shown()
        failed = home.run("x.nothing()")
        assert failed.error.startswith("AttributeError")
        assert "Ran on the GPU: x.nothing() uses cupy." in failed.shown()
        assert "Cells that use a GPU library run on the GPU" in home.run("%gpu").text()
    finally:
        home.run("%gpu off")
    cell = home.run("x + 1; os.getpid() == here")
    assert cell.result == "True"
    assert "Ran" not in cell.shown()


#: Uses a GPU where nothing of its name says so; counts how often it was called.
LIBRARY = """
import os, random
GPU = os.environ.get('GPULEASE_COMPANION_MARK')
calls = 0
def need(home):
    if os.getpid() == home:
        raise AssertionError('Torch not compiled with CUDA enabled')
    return os.getpid()
def solve(home, before=lambda: None):
    before()
    random.random()
    return need(home)
"""


@pytest.fixture
def auto(home: HomeKernel):
    (home.directory / "solver.py").write_text(LIBRARY)
    (home.directory / "cupy.py").write_text("")
    home.run("%reset -f")
    home.run("import os, random, solver, cupy; here = os.getpid(); n = []; random.seed(1)")
    home.run("%gpu auto")
    yield home
    home.run("%gpu off")


def test_a_cell_that_fails_for_want_of_a_gpu_goes_on_on_one(auto: HomeKernel) -> None:
    cell = auto.run("n.append(1); a = 1\nthere = solver.solve(here)\nn.append(2)\nos.getpid(), n")
    assert cell.ok, cell.traceback
    assert cell.result != f"({auto.pid}, [1, 2])"
    assert cell.result is not None
    assert cell.result.endswith("[1, 2])")  # what stood before it ran once
    assert "Ran on the GPU from line 2 on: it asks for a GPU." in cell.shown()
    assert "stream" not in cell.kinds()
    cell = auto.run("there != here, a, n, random.random()")
    random.seed(1)
    random.random()
    assert cell.result == f"(True, 1, [1, 2], {random.random()})"


def test_an_error_behind_it_is_the_cells(auto: HomeKernel) -> None:
    cell = auto.run("there = solver.solve(here)\n\n1 / 0")
    assert cell.error == "ZeroDivisionError: division by zero"
    assert "line: 3" in cell.traceback or "----> 3" in cell.traceback
    assert auto.run("there != here").result == "True"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("if here:\n    solver.solve(here)", "it failed inside a larger statement"),
        ("solver.solve(here, lambda: print(5))", "had printed something"),
        ("solver.solve(here, lambda: display(5))", "had shown something"),
        ("solver.solve(here, lambda: open('f', 'w').close())", "had opened a file"),
        ("solver.solve(here, lambda: os.mkdir(str(random.random())))", "outside Python"),
        ("solver.solve(here, lambda: os.system('true'))", "outside Python"),
        ("solver.solve(here, lambda: n.append(1))", "had changed n"),
        ("solver.solve(here, lambda: globals().update(m=1))", "had bound m"),
        (
            "solver.solve(here, lambda: __import__('threading').Thread(target=int).start())",
            "had started a thread",
        ),
    ],
)
def test_what_cannot_be_run_twice_says_so(auto: HomeKernel, source: str, why: str) -> None:
    cell = auto.run(source)
    assert cell.error.startswith("AssertionError: Torch not compiled with CUDA")
    assert why in cell.traceback
    assert "put %%gpu on the cell's first line" in cell.traceback
    assert auto.run(f"%%gpu\nbefore = solver.solve(here) != here\n{source}").ok


def test_without_auto_nothing_is_taken_anywhere(auto: HomeKernel) -> None:
    auto.run("%gpu off")
    cell = auto.run("solver.solve(here)")
    assert "put %%gpu on the cell's first line.\n" in cell.traceback + "\n"
    assert "did not take it there" not in cell.traceback


def test_a_library_that_only_the_gpu_has_is_imported_there(home: HomeKernel) -> None:
    look = Kinds({}).of
    assert decide("import cudf", look).why == "cudf is not installed in your notebook"
    assert decide("from cuml import svm", look).away
    assert not decide("try:\n    import cudf\nexcept ImportError:\n    pass", look).away
