"""What the person's own modules hold is as in one process, whichever side's cell has changed it."""

import sys

import pytest

from gpulease.errors import GPULeaseError
from tests.transfer.core.pair import CorePair

FILE = """\
from functools import lru_cache, wraps
COUNT, made, letters = 0, [], (each for each in "abcd")
class Shape:
    registry = {}
    def __init__(self):
        global COUNT
        COUNT += 1
        made.append(self)
        self.registry[COUNT] = self
    def __getstate__(self): return {}
class Config: speed = 1
cfg = Config()
def keep(value, kept=[]):
    kept.append(value)
    return kept
def counted(function):
    calls = 0
    @wraps(function)
    def call():
        nonlocal calls
        calls += 1
        return calls
    return call
@counted
def ask(): pass
@lru_cache
def only(): return Config()
def read(): return next(letters)
"""


@pytest.fixture
def pair(monkeypatch, tmp_path):
    (tmp_path / "ownlib.py").write_text(FILE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.syspath_prepend(tmp_path)
    made = CorePair(monkeypatch)
    made.attach()
    yield made
    made.close()
    sys.modules.pop("ownlib", None)


CELLS = {
    "what a class makes": "s = ownlib.Shape(); s.x = 1",
    "what a variable shares": "a, c = ownlib.made, ownlib.cfg; a.append(len(a)); c.speed += 1",
    "a default": "k = ownlib.keep(len(ownlib.made))",
    "a function's own count": "ownlib.ask()",
    "what a cache has": "o = ownlib.only(); o.n = getattr(o, 'n', 0) + 1",
    "a function put in place": "ownlib.keep = ownlib.Shape.area = lambda value: [value]",
    "what is new and gone": "ownlib.fresh = [ownlib.made]; del ownlib.COUNT; ownlib.COUNT = 5",
}
SHOW = """
def show():
    m = ownlib
    return (
        m.COUNT, len(m.made), m.cfg.speed, m.keep(0)[:], m.ask(), sorted(m.Shape.registry),
        [vars(each) for each in m.Shape.registry.values()], 's' in globals() and m.made[0] is s,
        'c' in globals() and c is m.cfg, 'o' in globals() and (o is m.only(), o.n),
        'a' in globals() and a is m.made, hasattr(m, 'fresh') and m.fresh[0] is m.made,
        hasattr(m.Shape, 'area'),
    )
"""


@pytest.mark.parametrize("name", CELLS)
def test_as_in_one_process(pair, name, monkeypatch):
    plain = {}
    cells = [
        "import ownlib" + SHOW + "seen = [show()]",
        *[CELLS[name] + "\nseen.append(show())"] * 4,
    ]
    for cell in cells:
        exec(cell, plain)
    del sys.modules["ownlib"]
    for number, cell in enumerate(cells):
        (pair.gpu if number % 2 else pair.home)(cell)
    pair.home("seen")
    assert pair.ns["seen"] == plain["seen"]


def test_what_cannot_leave_stands_for_itself_on_the_other_side(pair):
    pair.home("import ownlib; first = ownlib.read()")
    with pytest.raises(Exception, match="generator"):
        pair.gpu("ownlib.read()")
    pair.home("second = ownlib.read()")
    assert pair.ns["first"] + pair.ns["second"] == "ab"


def test_an_edited_file_is_refused_with_the_way_out(pair, tmp_path):
    pair.home("import ownlib")
    # Of another size: within a second Python takes a file of the same one for the same.
    (tmp_path / "ownlib.py").write_text(FILE.replace("next(", "sorted("))
    with pytest.raises(GPULeaseError, match=r"ownlib.*importlib\.reload\(ownlib\)"):
        pair.gpu("ownlib.cfg")
