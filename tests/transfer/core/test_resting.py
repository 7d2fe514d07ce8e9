"""Which large components are not looked at again, and what wakes them."""

import asyncio

import pytest

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


def test_what_came_from_the_other_side_or_is_held_does_not_rest(rested, monkeypatch):
    home, away = rested
    parcel = home.pack(reached=[])
    away.commit(away.stage(parcel))
    home.acknowledge(parcel)
    run(away, "a[0] = -1")
    move(away, home)
    assert "a" in looked(home, monkeypatch, [])[0]
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
