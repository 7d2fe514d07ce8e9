"""What a cell changes in a module holds in the next one wherever it runs, or is said once."""

import contextlib
import operator
import sys

import pytest

from tests.transfer.kinds import in_turn

FILE = """\
rate = 0.1
seen = []
options = {"deep": {"er": 1}}
class Counter:
    made = 0
    def __init__(self): Counter.made += 1
class Config:
    def __init__(self): self.speed, self.names = 1, []
    def __setattr__(self, name, value):
        assert type(value) is not bool
        super().__setattr__(name, value)
cfg = Config()
import argparse
space = argparse.Namespace(depth={1: 2})
def note(x): seen.append(x); return len(seen)
def faster():
    global rate
    rate *= 2
import array, collections, functools, itertools, random, sys
import numpy as np
rng, old, mersenne = np.random.default_rng(0), np.random.RandomState(1), random.Random(2)
philox = np.random.Generator(np.random.Philox(3))
def draw(): return [each.random() for each in (rng, old, mersenne, philox)]
last, words = collections.deque(maxlen=2), collections.Counter("aab")
by_key, ordered = collections.defaultdict(list), collections.OrderedDict(a=1, b=2)
def keep(x): last.append(x); words[x] += 1; by_key[x].append(1); ordered.move_to_end("a")
def kept(): return last, words, by_key, [*ordered.items()], numbers
numbers = array.array("d", [1.5])
ids, few = itertools.count(5, 2), iter(range(3, 30))
if sys.version_info >= (3, 14): ids = few  # which pickles no iterator of itertools
def fresh(): return next(ids), next(few)
@functools.lru_cache(2)
def slow(x): return x * 2
"""


@contextlib.contextmanager
def own_module(monkeypatch, tmp_path, name, text):
    """Have a module of the person's own, which both sides can import."""
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop(name, None)


@pytest.fixture
def lib(monkeypatch, tmp_path):
    with own_module(monkeypatch, tmp_path, "ownlib", FILE):
        yield


#: What a cell changes of an own module, and an expression that shows it.
DATA = {
    "a number": ("ownlib.rate = 3", "ownlib.rate"),
    "a number by a function of it": ("ownlib.faster()", "ownlib.rate"),
    "what is new there": ("ownlib.fresh = (1, 'two')", "vars(ownlib).get('fresh')"),
    "a list of it": ("ownlib.seen.append('x')", "ownlib.seen"),
    "a list by a function of it": ("ownlib.note({1: {2}})", "ownlib.seen"),
    "what is deep in a dict": ("ownlib.options['deep']['er'] = [2]", "ownlib.options"),
    "an object's attribute": ("ownlib.cfg.speed = 'high'", "ownlib.cfg.speed"),
    "a list of an object": ("ownlib.cfg.names.append(1)", "ownlib.cfg.names"),
    "a name space": ("ownlib.space.depth[1] = ownlib.space.more = 5", "ownlib.space"),
    "a class's count": ("ownlib.Counter()", "ownlib.Counter.made"),
    "what a cache remembers": (
        "ownlib.slow(1); ownlib.slow(2); ownlib.slow(3); ownlib.slow(2)",
        "ownlib.slow.cache_info()",
    ),
    "collections": ("ownlib.keep('c'); ownlib.numbers.append(2)", "ownlib.kept()"),
}


@in_turn(first=["home", "gpu"], new_lease=[False, True], call=["draw()", "fresh()"])
def test_generators_and_counters_of_a_module_go_on(lib, new_pair, first, new_lease, call):
    sequence = {}
    exec(FILE, sequence)
    pair = new_pair()
    pair.attach()
    pair.home("import ownlib; from ownlib import rng")
    pair.gpu("import ownlib")
    here, there = (pair.home, pair.gpu) if first == "home" else (pair.gpu, pair.home)
    for number in range(4):
        (there if number % 2 else here)(f"got = ownlib.{call}; same = ownlib.rng is rng")
        pair.home("got, same")
        assert (pair.ns["got"], pair.ns["same"]) == (eval(call, sequence), True)
        if new_lease:
            pair.renew()
    assert pair.last.notes == ()


PARTS = """\
import numpy as np
from sklearn.linear_model import SGDRegressor
data = np.zeros(3)
class Net:
    def __init__(self): self.layers = [{"weight": np.ones(2)}]
net = Net()
fitted = SGDRegressor(random_state=0)
unused = Net()
X, y = np.arange(8.).reshape(4, 2), np.arange(4.)
def step():
    data[0] += 1
    net.layers[0]["weight"] += 1
def learn(): fitted.partial_fit(X, y)
def seen(): return data[0], net.layers[0]["weight"].sum(), getattr(fitted, "t_", 0)
"""


@pytest.fixture
def parts(monkeypatch, tmp_path):
    with own_module(monkeypatch, tmp_path, "ownparts", PARTS):
        yield


@pytest.mark.parametrize("first", ["home", "gpu"])
def test_what_functions_of_a_module_change_in_a_variable_holds_on_the_other_side(
    parts, new_pair, first
):
    """No cell's text says that `step` changes `data`."""
    pair = new_pair()
    pair.attach()
    pair.home("from ownparts import data, net, step, seen\nsaw = []")
    here, there = (pair.home, pair.gpu) if first == "home" else (pair.gpu, pair.home)
    for cell in (here, there, here, there):
        cell("step(); mine = data[0], net.layers[0]['weight'][0]; saw.append((*seen(), *mine))")
    pair.home("saw")
    assert pair.ns["saw"] == [(n, 2 + 2 * n, 0, n, 1 + n) for n in (1, 2, 3, 4)]


@pytest.mark.parametrize("first", ["home", "gpu"])
def test_plain_data_of_an_own_module_travels(lib, new_pair, first):
    changes, shows = zip(*DATA.values(), strict=True)
    shown = f"[repr(_) for _ in ({', '.join(shows)})]"
    pair = new_pair()
    pair.attach()
    pair.home(f"import ownlib\nbefore = {shown}")
    pair.gpu("import ownlib")
    here, there = (pair.home, pair.gpu) if first == "home" else (pair.gpu, pair.home)
    here("\n".join((*changes, f"saw = {shown}")))
    there(f"found = {shown}")
    pair.home("found, saw, before")
    assert pair.ns["found"] == pair.ns["saw"]
    assert not any(map(operator.eq, pair.ns["saw"], pair.ns["before"]))
    assert pair.last.notes == ()


def test_a_list_of_a_module_stays_the_one_that_its_functions_know(lib, new_pair):
    pair = new_pair()
    pair.attach()
    pair.home("import ownlib; ownlib.note('home')")
    pair.gpu("ownlib.note('gpu')\nheard = list(ownlib.seen)")
    pair.home("count = ownlib.note('again')")
    assert pair.ns["count"] == 3
    assert pair.ns["heard"] == ["home", "gpu"]


@pytest.mark.parametrize("first", ["home", "gpu"])
def test_what_several_modules_hold_is_one_object_whichever_came_first(
    monkeypatch, tmp_path, new_pair, first
):
    (tmp_path / "zother.py").write_text("from amaker import known\n")
    with own_module(monkeypatch, tmp_path, "amaker", "known = {}\nimport zother\n"):
        pair = new_pair()
        pair.attach()
        pair.home("import amaker")
        pair.gpu("import zother")
        here, there = (pair.home, pair.gpu) if first == "home" else (pair.gpu, pair.home)
        here("import amaker, zother; from zother import known\nknown['f'] = lambda: 1")
        there("found = known is amaker.known is zother.known, [*amaker.known]")
        there("known['g'] = lambda: 2")
        here("again = known is amaker.known is zother.known, [*zother.known]")
        pair.home("found, again")
    sys.modules.pop("zother", None)
    assert (pair.ns["found"], pair.ns["again"]) == ((True, ["f"]), (True, ["f", "g"]))
    assert pair.last.notes == ()


#: How a cell loads a module anew.
ANEW = {
    "once": "importlib.reload(ownlib)",
    "twice": "importlib.reload(ownlib); importlib.reload(ownlib)",
    "as another module": "del sys.modules['ownlib']; import ownlib",
}
ANEW_DATA = "ownlib.Counter.made, ownlib.cfg.speed, ownlib.seen, ownlib.rate, ownlib.cfg.names"


@in_turn(how=ANEW, known=[False, True], new_lease=[False, True], first=["home", "gpu"])
def test_data_of_a_module_that_is_loaded_anew_travels(lib, new_pair, first, new_lease, known, how):
    pair = new_pair()
    pair.attach()
    here, there = (pair.home, pair.gpu) if first == "home" else (pair.gpu, pair.home)
    imports = "import ownlib, importlib, sys"
    here(imports)
    if known:
        there("ownlib.Counter(); ownlib.cfg.names.append(1)")
    here(f"{imports}; {ANEW[how]}\nownlib.Counter(); ownlib.Counter()")
    here("ownlib.cfg.speed = 'x'; ownlib.seen.append(1); ownlib.rate = 7")
    if new_lease:
        pair.home("ownlib")
        pair.renew()
    there(f"found = {ANEW_DATA}\nownlib.Counter()")
    here("made = ownlib.Counter.made")
    pair.home("found, made")
    assert (pair.ns["found"], pair.ns["made"]) == ((2, "x", [1], 7, []), 3)


#: How a cell of the notebook has an object that a module has too.
SHARED = {
    "a list": ("from ownlib import seen as it", "it.append(7)", "it is ownlib.seen, ownlib.seen"),
    "a dict": ("from ownlib import options as it", "it['a'] = 7", "it is ownlib.options, it"),
    "an object": (
        "from ownlib import cfg as it", "it.speed = object", "it is ownlib.cfg, ownlib.cfg.speed",
    ),
    "a name space in a list": (
        "import ownlib; it = [ownlib.space]; del ownlib", "it[0].new = it",
        "it[0] is ownlib.space, vars(ownlib.space).get('new', it)[0] is it[0]",
    ),
    "a list of an object": (
        "from ownlib import cfg; it = cfg.names; del cfg", "it.append(Exception)",
        "it is ownlib.cfg.names, it",
    ),
}  # fmt: skip


@in_turn(known=[False, True], first=["home", "gpu"], name=SHARED)
def test_what_a_variable_shares_with_a_module_is_one_object(lib, new_pair, name, first, known):
    made, change, shows = SHARED[name]
    pair = new_pair()
    pair.attach()
    here, there = (pair.home, pair.gpu) if first == "home" else (pair.gpu, pair.home)
    there("import ownlib; del ownlib" if known else "pass")
    here(made)
    there(f"it\nimport ownlib\nsaw = repr(({shows}))")
    here(f"import ownlib\n{change}\ndone = repr(({shows}))")
    there(f"later = repr(({shows}))")
    assert said(pair.last if there == pair.home else pair.after) == []
    there(f"{change}\nagain = repr(({shows}))")
    here(f"last = repr(({shows}))")
    pair.home("saw, done, later, again, last")
    assert pair.ns["done"].startswith("(True,")
    assert pair.ns["later"] == pair.ns["done"]
    assert pair.ns["last"] == pair.ns["again"]


def test_it_is_set_before_the_cell_that_imports_the_module_goes_on(lib, new_pair):
    pair = new_pair()
    pair.attach()
    pair.home("import ownlib; ownlib.rate = 5\ndel ownlib")
    pair.gpu("import ownlib; got = ownlib.rate; del ownlib")
    pair.home("got")
    assert pair.ns["got"] == 5


def said(report):
    return [note.sentence for note in report.notes if note.reason == "module"]
