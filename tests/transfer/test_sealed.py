"""What a companion can pack and home cannot open: kept as bytes for a companion that can."""

import gc

import pytest

from gpulease.errors import GPULeaseError
from gpulease.transfer.api import Place
from tests.transfer.pair import CellError, Companion

#: A package that only a companion has.
PACKAGE = '''
import sys, types
onlythere = types.ModuleType("onlythere")
exec("""
class Engine:
    def __init__(self, n): self.n = n
    def __eq__(self, other): return self.n == other.n
    __hash__ = None
def rebuild(n): return Token(n)
class Token:
    def __init__(self, n): self.n = n
    def __reduce__(self): return rebuild, (self.n,)
class Fragile:
    def __init__(self, n): self.n = n
    def __setstate__(self, state):
        if fails: raise RuntimeError("not today")
        self.__dict__.update(state)
fails = False
""", onlythere.__dict__)
for each in ("Engine", "Token", "Fragile", "rebuild"):
    getattr(onlythere, each).__module__ = "onlythere"
sys.modules["onlythere"] = onlythere
'''


def next_companion(pair, *, package=True, died=False):
    pair.side.disconnect(died=died)
    (pair.companion.kill if died else pair.companion.close)()
    pair.companion = Companion(pair.keys, pair.settings)
    if package:
        pair.companion.ask({"op": "run", "source": PACKAGE + "del onlythere, each", "count": 0})
        pair.companion.hear()
    pair.side.connect(pair.companion.endpoint, pair.keys)


@pytest.fixture
def pair(new_pair):
    made = new_pair()
    made.attach()
    next_companion(made)
    return made


@pytest.fixture
def sealed(pair):
    pair.gpu("import onlythere as o\ne = o.Engine(3); box = {'in': [e, 1], 'n': 2}; x = 7; del o")
    pair.home("x")
    return pair


def test_what_shares_nothing_with_it_comes(sealed):
    assert sealed.ns["x"] == 7
    assert not {"e", "box"} & sealed.ns.keys()


def test_a_cell_that_reads_it_hears_what_is_missing(sealed):
    for name in ("e", "box"):
        with pytest.raises(GPULeaseError, match=f"^{name} cannot travel.*package onlythere"):
            sealed.home(name)


@pytest.mark.parametrize("gone", [False, True], ids=["here", "gone"])
def test_the_status_tells_where_its_bytes_are(sealed, gone):
    if gone:
        sealed.side.disconnect(died=False)
    row = next(row for row in sealed.side.status() if row.name == "e")
    assert row.place is (Place.HOME if gone else Place.BOTH)
    assert "onlythere" in row.blocker
    assert "onlythere" in sealed.side.explain("e").sentence


def test_what_a_gpu_cell_makes_of_it_is_kept_too(sealed):
    sealed.gpu("e.n = 4")
    sealed.home("x")
    next_companion(sealed)
    sealed.gpu("n = (e.n, box['in'][0] is e, type(e).__module__)")
    assert sealed.home("n") == (4, True, "onlythere")


@pytest.mark.parametrize("died", [False, True], ids=["returned", "killed"])
def test_the_next_companion_gets_it(sealed, died):
    next_companion(sealed, died=died)
    sealed.gpu("n = e.n; whole = box['in'][0] is e")
    assert sealed.home("n, whole") == (3, True)


def test_a_companion_that_cannot_open_it_gives_the_bytes_back(sealed):
    next_companion(sealed, package=False)
    with pytest.raises((GPULeaseError, CellError), match="onlythere"):
        sealed.gpu("e.n")
    assert sealed.home("x") == 7
    next_companion(sealed)
    sealed.gpu("n = (e.n, box['n'])")
    assert sealed.home("n") == (3, 2)


def test_a_name_that_home_deleted_is_not_bound_again(sealed):
    sealed.home("del e")
    next_companion(sealed)
    sealed.gpu("there = 'e' in globals(), box['n']")
    assert sealed.home("there") == (False, 2)
    assert "e" not in sealed.ns


def test_a_name_that_home_bound_again_has_homes_value(sealed):
    sealed.home("e = 5")
    next_companion(sealed)
    sealed.gpu("there = e, box['n']")
    assert sealed.home("there, e") == ((5, 2), 5)


KINDS = {
    "an instance": "o.Engine(1)", "what reduces itself": "o.Token(1)", "a function": "o.rebuild",
    "a class": "o.Engine",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind(pair, kind):
    pair.gpu(f"import onlythere as o\nk = [{KINDS[kind]}]; x = 1; del o")
    assert pair.home("x") == 1
    with pytest.raises(GPULeaseError, match="onlythere"):
        pair.home("k")
    next_companion(pair)
    pair.gpu("n = k[0].n if hasattr(k[0], 'n') else k[0](1).n")
    assert pair.home("n") == 1


def test_a_large_one_is_not_sent_twice(pair):
    pair.gpu("import onlythere as o\nbig = [o.Engine(bytes(3_000_000)), 0]; del o; x = 1")
    pair.home("x")
    pair.gpu("x = 2")
    pair.home("x")
    assert pair.after.bytes + pair.last.bytes < 100_000
    next_companion(pair)
    pair.gpu("n = len(big[0].n)")
    assert pair.home("n") == 3_000_000


def test_large_memory_beside_one_is_kept_and_goes_on(pair):
    pair.gpu(
        "import numpy as np, pandas as pd, onlythere as o\n"
        "a = np.arange(2.0**20); df = pd.DataFrame(np.ones((2**19, 2)), columns=['p', 'q'])\n"
        "box = [o.Engine(3), a, df]; view = a[5:]; del o, df"
    )
    pair.home("import numpy, pandas")
    gc.collect()
    with pytest.raises(GPULeaseError, match="onlythere"):
        pair.home("a")
    next_companion(pair)
    pair.gpu("n = (a[-1], box[1] is a, view.base is a, float(box[2].q.sum()), box[0].n)")
    pair.home("n")
    assert pair.ns["n"] == (2**20 - 1, True, True, 2**19, 3)


@pytest.mark.parametrize("is_seen", [False, True], ids=["at once", "after a cell"])
def test_a_drain_is_done_with_it(pair, is_seen):
    pair.gpu("import onlythere as o\ne = [o.Engine(3)]; x = 1; del o")
    if is_seen:
        pair.home("x")
    report = pair.side.drain(60)
    assert (report.done, report.blockers) == (True, ())
    next_companion(pair, died=True)
    pair.gpu("n = e[0].n")
    assert pair.home("n") == 3


def test_what_is_of_a_class_of_the_notebook_over_it_stays_and_is_named(pair):
    pair.gpu("import onlythere as o\nclass Mine(o.Engine): pass\nm = [Mine(1)]; x = 1; del o")
    assert pair.home("x") == 1
    report = pair.side.drain(60)
    assert not report.done
    assert {"Mine", "m"} <= {each.name for each in report.blockers}
