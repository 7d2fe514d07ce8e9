"""Plays one notebook in a pair and in a plain process, for the tables of kinds."""

import contextlib
import itertools
import random
import re
import symtable
import sys
import types
from dataclasses import dataclass

import pytest

from gpulease.errors import GPULeaseError
from gpulease.transfer.api import Place
from tests.helpers import NIGHTLY
from tests.transfer.companion_main import run
from tests.transfer.pair import Pair, close_figures

#: Everything counts as large, so that only what a cell needs travels.
BY_NEED = {"small_bytes": -1}


#: So many notebooks are played as one: a switch costs more than most kinds of values do.
TOGETHER = 12


@dataclass(frozen=True)
class Kind:
    """``make`` binds x, ``change`` may run again and again, ``look`` is an expression over it.

    ``same``: x is an identity object, so its aliases stay the same object.
    ``alone``: its names must stay as they are, so its notebook is not played with others.
    """

    make: str
    change: str = "pass"
    look: str = "repr(x)"
    same: bool = True
    alone: bool = False

    @property
    def cells(self):
        """The notebook: every cell, to be placed anywhere."""
        identity = "(y is x, box['in'][0] is x)" if self.same else "None"
        looks = f"seen.append(repr(({self.look}, {identity})))"
        return (
            f"seen = []\n{self.make}\ny = x\nbox = {{'in': [x]}}",
            f"{looks}\n{self.change}\n{looks}",
            f"{looks}\nx = y\n{self.change}",
            looks,
        )


def groups(table):
    """Return the names of a table in groups of those that are played together."""
    alone = [(name,) for name, kind in table.items() if getattr(kind, "alone", False)]
    many = [name for name in table if (name,) not in alone]
    return [tuple(many[at : at + TOGETHER]) for at in range(0, len(many), TOGETHER)] + alone


def each_group(table):
    """Parametrize ``group`` with the groups of this table; -k finds one by a name in it."""
    return pytest.mark.parametrize("group", groups(table), ids=" · ".join)


def by_own_names(rows):
    """Yield rows of code of which none binds a name of another: each name has its row's number.

    It is replaced within texts, too. Modules and names with underscores around them stay.
    """
    for number, texts in enumerate(rows):
        bound = _bound(symtable.symtable("\n".join(texts), "a kind", "exec"))
        word = re.compile(rf"\b({'|'.join(sorted(bound))})\b")
        yield [word.sub(rf"\1_{number}", text) for text in texts] if bound else texts


def _bound(table):
    """Return the names that code binds in its module."""
    top = table.get_type() == "module"
    own = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if (symbol.is_assigned() if top else symbol.is_declared_global())
        and not symbol.is_imported()
        and not symbol.get_name().startswith("__")
    }
    return own.union(*map(_bound, table.get_children()))


def side_by_side(notebooks):
    """Return the cells of notebooks played as one; ``seen`` has what each of them saw by its name.

    A notebook that is alone keeps its names.
    """
    if len(notebooks) == 1:
        ((name, cells),) = notebooks.items()
        return (*cells[:-1], f"{cells[-1]}\nseen = {{{name!r}: seen}}")
    each = itertools.zip_longest(*by_own_names(notebooks.values()), fillvalue="pass")
    cells = list(map("\n".join, each))
    said = ", ".join(f"{name!r}: seen_{number}" for number, name in enumerate(notebooks))
    return (*cells[:-1], f"{cells[-1]}\nseen = {{{said}}}")


def in_turn(**tables):
    """Parametrize with each value of each table once or more, at night with all combinations.

    What goes wrong for a value of one table seldom needs a certain value of another one.
    """
    values = [list(table) for table in tables.values()]
    rows = max(4 if len(values) > 2 else 0, *map(len, values))
    columns = [[column[i % len(column)] for i in range(rows)] for column in values]
    for name, column in zip(tables, columns, strict=True):
        random.Random(name).shuffle(column)
    cases = list(itertools.product(*values) if NIGHTLY else zip(*columns, strict=True))
    return pytest.mark.parametrize(
        list(tables), [case for i, case in enumerate(cases) if case not in cases[:i]]
    )


def plain(cells):
    """Return ``seen`` after these cells in one process."""
    main = types.ModuleType("__main__")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "__main__", main)
        for source in cells:
            run(main.__dict__, source)
    return main.__dict__["seen"]


@contextlib.contextmanager
def open_pair(settings=None, kind=None):
    """A pair that many notebooks share, one after the other."""
    with pytest.MonkeyPatch.context() as patch:
        pair = (kind or Pair)(patch, settings=settings)
        pair.attach()
        try:
            yield pair
        finally:
            pair.close()


@contextlib.contextmanager
def lend(pair):
    """Give a pair to one test, with an empty namespace and a companion that is alive."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "__main__", pair.main)
        if pair.side.connected and pair.companion.process.is_alive():
            empty(pair)
        else:
            pair.restart()
        pair.side._kept.clear()  # of a name it is said once
        pair.side._notes.clear()
        yield pair


def play(pair, cells, *, beside_gpu):
    """Run ``cells``, every second one on the GPU, in an emptied notebook; return ``seen``."""
    sys.modules["__main__"] = pair.main  # of several pairs, this one's (put back by its patch)
    empty(pair)
    try:
        for index, source in enumerate(cells):
            cell = pair.gpu if (index % 2 == 0) == beside_gpu else pair.home
            cell(source)
        pair.home("seen")
    except BaseException:
        pair.restart()  # the next notebook of this pair is not to blame
        raise
    return pair.ns["seen"]


def same_as_plain(table, group, eager, lazy):
    """Assert that kinds or notebooks give the same in a pair as in a plain process.

    Every second group is played by need, at night each in both ways: what an object is says how it
    is packed, not when it travels.
    """
    cells = side_by_side({name: getattr(table[name], "cells", table[name]) for name in group})
    expected = plain(cells)
    turn = groups(table).index(group) % 2
    for pair in (eager, lazy) if NIGHTLY else ((eager, lazy)[turn],):
        assert play(pair, cells, beside_gpu=pair is lazy) == expected


def empty(pair):
    """Delete every name of the notebook; begin anew where something cannot be reached."""
    try:
        close_figures()
        pair.home("for _n in [n for n in globals() if not n.startswith('__')]: del globals()[_n]")
        clean = not pair.side.away_names() and not any(
            row.place is Place.LOST for row in pair.side.status()
        )
    except GPULeaseError:
        clean = False
    if not clean:
        pair.restart()
