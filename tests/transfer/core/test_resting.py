"""Which large components are not looked at again, and what wakes them."""

import asyncio
import itertools
import sys

import pytest

from gpulease.sides.names.analysis import ANYWHERE, cell_use
from gpulease.transfer import pieces, sending, survey
from gpulease.transfer.reached import Reached
from tests.transfer.core.test_side import move, run

MAKE = """
import numpy as np
class Box:
    def __init__(self): self.rows = [[n] for n in range(3)]
    def add(self): self.rows.append([9])
box = Box(); a = np.arange(3.0); n = 1; k = [1]
def grow(): box.add()
def outer(): grow()
"""


@pytest.fixture
def rested(sides, monkeypatch):
    """Both sides have all of it, and home has looked once: everything counts as large."""
    monkeypatch.setattr(sending, "OBJECTS", -1)
    home, away = sides
    run(home, MAKE)
    move(home, away)
    home.pack(reached=[])
    return home, away


def looked(side, monkeypatch, reached):
    """Return the names that a pack looks at, and the parcel."""
    seen = []
    with monkeypatch.context() as patch:
        usual = survey.Survey.pack

        def pack(self, roots, pinned=None):
            seen.extend(root[2:] for root in roots)
            return usual(self, roots, pinned)

        patch.setattr(survey.Survey, "pack", pack)
        parcel = side.pack(reached=reached)
    return set(seen), parcel


@pytest.mark.parametrize(
    ("cell", "reached", "wakes"),
    [
        ("n = 2", {"n"}, {"n"}),
        ("a[0] = 5", {"a"}, {"a"}),
        ("k = a", {"k", "a"}, {"k", "a"}),
        ("del k", {"k"}, {"k"}),
        ("grow()", {"grow"}, {"grow", "box"}),
        ("outer()", {"outer"}, {"outer", "grow", "box"}),
        ("Box.more = k", {"Box", "k"}, {"Box", "k"}),
        ("exec('a[1] = 7')", None, {"a", "box", "k"}),
        ("globals()['a'][1] = 7", {"*"}, {"a", "box", "k"}),
    ],
)
def test_what_a_cell_reaches_is_looked_at_again(rested, monkeypatch, cell, reached, wakes):
    home, away = rested
    assert not looked(home, monkeypatch, [])[0] & {"a", "box", "k", "n"}
    run(home, cell)
    seen, parcel = looked(home, monkeypatch, reached)
    assert wakes & home.ns.keys() <= seen
    if reached and "*" not in reached:
        assert not seen & ({"a", "box", "k"} - wakes)
    away.commit(away.stage(parcel))
    home.acknowledge(parcel)
    run(away, "at = [box.rows, a.tolist(), n, globals().get('k') is a, getattr(Box, 'more', 0)]")
    run(home, "at = [box.rows, a.tolist(), n, globals().get('k') is a, getattr(Box, 'more', 0)]")
    assert home.ns["at"] == away.ns["at"]


MADE = """
import collections, functools, gc, sys, weakref
rows = [[n] for n in range(2000)]; kept = {"rows": rows}
def helper(): rows.append([9])
def outer(): helper()
def report(): return gc.get_objects()
class Box:
    def add(self): rows.append([9])
box = Box(); part = functools.partial(helper); hooks = sys.modules["hooks_of_a_test"]
"""
HOOK = "hooks.append(Box().add)"
GENERATOR = """
def gen():
    while True: yield rows.append([9])
g = gen()
"""
WATCHED = "watched = Box(); weakref.finalize(watched, helper)"
FIND = """
for each in {}:
    if type(each) is list and each[:2] == [[0], [1]]: each.append([9])
del report
"""


@pytest.mark.parametrize(
    ("more", "cell", "made_here"),
    [
        *itertools.product(
            [""],
            [
                "helper(); del helper",
                "helper()\nhelper = 5",
                "outer(); del outer, helper",
                "for f in [helper]: f()\ndel f, helper",
                "box.add(); box = 1; del Box",
                "other = box.add; del box, Box; other(); del other",
                "part(); part = helper = 1",
                "kept['rows'].append([9]); kept = 1",
                FIND.format("gc.get_objects()"),
                FIND.format("report()"),
            ],
            [True, False],
        ),
        (HOOK, "sys.modules['hooks_of_a_test'].pop()(); del Box", True),
        (GENERATOR, "next(g); del g", True),
        (WATCHED, "del watched", True),
    ],
)
def test_what_code_changes_wakes_though_nothing_leads_from_it_any_more(
    sides, monkeypatch, more, cell, made_here
):
    monkeypatch.setattr(sending, "OBJECTS", 1000)  # the rows alone
    monkeypatch.setitem(sys.modules, "hooks_of_a_test", [])
    home, away = sides
    maker, other = sides if made_here else (away, home)
    run(maker, MADE + more + "\ndel hooks")
    move(maker, other)
    home.pack(reached=[])
    run(home, cell)
    use = cell_use(cell)
    reached = None if use.unbounded or ANYWHERE & use.reads else use.touched
    parcel = home.pack(reached=reached)
    away.commit(away.stage(parcel))
    assert home.ns["rows"][2000:] == away.ns["rows"][2000:] == [[9]]


def test_what_came_rests_unless_it_is_packed_otherwise_here(rested, monkeypatch):
    home, away = rested
    run(away, "a[0] = -1; k.append({1, 2}); box.rows.append([3])")
    parcel = away.pack()
    home.commit(home.stage(parcel))
    away.acknowledge(parcel)
    assert looked(home, monkeypatch, [])[0] >= {"k"}
    seen, parcel = looked(home, monkeypatch, [])
    assert not seen & {"a", "box", "k"}
    assert not parcel.components
    run(home, "a[1] = -2; grow()")
    seen, parcel = looked(home, monkeypatch, {"a", "grow"})
    assert seen >= {"a", "box"}
    away.commit(away.stage(parcel))
    home.acknowledge(parcel)
    assert away.ns["a"].tolist() == [-1, -2, 2]
    assert away.ns["box"].rows == [[0], [1], [2], [3], [9]]


def test_what_is_held_does_not_rest(rested):
    home, _ = rested
    held = [home.ns["k"]]
    home.pack()
    held[0].append(2)
    parcel = home.pack(reached=[])
    assert [each.names for each in parcel.components] == [["k"]]
    home.acknowledge(parcel)
    del held
    run(home, "gen = (k.append(n) for n in [5, 6])")
    home.pack(reached={"gen", "k"})
    run(home, "next(gen)")
    assert ["k"] in [each.names for each in home.pack(reached={"gen"}).components]


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        (["a = b", "c.append(1)"], {"a", "b", "c"}),
        (["a = b", "exec('c = 1')", "d"], None),
        (["a", ""], None),
        (["object.__subclasses__()"], None),
    ],
)
def test_what_cells_reach_since_the_last_look(cells, found):
    reached = Reached(lambda: False)
    assert reached.take() is None, "what ran before is not known"
    for each in cells:
        reached.cell_begins(each)
    assert reached.take() == found
    assert reached.take() == set()
    reached.anything()
    assert reached.take() is None


def test_a_thread_may_have_reached_anything_until_a_look_without_it():
    running = [True]
    reached = Reached(lambda: running[0])
    assert reached.take() is None
    running.clear()
    running.append(False)
    assert reached.take() is None, "it ran after the last look"
    assert reached.take() == set()


CELL = """
async def cell(reached, task):
    running = [asyncio.create_task(task())] if task else []
    reached.take()
    found = reached.take()
    for each in running:
        each.cancel()
    return found
"""


@pytest.mark.parametrize("with_task", [False, True])
def test_a_task_may_reach_anything(with_task):
    kernel = {"__name__": "ipykernel.kernelbase", "asyncio": asyncio}
    exec(CELL, kernel)

    async def forever():
        await asyncio.Event().wait()

    reached = Reached(lambda: False)
    found = asyncio.run(kernel["cell"](reached, forever if with_task else None))
    assert found == (None if with_task else set())


FRAMES = {
    "numbers": "pd.DataFrame(np.ones((900, 3)), columns=list('abc'))",
    "of all kinds": "pd.DataFrame({'ab': range(2), 'cd': 1.5, 'ef': ['one', 'two']})",
    "a column": "pd.Series(np.arange(9.0), name='q')",
    "sorted": "pd.DataFrame({'a': np.arange(9) % 4, 'b': 1.0}).sort_values('a')",
    "categories": "pd.DataFrame({'c': pd.Categorical(list('xyx'))})",
    "times": "pd.DataFrame({'a': 1}, pd.date_range('2020', periods=3))",
    "many levels": "pd.DataFrame({'a': 1}, pd.MultiIndex.from_product([range(2), range(3)]))",
    "gaps": "pd.DataFrame({'a': pd.array([1, None]), 's': pd.array(['a', None], 'string')})",
    "NaNs": "pd.DataFrame({'a': [float('nan'), 1.0], 'b': [np.nan, 2.0]})",
}


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_a_frame_that_arrived_is_not_packed_to_be_compared(sides, monkeypatch, make):
    home, away = sides
    run(home, f"import numpy as np, pandas as pd\ndf = {make}; box = [df]")
    packed = []
    with monkeypatch.context() as patch:
        usual = survey.Survey.pack

        def pack(self, roots, pinned=None):
            packed.extend((self.met.label, root[2:]) for root in roots)
            return usual(self, roots, pinned)

        patch.setattr(survey.Survey, "pack", pack)
        move(home, away)
    assert (home.label, "df") in packed
    assert (away.label, "df") not in packed
    assert not [roots for roots in away.changed() if "n:df" in roots], "the same bytes"
    run(away, "assert box[0] is df; df.attrs['by'] = 'hand'")
    assert [roots for roots in away.changed() if "n:df" in roots]


def test_what_only_one_side_has_is_not_hashed_until_it_travels(sides, monkeypatch):
    monkeypatch.setattr(sending, "OBJECTS", -1)
    home, away = sides
    hashed = []
    usual = pieces.digests
    monkeypatch.setattr(pieces, "digests", lambda found: hashed.append(1) or usual(found))
    run(home, "import numpy as np\nbig = np.zeros(2**14)")
    for number in (1, 2):
        move(home, away, set())
        run(home, f"big[0] = {number}")
    assert not hashed
    assert away.away()["big"].can_come
    move(home, away, {"big"}, hand_over=False)
    move(home, away, set(), reached=[])
    assert "big" in away.ns, "both have it as it is"
    run(home, "big[1] = 3")
    move(home, away, set(), reached={"big"})
    assert "big" not in away.ns
    move(home, away, {"big"}, reached=[])
    run(away, "assert big[:3].tolist() == [2, 3, 0]; big[2] = 4")
    move(away, home, set(), reached={"big"})
    assert "big" not in home.ns
    move(away, home, {"big"}, hand_over=False)
    run(home, "assert big[:3].tolist() == [2, 3, 4]")
