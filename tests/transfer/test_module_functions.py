"""Functions and classes of modules: they are the module's on both sides, and join nothing."""

import sys
import types

import pytest

from gpulease.transfer.by_class import of_rust
from tests.transfer.kinds import plain, play

CELLS = {
    "random": [
        "from random import random, seed, shuffle\nimport random as r\nseed(1); a = [random()]",
        "a.append(random()); shuffle(a)",
        "a += [random(), r.random()]; seed(5)",
        "a += [r.random(), random()]",
        "seen = a, seed.__self__ is r._inst, random.__self__ is seed.__self__",
    ],
    "numpy": [
        "from numpy.random import rand, seed\nimport numpy as np\nseed(1); a = [rand()]",
        "a.append(rand())",
        "a += [np.random.rand(), rand()]; seed(5)",
        "a += [rand(), np.random.rand()]",
        "seen = a, rand.__self__ is np.random.mtrand._rand",
    ],
    "cached": [
        "import fnmatch as m\nc = m._compile_pattern\na = [m._compile_pattern is c]",
        "a.append(c is m._compile_pattern); c('x*')",
        "a.append(c is m._compile_pattern)",
        "d = {'c': c}",
        "a.append(d['c'] is m._compile_pattern); seen = a",
    ],
}


@pytest.mark.parametrize("case", CELLS)
def test_as_in_one_process(eager, case):
    assert play(eager, CELLS[case], beside_gpu=False) == plain(CELLS[case])


def test_a_generator_of_ones_own_travels_by_value(pair):
    pair.home("import random, numpy as np\ng = random.Random(1); n = np.random.RandomState(1)")
    pair.gpu("x = g.random(), n.rand()")
    pair.home("h = random.Random(1), np.random.RandomState(1)\ny = h[0].random(), h[1].rand()")
    pair.home("assert x == y; y = h[0].random(), h[1].rand()")
    pair.home("assert (g.random(), n.rand()) == y")


def test_a_class_that_calls_itself_a_builtin_is_not_the_notebooks(monkeypatch):
    """``safe_open`` of safetensors, once multiprocessing, and so torch, is imported."""
    kind = type("Opened", (), {"__module__": "builtins"})
    for name in ("__main__", "__mp_main__", "rusty"):
        module = types.ModuleType(name)
        module.Opened = kind
        monkeypatch.setitem(sys.modules, name, module)
    assert of_rust(kind) == (sys.modules["rusty"], "Opened")
