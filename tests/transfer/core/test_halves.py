"""Home and companion over a real wire, as the kernel drives them."""

import os
import threading

import pytest

from gpulease.errors import GPULeaseError
from gpulease.transfer import sending, survey
from gpulease.transfer.api import Place
from tests.transfer.kinds import in_turn
from tests.transfer.pair import CellError, Pair

BY_NEED = {"small_bytes": -1}


@pytest.fixture
def open_pair(monkeypatch):
    """Return what opens a pair; all are closed at the end."""
    made = []

    def new(settings=None):
        pair = Pair(monkeypatch, settings)
        made.append(pair)
        pair.attach()
        return pair

    yield new
    for pair in made:
        pair.side.peer.close()
        pair.companion.kill()


@pytest.fixture
def pair(open_pair):
    return open_pair()


@pytest.fixture
def by_need(open_pair):
    return open_pair(BY_NEED)


def place_of(pair, name):
    return next(row.place for row in pair.side.status() if row.name == name)


ALTERNATIONS = {
    "a list that both change": ("x = [1]; y = x", "x.append(2)", "x.append(3)", "y"),
    "a class and its instance": (
        "class A:\n    n = 1\na = A()", "a.n = 2; A.m = 3", "a.k = A.m", "(a.n, a.k, type(a) is A)",
    ),
    "a name that one side deletes": (
        "x = 1; y = 2", "del x; z = 3", "del z",
        "sorted(set('xyz') & {*globals()})",
    ),
    "a function that reads a name": ("k = 1\ndef f(): return k", "k = 5", "k += 1", "f()"),
    "a variable of the environment": (
        "import os", "os.environ['A_NAME'] = 'x'", "w = os.environ['A_NAME']", "w",
    ),
    "numbers by chance": (
        "import random; random.seed(3)", "a = random.random()", "b = random.random()", "[a, b]",
    ),
    "a list that a class has, too": (
        "there = [1]\nclass A: items = there\na = A()", "there[0] = 20", "there.append(3)",
        "(a.items, A.items is there)",
    ),
    "a property's name in its error": (
        "class A:\n    @property\n    def p(self): return 1\na = A()", "A.m = 1",
        "try: a.p = 2\nexcept AttributeError as error: said = str(error)", "said",
    ),
    "a typed dunder": ("__version__ = '1'", "__version__ += '.2'", "pass", "__version__"),
}  # fmt: skip


@in_turn(settings=[None, BY_NEED], cells=ALTERNATIONS.values())
def test_cells_in_turn_give_what_one_process_gives(open_pair, cells, settings):
    plain = {"__builtins__": __builtins__, "__name__": "__main__"}
    for source in cells[:3]:
        exec(source, plain)
    expected = eval(cells[3], plain)
    os.environ.pop("A_NAME", None)
    pair = open_pair(settings)
    for number, source in enumerate(cells[:3]):
        (pair.gpu if number % 2 else pair.home)(source)
    assert pair.home(cells[3]) == expected


def test_what_is_not_needed_yet_is_absent_and_explained(by_need):
    by_need.gpu("x = [1]; y = [2]")
    assert {"x", "y"} & by_need.ns.keys() == set()
    assert "%gpu fetch x" in by_need.side.explain("x").sentence
    assert by_need.home("x") == [1]
    assert "y" not in by_need.ns
    by_need.side.fetch(["y"])
    assert by_need.ns["y"] == [2]
    with pytest.raises(GPULeaseError, match="nothing is not defined"):
        by_need.side.fetch(["nothing"])


def test_what_stays_is_refused_by_name_and_goes_on_where_it_is(pair):
    pair.gpu("g = (i for i in range(9)); next(g); x = 1")
    with pytest.raises(GPULeaseError, match=r"^g cannot travel .* on the GPU"):
        pair.home("next(g)")
    assert pair.home("x") == 1
    assert [place_of(pair, name) for name in "gx"] == [Place.GPU, Place.BOTH]
    pair.gpu("x = next(g)")
    assert pair.home("x") == 1
    pair.home("h = (i for i in range(9))")
    with pytest.raises(GPULeaseError, match=r"^h cannot travel .* in your notebook"):
        pair.gpu("next(h)")
    pair.home("hs = [h]")
    with pytest.raises(CellError, match=r"stayed in your notebook"):
        pair.gpu("next(hs[0])")
    assert pair.home("next(h)") == 0


def test_what_stays_there_blocks_a_drain_and_is_lost_with_the_companion(pair):
    pair.gpu("g = (i for i in range(9)); x = 1")
    report = pair.side.drain(60)
    assert not report.done
    assert [(each.name, each.place) for each in report.blockers] == [("g", Place.GPU)]
    assert "generator" in report.blockers[0].blocker
    (note,) = pair.side.disconnect(died=True)
    assert note.names == ("g",)
    with pytest.raises(GPULeaseError, match="gave g was lost"):
        pair.home("g")
    assert pair.home("x") == 1
    assert pair.home("g = 2; g") == 2


def test_what_does_not_load_stays_away_and_the_rest_comes(pair):
    pair.gpu(
        "import os\npid = os.getpid()\nclass K:\n    def __hash__(self):\n"
        "        if os.getpid() != pid: raise OSError('no')\n        return 1\n"
        "c = {K(): 1}; x = 7"
    )
    assert pair.home("x") == 7
    with pytest.raises(GPULeaseError, match=r"^c cannot travel"):
        pair.home("c")
    assert pair.gpu("assert len(c) == 1")


def test_a_dead_companion_loses_what_was_newer_there_and_says_so(by_need):
    by_need.home("x = [0]; kept = 1")
    by_need.gpu("x.append(1); y = 2")
    by_need.companion.kill()
    notes = by_need.side.disconnect(died=True)
    assert {name for note in notes for name in note.names} == {"x", "y"}
    assert [place_of(by_need, name) for name in ("kept", "x", "y")] == [
        Place.HOME, Place.LOST, Place.LOST,
    ]  # fmt: skip
    with pytest.raises(GPULeaseError, match="x was lost"):
        by_need.home("x")
    found, others = by_need.side.recover()
    assert (list(found), [note.names for note in others]) == (["x"], [("y",)])
    assert by_need.home("x, kept") == ([0], 1)


def test_a_cell_that_dies_takes_what_it_may_have_changed(pair):
    pair.home("x = [0]; y = [1]")
    pair.start_gpu("x.append(1)")
    pair.companion.kill()
    notes = pair.side.disconnect(died=True, cell="4")
    assert [note.names for note in notes] == [("x",)]
    assert pair.home("y") == [1]


def test_what_is_parked_is_with_the_next_companion(by_need, tmp_path):
    by_need.home("x = [0]\nclass A: n = 1")
    by_need.gpu("a = A(); a.v = x; x.append(1); y = (i for i in 'ab')")
    path = tmp_path / "parked"
    report = by_need.companion.ask({"op": "park", "path": str(path), "seconds": 30})
    assert path.stat().st_mode & 0o777 == 0o600
    by_need.side.disconnect(died=False, lost=["y"])
    by_need.companion.kill()
    assert place_of(by_need, "a") is Place.PARKED
    by_need.attach(str(path))
    assert report == {"done": False, "blockers": ["y"]}
    assert not path.exists()
    assert place_of(by_need, "a") is Place.GPU
    assert by_need.home("a.v is x, x, type(a) is A") == (True, [0, 1], True)
    with pytest.raises(GPULeaseError, match="y was lost"):
        by_need.home("y")


@pytest.mark.parametrize(("keep", "value"), [("home", "home"), ("gpu", "gpu")])
def test_what_both_sides_changed_is_in_conflict_until_it_is_resolved(pair, keep, value):
    pair.home("x = ['none']; other = []")
    pair.start_gpu("x[0] = 'gpu'; z = 1")
    pair.companion.hear()
    pair.ns["x"][0] = "home"  # as a callback of the page does it
    pair.ns["other"].append(1)
    pair.side.ran_beside()
    report = pair.side.after_gpu_cell(1)
    assert [note.reason for note in report.notes] == ["conflicted"]
    assert pair.home("z, other") == (1, [1])
    with pytest.raises(GPULeaseError, match="%gpu resolve x home"):
        pair.home("x")
    pair.side.resolve("x", keep)
    assert pair.home("x") == [value]
    pair.gpu("x.append(other)")
    assert pair.home("x") == [value, [1]]


def test_a_drain_on_another_thread_is_committed_between_cells(by_need):
    by_need.gpu("x = [1]")
    reports = []
    worker = threading.Thread(
        target=lambda: reports.append(by_need.side.drain(30)), name="gpulease-drain"
    )
    worker.start()
    worker.join()
    assert reports[0].done
    assert "x" not in by_need.ns
    assert by_need.side.commit_pending()
    assert by_need.ns["x"] == [1]


def test_a_result_is_fetched_with_its_identity(pair):
    pair.gpu("x = [1]\nx")
    assert pair.side.result(1) is pair.ns["x"]
    with pytest.raises(GPULeaseError, match="left no result"):
        pair.side.result(5)


def test_a_new_companion_has_what_home_has(pair):
    pair.home("class A: pass\na = A()")
    pair.gpu("a.x = 1")
    pair.renew()
    pair.gpu("a.y = type(a) is A")
    assert pair.home("(a.x, a.y, type(a) is A)") == (1, True, True)


def test_a_name_bound_between_two_gpu_cells_reaches_the_second(pair):
    pair.gpu("x = 1")
    pair.ns["carried"] = {"a": 1}  # as the kernel does it for results
    pair.gpu("y = carried['a']; del carried")
    assert pair.home("(x, y, 'carried' in globals())") == (1, 1, False)


def test_a_class_whose_base_hears_of_it_is_made_there_without_that_code(pair):
    pair.home(
        "import os\nHERE = os.getpid()\nclass A:\n    def __init_subclass__(cls):\n"
        "        cls.made = True\n        if os.getpid() != HERE: raise OSError"
    )
    pair.gpu("x = 1")
    pair.home("class B(A): pass\nb = B()")
    pair.gpu("y = x + 1, b.made, type(b) is B")
    assert pair.home("y") == (2, True, True)


def test_home_looks_only_at_what_its_cells_may_have_reached(pair, monkeypatch):
    monkeypatch.setattr(sending, "OBJECTS", -1)
    looked = set()
    usual = survey.Survey.pack

    def pack(self, roots, pinned=None):
        looked.update(roots)
        return usual(self, roots, pinned)

    pair.home("big = [1]; small = [2]\ndef grow(): big.append(3)")
    pair.gpu("pass")
    monkeypatch.setattr(survey.Survey, "pack", pack)
    for cell, reaches_big in (("small.append(3)", False), ("grow()", True), ("exec('1')", True)):
        pair.home(cell)
        looked.clear()
        pair.gpu("found = [len(big), len(small)]")
        assert pair.home("found == [len(big), len(small)]")
        assert ("n:big" in looked) is reaches_big, cell
