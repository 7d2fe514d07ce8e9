"""Which large components are not looked at again, and what wakes them."""

import asyncio
import itertools
import sys

import pytest

from gpulease.sides.names.analysis import ANYWHERE, cell_use
from gpulease.transfer import sending, survey
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
