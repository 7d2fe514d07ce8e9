"""What the notebook imported is imported in the companion before a cell of it needs it."""

import sys
import types

import pytest

from gpulease.transfer import imports

LOOK = "import sys; there = 'takes_long' in sys.modules"


@pytest.fixture(autouse=True)
def takes_long(monkeypatch, tmp_path):
    """A package that both sides have and nobody imported yet."""
    (tmp_path / "takes_long.py").write_text("import random; random.random(); random.seed(9)")
    monkeypatch.setattr(imports, "_PACKAGES", ("takes_long",))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("takes_long", None)


@pytest.fixture
def pair(new_pair):
    made = new_pair(imports_ahead=True)
    made.attach()
    return made


def test_the_companion_imports_what_a_home_cell_imported(pair):
    pair.gpu(LOOK + "; before = there")
    pair.home("import takes_long")
    pair.gpu(LOOK)
    pair.home("before, there")
    assert (pair.ns["before"], pair.ns["there"]) == (False, True)


def test_a_new_companion_imports_what_the_notebook_has(new_pair):
    pair = new_pair(imports_ahead=True)
    pair.home("import takes_long")
    pair.attach()
    pair.gpu(LOOK)
    pair.home("there")
    assert pair.ns["there"]


def test_nothing_is_imported_ahead_of_a_variable_that_it_may_read(monkeypatch):
    asked = []
    wire = types.SimpleNamespace(broken=False, request=lambda kind, body: asked.append(body))
    ahead = imports.ImportsAhead(types.SimpleNamespace(wire=wire))
    ahead.connected()
    monkeypatch.setitem(sys.modules, "takes_long", types.ModuleType("takes_long"))
    with monkeypatch.context() as changed:
        changed.setenv("TAKES_LONG_SETTING", "1")
        ahead.tell()
    assert not asked
    ahead.tell()
    ahead.tell()
    assert asked == [{"names": ["takes_long"]}]


def test_the_random_state_of_home_stays_its_own(pair):
    pair.gpu("import random")
    pair.home("import takes_long, random; random.seed(3)")
    assert pair.side.drain(60).done
    pair.home("a = random.random()")
    pair.gpu("b = random.random()")
    pair.home("c = random.random(); random.seed(3)")
    pair.home("same = [random.random() for _ in range(3)] == [a, b, c]")
    assert pair.ns["same"]


@pytest.mark.parametrize(("cudf", "later"), [(True, True), (False, False)])
def test_what_patches_a_package_comes_before_it(monkeypatch, cudf, later):
    monkeypatch.setattr(imports.importlib.util, "find_spec", lambda name: cudf or None)
    assert imports._comes_later("pandas") is later
    assert not imports._comes_later("numpy")
