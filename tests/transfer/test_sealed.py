"""What a companion can pack and home cannot load: kept as bytes, in its place among the rest."""

import copy
import pickle

import pytest

from gpulease.errors import GPULeaseError
from gpulease.transfer.frameworks.sealed import Sealed
from gpulease.transfer_next.api import Place
from tests.transfer.pair import Companion

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
    made = new_pair(settings={"reply_wait": 30})
    made.attach()
    next_companion(made)
    return made


@pytest.fixture
def engine(pair):
    pair.gpu("import onlythere as o\ne = o.Engine(3); box = {'in': [e, 1], 'n': 2}; del o")
    pair.home("box, e")
    return pair


def test_the_rest_of_a_group_comes_home_around_it(engine):
    ns = engine.ns
    assert type(ns["e"]) is Sealed
    assert ns["box"] == {"in": [ns["e"], 1], "n": 2}
    assert ns["box"]["in"][0] is ns["e"]


def test_reading_it_says_what_it_is_and_where_it_can_be_used(engine):
    value = engine.ns["e"]
    for read in (
        lambda: value.n,
        lambda: value(),
        lambda: value[0],
        lambda: value + 1,
        lambda: len(value),
        lambda: pickle.dumps(value),
        lambda: copy.deepcopy(value),
        lambda: setattr(value, "n", 1),
    ):
        with pytest.raises(
            GPULeaseError, match=r"onlythere\.Engine is kept sealed here.*No module"
        ) as caught:
            read()
        assert caught.value.reason == "sealed"
    assert "No module named 'onlythere'" in repr(value)


def test_a_note_and_the_status_name_it(pair):
    pair.gpu("import onlythere as o\ne = o.Engine(3); del o")
    pair.home("e")
    notes = [*pair.after.notes, *pair.last.notes]
    assert [note.names for note in notes if note.reason == "sealed"] == [("e",)]
    row = next(row for row in pair.side.status() if row.name == "e")
    assert (row.type_name, row.place) == ("onlythere.Engine", Place.BOTH)
    assert "Python 3" in row.blocker


def test_back_beside_the_gpu_it_is_the_very_object(engine):
    engine.gpu("number = id(e)")
    engine.home("box['n'] = 5; e")
    engine.gpu("same = id(e) == number and box['in'][0] is e and e.n == 3 and box['n'] == 5")
    engine.home("same")
    assert engine.ns["same"]


def test_what_a_gpu_cell_makes_of_it_is_kept_too(engine):
    engine.gpu("e.n = 4")
    engine.home("e, box")
    assert engine.ns["box"]["in"][0] is engine.ns["e"]
    next_companion(engine)
    engine.gpu("n = (e.n, box['in'][0].n, type(e).__module__)")
    engine.home("n")
    assert engine.ns["n"] == (4, 4, "onlythere")


@pytest.mark.parametrize("died", [False, True], ids=["returned", "killed"])
def test_the_next_companion_gets_it(engine, died):
    next_companion(engine, died=died)
    engine.gpu("n = e.n; whole = box['in'][0] is e")
    engine.home("n, whole")
    assert (engine.ns["n"], engine.ns["whole"]) == (3, True)


def test_a_failed_opening_keeps_the_bytes(engine):
    next_companion(engine, package=False)
    engine.gpu("box['n'] += 1; kind = type(e).__name__")
    engine.home("box, kind")
    assert engine.ns["kind"] == "Sealed"
    next_companion(engine)
    engine.gpu("n = (e.n, box['n'])")
    engine.home("n")
    assert engine.ns["n"] == (3, 3)


def test_a_name_that_home_deleted_is_not_bound_again(engine):
    engine.home("del e; box['in'].pop(0)")
    next_companion(engine)
    engine.gpu("there = 'e' in globals()")
    engine.home("there")
    assert engine.ns["there"] is False
    assert "e" not in engine.ns


def test_several_kinds_each_for_their_own_reason(pair):
    pair.gpu("""
import onlythere as o
o.fails = True
things = [o.Engine(1), o.Token(2), o.Fragile(3), o.rebuild, o.Engine, {'plain': 1}]
del o
""")
    pair.home("things")
    things = pair.ns["things"]
    assert [type(thing) for thing in things] == [Sealed] * 5 + [dict]
    next_companion(pair)
    pair.gpu("seen = [things[0].n, things[1].n, things[2].n, things[3](7).n, things[4](8).n]")
    pair.home("seen")
    assert pair.ns["seen"] == [1, 2, 3, 7, 8]


def test_an_instance_of_a_class_of_the_notebook_over_it(pair):
    pair.gpu("import onlythere as o\nclass Mine(o.Engine): pass\nm = [Mine(5)]; del o")
    pair.home("m")
    assert type(pair.ns["m"][0]) is Sealed
    next_companion(pair)
    pair.gpu("n = m[0].n")
    pair.home("n")
    assert pair.ns["n"] == 5


def test_a_large_one_is_not_sent_twice(pair):
    pair.gpu("import onlythere as o\nbig = [o.Engine(bytes(3_000_000)), 0]; del o")
    pair.home("big")
    pair.gpu("big[1] += 1")
    pair.home("big")
    assert pair.after.bytes + pair.last.bytes < 100_000
    assert pair.ns["big"][1] == 1
    next_companion(pair)
    pair.gpu("n = len(big[0].n)")
    pair.home("n")
    assert pair.ns["n"] == 3_000_000


def test_drained_it_is_home(pair):
    pair.gpu("import onlythere as o\ne = [o.Engine(3)]; del o")
    assert pair.side.drain(60).done
    assert type(pair.ns["e"][0]) is Sealed


def test_a_class_that_answers_for_what_it_has_not_is_not_asked(engine):
    engine.gpu(
        "class Record:\n    asked = []\n    def __getattr__(self, name):\n"
        "        self.asked.append(name)\n        raise AttributeError(name)\n"
        "both = [e, Record()]"
    )
    engine.home("assert both[1].asked == [], both[1].asked")
