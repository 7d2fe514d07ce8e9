"""Two namespaces have one picture exactly when a person could tell no difference."""

import types
from collections import defaultdict

import numpy as np
import pandas as pd
import pytest

from gpulease.verify.picture import picture

BASE = (
    "import numpy as np, pandas as pd, enum, functools, random\n"
    "from collections import OrderedDict, defaultdict, deque\n"
)


def look(source):
    main = types.ModuleType("__main__")
    exec(BASE + source, main.__dict__)
    return picture(main.__dict__, [n for n in main.__dict__ if len(n) == 1])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a = [1]", "a = [2]"),
        ("a = 1", "a = 1.0"),
        ("a = 1", "a = True"),
        ("a = 1", "a = np.int64(1)"),
        ("a = [1]; b = a", "a = [1]; b = [1]"),
        ("a = []; b = {'k': a}", "a = []; b = {'k': []}"),
        ("a = np.zeros(3)", "a = np.zeros(3, 'f4')"),
        ("a = np.zeros(9); b = a[2:]", "a = np.zeros(9); b = a[2:].copy()"),
        ("a = np.zeros(9); b = a[2:5]", "a = np.zeros(9); b = a[4:7]"),
        ("a = np.zeros((2, 3))", "a = np.zeros((3, 2))"),
        ("a = pd.DataFrame({'x': [1, 2]})", "a = pd.DataFrame({'x': [1., 2.]})"),
        ("a = pd.Series([1, 2], name='x')", "a = pd.Series([1, 2])"),
        ("def a(): return 1", "def a(): return b"),
        ("def a(x=1): return x", "def a(x=2): return x"),
        ("def f():\n    n = []\n    return (lambda: n), (lambda: n)\na, b = f()\ndel f",
         "def f():\n    n = []\n    return lambda: n\na, b = f(), f()\ndel f"),
        ("class a: n = 1", "class a: n = 2"),
        ("class c: pass\na = c(); a.x = 1", "class c: pass\na = c(); a.x = 2"),
        ("class c:\n    __slots__ = ('x',)\na = c(); a.x = 1",
         "class c:\n    __slots__ = ('x',)\na = c(); a.x = 2"),
        ("a = defaultdict(list)", "a = defaultdict(set)"),
        ("a = functools.partial(int, 1)", "a = functools.partial(int, 2)"),
        ("a = iter([1, 2]); next(a)", "a = iter([1, 2])"),
        ("a = ValueError('x')", "a = ValueError('y')"),
        ("a = [1, 2]", "a = (1, 2)"),
        ("a = {1: 2, 3: 4}", "a = {3: 4, 1: 2}"),
        ("a = list[int]", "a = list[str]"),
        ("a = OrderedDict(x=1, y=2)", "a = OrderedDict(x=1, y=2); a.move_to_end('x')"),
        ("a = np.random.default_rng(1)", "a = np.random.default_rng(1); a.random()"),
        ("a = np.random.RandomState(1)", "a = np.random.RandomState(1); a.rand()"),
        ("a = random.Random(1)", "a = random.Random(1); a.random()"),
    ],
)  # fmt: skip
def test_what_differs_is_seen(one, other):
    assert look(one) == look(one)
    assert look(one) != look(other)


@pytest.mark.parametrize(
    "source",
    [
        "a = {'x', 'y', 'z'}",
        "a = object()",
        "a = []; a.append(a)",
        "class c: pass\na = c(); a.me = a",
        "a = float('nan')",
        "import threading\na = threading.Lock(); b = (i for i in ())",
        "a = [[]]\nfor _ in range(5000): a = [a]",
    ],
)
def test_what_may_differ_does_not(source):
    assert look(source) == look(source)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("class c: pass\na = c(); a.x = 1; a.y = 2", "class c: pass\na = c(); a.y = 2; a.x = 1"),
        ("import decimal\na = [decimal.Decimal(1)] * 2",
         "import decimal\na = [decimal.Decimal(1), decimal.Decimal(1)]"),
        ("a = np.vectorize(lambda x: x + 1)", "a = np.vectorize(lambda x: x + 1); a([1])"),
        ("a = [np.random.rand.__self__]; np.random.seed(1)", "a = [np.random.rand.__self__]"),
        ("a = enum.Flag('a', 'x y')", "a = enum.Flag('a', 'x y'); a.x | a.y"),
        ("a = pd.CategoricalDtype([*'xy'])",
         "a = pd.CategoricalDtype([*'xy']); pd.Series(['x'], dtype=a).sort_values()"),
        ("d = np.dtype([('x', 'i1'), ('y', 'i4')], align=True)\na = np.frombuffer(b'1...1234', d)",
         "d = np.dtype([('x', 'i1'), ('y', 'i4')], align=True)\na = np.frombuffer(b'1---1234', d)"),
    ],
)  # fmt: skip
def test_what_nobody_sees_is_not_looked_at(one, other):
    assert look(one)["values"]["a"] == look(other)["values"]["a"]


def test_an_order_is_the_same_however_it_came_about():
    moved = look("a = OrderedDict(x=1, y=2); a.move_to_end('x')")
    assert moved == look("a = OrderedDict(y=2, x=1)")


def test_an_iterator_at_its_end_is_over_nothing_of_its_own():
    ended = look("a = iter([1]); next(a); next(a, 0); b = [a]")
    assert ended == look("a = iter([]); b = [a]")
    assert ended["aliases"] == [["a", "b[0]"]]


def test_the_paths_of_an_alias_are_named():
    found = look("a = [1]; b = {'in': [a]}; c = (a,)")
    assert found["aliases"] == [["a", "b['in'][0]", "c[0]"]]
    assert found["values"]["a"][:2] == ["list", "#0=list[1]"]


def test_only_what_is_there_is_looked_at():
    assert picture({"a": defaultdict(int)}, ["a", "b"])["values"].keys() == {"a"}
    assert np.zeros(1).nbytes
    assert pd.DataFrame().empty


def test_what_does_not_let_itself_be_looked_at_is_known_by_its_type():
    proxy = "class P:\n    __slots__ = ()\n    __dict__ = property(lambda self: len)\na = P()"
    raises = "class R:\n    @property\n    def __dict__(self): raise OSError('gone')\na = R()"
    for source in (proxy, raises):
        assert look(source)["values"]["a"] == look(source)["values"]["a"]
    assert look(proxy)["values"]["a"] != look(raises)["values"]["a"]
