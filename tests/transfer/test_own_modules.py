"""A student's own file that has a library's name breaks nothing."""

import sys

import pytest

#: Nothing in it is what the library has; some of it has the library's names.
OWN = "class Tensor: pass\nvalue = 3\ndef manual_seed(n): return n\n"
NAMES = ("accelerate", "ipywidgets", "jax", "torch", "torchvision", "tqdm", "transformers")


@pytest.fixture
def files(monkeypatch, tmp_path):
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(OWN)
        for module in [m for m in sys.modules if m == name or m.startswith(f"{name}.")]:
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in NAMES:
        sys.modules.pop(name, None)


def test_files_with_the_names_of_libraries_are_modules_like_others(files, new_pair):
    pair = new_pair()
    pair.attach()
    every = f"import {', '.join(NAMES)}\n"
    pair.home(every + "x = torch.Tensor(); x.n = [torch.value]; torch.manual_seed(1)")
    pair.gpu("x.n.append(2); y = jax.Tensor()")
    pair.gpu(every + "z = torch.Tensor(), jax.value")
    pair.home("seen = x.n, type(y) is jax.Tensor, type(z[0]) is torch.Tensor")
    assert pair.ns["seen"] == ([3, 2], True, True)
