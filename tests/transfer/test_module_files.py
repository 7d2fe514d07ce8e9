"""Modules of the student's own: a file that was edited never runs in two versions in silence."""

import sys

import pytest

from gpulease.errors import GPULeaseError
from tests.transfer.pair import CellError

ONE = (
    "value = [1]\ndef f(): return 1\nclass K:\n    def g(self): return 1\n"
    "def make():\n    def inner(): return value[0]\n    return inner\n"
)
TWO = ONE.replace("1", "2002")  # another size: Python looks at it before it trusts a cache


@pytest.fixture
def lib(monkeypatch, tmp_path):
    file = tmp_path / "mylib.py"
    file.write_text(ONE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    yield file
    sys.modules.pop("mylib", None)


USES = {
    "the module": ("import mylib", "got = mylib.f()"),
    "a function of it": ("from mylib import f", "got = f()"),
    "an instance of its class": ("import mylib as m; k = m.K(); del m", "got = k.g()"),
    "what holds a function": ("from mylib import f as h; fs = [h]; del h", "got = fs[0]()"),
    "a function that it made": ("from mylib import make; f = make(); del make", "got = f()"),
    "a method": ("from mylib import K; g = K().g; del K", "got = g()"),
}


@pytest.mark.parametrize("use", USES)
def test_a_file_edited_after_home_imported_it_is_refused(lib, new_pair, use):
    imports, uses = USES[use]
    pair = new_pair()
    pair.attach()
    pair.home(imports)
    lib.write_text(TWO)
    with pytest.raises((GPULeaseError, CellError), match=r"mylib.*importlib\.reload"):
        pair.gpu(uses)
    pair.home("import sys, importlib; importlib.reload(sys.modules['mylib'])\n" + imports)
    pair.gpu(uses)
    assert pair.home("got") == 2002


@pytest.mark.parametrize("use", USES)
def test_a_file_edited_after_both_imported_it_is_loaded_anew_on_both(lib, new_pair, use):
    imports, uses = USES[use]
    pair = new_pair()
    pair.attach()
    pair.home(imports)
    pair.gpu(uses)
    assert pair.home("got") == 1
    lib.write_text(TWO)
    pair.gpu(uses)
    assert pair.home("got") == 1, "neither has loaded it anew"
    again = "import sys, importlib; importlib.reload(sys.modules['mylib'])\n"
    pair.home(again + imports)
    pair.gpu(uses)
    assert pair.home("got") == 2002


def test_what_was_forgotten_and_imported_again_is_looked_at_again(lib, new_pair):
    pair = new_pair()
    pair.attach()
    pair.home("import mylib")
    pair.home("import sys; del sys.modules['mylib'], mylib")
    lib.write_text(TWO)
    pair.home("import mylib")
    lib.write_text(ONE)
    with pytest.raises((GPULeaseError, CellError), match=r"mylib.*importlib\.reload"):
        pair.gpu("mylib.f()")


def test_a_function_that_lives_on_both_sides_is_looked_at_again(lib, new_pair):
    pair = new_pair()
    pair.attach()
    pair.home("import mylib; fs = [mylib.make()]")
    pair.gpu("got = fs[0]()")
    lib.write_text(TWO)
    pair.home("import importlib; importlib.reload(mylib); got = fs[0]()")
    assert pair.home("got") == 2002
    pair.gpu("got = fs[0]()")
    assert pair.home("got") == 2002


RELOADED = """
import importlib, mylib
from mylib import f, K
k, kept = K(), [f, mylib.make()]
"""


@pytest.mark.parametrize("side", ["home", "gpu"])
def test_what_one_side_loads_anew_the_other_does_too(lib, new_pair, side):
    """What was made before stays of the older text, as in one process."""
    pair = new_pair()
    pair.attach()
    here, there = (pair.home, pair.gpu) if side == "home" else (pair.gpu, pair.home)
    here(RELOADED)
    there("kept.append(k.g())")
    lib.write_text(TWO)
    here("importlib.reload(mylib)")
    there("kept.append((mylib.f(), f(), kept[0](), kept[1](), k.g(), isinstance(k, K)))")
    assert pair.home("kept[2:]") == [1, (2002, 1, 1, 2002, 1, True)]
    here("from mylib import f; kept[0] = f")
    there("kept.append((f(), kept[0] is f is mylib.f, isinstance(k, mylib.K)))")
    assert pair.home("kept[-1]") == (2002, True, False)


def test_a_text_that_is_no_more_in_the_file_is_refused(lib, new_pair):
    pair = new_pair()
    pair.attach()
    pair.home("import mylib")
    pair.gpu("mylib.f()")
    lib.write_text(TWO)
    pair.home("import importlib; importlib.reload(mylib)")
    lib.write_text(TWO.replace("2002", "30003"))
    with pytest.raises((GPULeaseError, CellError), match=r"mylib.*importlib\.reload"):
        pair.gpu("mylib.f()")
