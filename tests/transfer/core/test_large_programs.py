"""Random programs over large arrays and frames, with pieces so small that everything has many.

Two sides in one process; what travels is copied into the memory that the receiver takes for it.
"""

import sys
import types

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from gpulease.sides.names.analysis import cell_use
from gpulease.transfer import pieces, rebuild, sending, shipping
from gpulease.transfer.side import Side
from gpulease.verify.picture import picture
from gpulease.wire import memory
from tests.helpers import NIGHTLY

SMALL = 1000
NAMES = ("a", "b", "c", "d", "e")
START = (
    "import numpy as np, pandas as pd\n"
    "errors = []; a = np.arange(100.0); b = [a, a[1:]]; c = {'k': b}\n"
    "d = pd.DataFrame({'a': np.arange(100.0), 'b': np.arange(100) % 3}); e = [d, a]"
)
STATEMENTS = (
    "{x} = np.arange({n}.0)",
    "{x} = np.asfortranarray(np.arange(2.0 * {n}).reshape(2, -1))",
    "{x} = np.zeros({n}, [('p', 'i4'), ('q', 'f8')])",
    "{x} = pd.DataFrame({{'a': np.arange({n}.0), 'b': np.arange({n}) % 3}})",
    "{x} = pd.DataFrame(np.ones(({n}, 3)), columns=list('abc'))",
    "{x} = pd.Series(np.arange({n}.0))",
    "{x} = [np.ones({n}), np.ones({n})]",
    "{x} = {y}",
    "{x}, {y} = {y}, {x}",
    "{x} = [{y}, {z}]",
    "{x} = {{'k': {y}, 'm': [{z}]}}",
    "del {x}",
    "{x} = {y}[1:]",
    "{x} = {y}.T",
    "{x} = {y}['a']",
    "{x} = {y}.copy()",
    "{x} = {y} * 2",
    "{x} = {y}.iloc[1::2]",
    "{x} = {y}.sort_values('b')",
    "{x}[0] = {n}",
    "{x}[0] = {x}[-1] = {n}",
    "{x}[0] += 1",
    "{x}['k'] = {y}",
    "{x}[-1] = {y}",
    "{x} += 1",
    "{x}.append({y})",
    "{x}.flags.writeable = False",
    "{x}.iloc[0, 0] = {n}",
    "{x}['z'] = {n}",
)
_statement = st.builds(
    lambda text, n, **names: text.format(n=n, **names),
    st.sampled_from(STATEMENTS),
    st.sampled_from([3, 20, 100, 200]),
    **dict.fromkeys("xyz", st.sampled_from(NAMES)),
)
_line = _statement.map(lambda line: f"try: {line}\nexcept Exception as error: errors.append(1)")
#: Lists of (at home?, source): each statement may fail, as in a notebook.
_cells = st.lists(
    st.tuples(st.booleans(), st.lists(_line, min_size=1, max_size=3).map("\n".join)),
    min_size=3,
    max_size=9,
)


@pytest.fixture
def small_pieces(monkeypatch):
    for owner, name, value in (
        (pieces, "PIECE", 256), (pieces, "LARGE", 128), (sending, "BYTES", SMALL),
        (rebuild, "COPIED_BYTES", 300), (memory, "_LARGE", 200),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, value)
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))


@settings(
    max_examples=4000 if NIGHTLY else 60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(program=_cells)
@pytest.mark.timeout(7200 if NIGHTLY else 300)
def test_what_is_large_is_as_in_one_process(small_pieces, program):
    plain = {"__name__": "__main__", "__builtins__": __builtins__}
    sides = home, _ = [Side(label, dict(plain), hidden=set(plain)) for label in "ha"]
    reached = {side.label: set() for side in sides}
    owner = home
    for at_home, source in [(True, START), *program, (True, f"[{', '.join(NAMES)}]")]:
        note(("home: " if at_home else "gpu: ") + source)
        names = set(cell_use(source).touched)
        here, there = sides if at_home else sides[::-1]
        if owner is there:
            move(there, here, reached, names if there is home else set())
        while lacking := here.lacking(names) & here.away().keys():
            move(there, here, reached, lacking, hand_over=False)
        owner = here
        reached[here.label] |= names
        for each in (plain, here.ns):
            run(each, source)
        assert here.ns["errors"] == plain["errors"]
    assert picture(home.ns, NAMES) == picture(plain, NAMES)


def run(names, source):
    try:
        exec(source, names)
    except NameError:
        names["errors"].append("NameError")


def move(start, to, reached, needed, *, hand_over=True):
    parcel = start.pack(
        needed, hand_over=hand_over, small=SMALL, reached=frozenset(reached[start.label])
    )
    reached[start.label].clear()
    body, blobs = shipping.encode(parcel, b"")
    views = [memoryview(blob).cast("B") for blob in blobs]
    received = pieces.memory_for(body, [view.nbytes for view in views])
    for place, view in zip(received, views, strict=True):
        if view.nbytes:
            memoryview(place).cast("B")[:] = view
    shipping.take(to, shipping.decode(received)[0])
    start.acknowledge(parcel)
