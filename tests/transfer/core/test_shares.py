"""What shows one memory, or one dictionary, on both sides: as in one process, cell by cell."""
# ruff: noqa: E501 - one cell a line

import pytest

from gpulease.transfer.holders import is_kept
from gpulease.transfer.side import Side
from tests.transfer.core.test_side import look, move, run

NOTEBOOKS = {
    "classes that say nothing of a module": [
        "M = type('M', (type,), {}); C = M('C', (), {}); C.__module__ = None; c = C(); c.v = [1]",
        "c.v.append(2); seen = [type(c) is C, C.__module__]",
        "seen.append(c.v)",
    ],
    "subclasses that their base hears of": [
        "made = []\nclass P:\n    def __init_subclass__(cls, /, name='', **more): made.append(name or cls.__name__)\nclass L(list):\n    def __init_subclass__(cls): made.append(cls)",
        "class A(P, name='a'):\n    def run(self): return 'A'\nclass B(A): pass\nclass M(L): pass",
        "seen = [B().run(), len(M([1])), made[:2], P.__subclasses__() == [A], A.__bases__]\nclass C(P): pass",
        "seen += [made[-1], C.__mro__ == (C, P, object)]",
    ],
    "the global generators under other names": [
        "import random, numpy as np\nfrom scipy import stats\nshuffle, draw, flip = random.shuffle, np.random.normal, stats.norm; random.seed(1); np.random.seed(1); seen = []",
        "shuffle(l := [1, 2, 3, 4]); seen += [l, draw(), random.random(), np.random.rand(), flip.rvs()]",
        "seen += [draw.__self__ is np.random.rand.__self__, flip.random_state is draw.__self__, shuffle.__self__ is random.random.__self__, draw()]",
    ],
    "a method's attributes, which are of the time when it was made": [
        "import collections\nT = collections.namedtuple('T', 'a')\nclass C:\n    s = staticmethod(len)\nvars(C)['s'].note = 5",
        "seen = [vars(T)['_make'].__qualname__, T._make.__qualname__, vars(C)['s'].note, C.s([1])]",
        "seen.append(vars(T)['_make'].__doc__)",
    ],
    "a dataclass, of which each field shows one empty dictionary": [
        "import dataclasses, types\n@dataclasses.dataclass\nclass D:\n    n: int = 1\nd = {'k': 1}; p = types.MappingProxyType(d); x = D(); held = iter([p])",
        "d['j'] = 2; seen = [dict(p), next(held) is not None]",
        "seen.append(len(p))",
    ],
    "a view that Cython made of an array": [
        "from sklearn.neighbors import KNeighborsClassifier\nk = KNeighborsClassifier(1, algorithm='kd_tree').fit([[0.0], [1.0]], [0, 1])",
        "seen = [k.predict([[0.9]]).tolist()]",
        "seen.append(k.predict([[0.1]]).tolist())",
    ],
    "frames that are copied on write, and their values": [
        "import pandas as pd\ndf = pd.DataFrame({'a': [1.0, 2, 3], 'b': [1.0, 2, 3]}); a = df.to_numpy(); d2 = df.iloc[:2]; s = df['a']",
        "df.iloc[0, 0] = 7",
        "a.flags.writeable = True; a[1, 1] = 50",
        "d2.iloc[0, 1] = 9",
        "s.iloc[2] = -1",
        "df.iloc[2, 1] = 3; a[2, 0] = 77",
        "del d2, s; df.iloc[1, 0] = 5",
    ],
    "frames over an array": [
        "import numpy as np, pandas as pd\na = np.arange(6.0).reshape(3, 2); df = pd.DataFrame(a, copy=False); s = df[0]; d2 = df.copy(deep=False)",
        "a[0, 0] = 7",
        "df.iloc[1, 1] = 50",
        "s.iloc[0] = 9; a[2, 0] = -1",
        "d2.iloc[2, 1] = 3; a[2, 0] = 77",
    ],
    "dates, an index and their values": [
        "import numpy as np, pandas as pd\ns = pd.Series(pd.date_range('2024', periods=3)); a = s.to_numpy(); i = pd.Index([3, 4, 5]); t = pd.Series(i); b = i.to_numpy()",
        "s.iloc[0] = pd.Timestamp('2020')",
        "a.flags.writeable = True; a[1] = np.datetime64('2021')",
        "t.iloc[0] = 9; b.flags.writeable = True; b[1] = 44",
        "b[2] = 3; t.iloc[1] = 0",
    ],
    "columns of objects": [
        "import numpy as np, pandas as pd\nl = [1]; o = np.array([l, None, 3], dtype=object); s = pd.Series(o, copy=False); u = s[1:]",
        "o[1] = 9; l.append(1)",
        "s.iloc[2] = 8",
        "u.iloc[0] = 4; o[2] = 0",
    ],
    "a series over a buffer": [
        "import array, numpy as np, pandas as pd\nm = array.array('d', [1, 2, 3]); s = pd.Series(np.frombuffer(m), copy=False); u = s[:2]",
        "m[0] = 9",
        "s.iloc[1] = 8",
        "u.iloc[0] = 4; m[2] = 0",
    ],
    "images over an array and a buffer": [
        "import numpy as np\nfrom PIL import Image\na = np.arange(12, dtype='u1').reshape(3, 4); im = Image.fromarray(a)\n"
        "c = bytearray(range(12)); im2 = Image.frombuffer('L', (4, 3), c, 'raw', 'L', 0, 1); seen = [im.tobytes()]",
        "a[0, 0] = 99; c[3] = 77; seen += [im.tobytes(), im2.tobytes()]",
        "im.putpixel((1, 1), 5); a[2, 0] = 1; seen += [im.tobytes(), a.tolist()]",
        "a[1, 1] = 3; c[0] = 9; seen += [im.tobytes(), im2.tobytes()]",
    ],
    "vars of a namespace": [
        "import types\nx = types.SimpleNamespace(n=1, l=[1]); y = vars(x); x.me = y; z = [y]; a = x; held = iter([y])",
        "y['k'] = 3",
        "x.n = 5; gone = next(held) is vars(x)",
        "z[0]['p'] = vars(x) is y",
        "r = x is a, x.me is y; y['last'] = 1",
    ],
    "vars whose namespace has no name": [
        "import types\nn = float('nan'); y = vars(types.SimpleNamespace(n=n)); u = types.SimpleNamespace(); u.u = u; v = vars(u)",
        "y['k'] = 3; r = y['n'] is n, v['u'] is u",
        "v['z'] = 1; s = u.z",
    ],
}  # fmt: skip


def played(cells, sides):
    pictures = []
    for number, source in enumerate(cells):
        if number and len(sides) > 1:
            parcel = move(*sides)
            assert not parcel.away
            assert not any(map(is_kept, parcel.pins))
            sides.reverse()
        run(sides[0], source)
        names = [name for name in sides[0].names() if name != "held"]
        pictures.append(look(sides[0], names))
    return pictures


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_is_as_in_one_process(name):
    pytest.importorskip("PIL" if "image" in name else "pandas")
    spaces = [{"__name__": "__main__", "__builtins__": __builtins__} for _ in range(3)]
    plain, *sides = (
        Side(label, each, hidden=set(each)) for label, each in zip("pha", spaces, strict=True)
    )
    assert played(NOTEBOOKS[name], sides) == played(NOTEBOOKS[name], [plain])


def test_a_forest_travels_and_memory_of_a_tree_does_not(sides):
    pytest.importorskip("sklearn")
    home, away = sides
    run(home, "import numpy as np\nfrom sklearn.ensemble import RandomForestClassifier")
    run(
        home,
        "X = np.arange(20.0).reshape(10, 2); model = RandomForestClassifier(2, random_state=1)",
    )
    run(home, "model.fit(X, [0, 1] * 5); before = model.predict(X)")
    assert not move(home, away).away
    run(away, "assert (model.predict(X) == before).all()")
    move(away, home)
    run(home, "values = model.estimators_[0].tree_.value")
    assert "Tree" in move(home, away).away["values"].reason


@pytest.mark.parametrize(
    "make",
    [
        "import pandas as pd\na, b = pd.DataFrame({'x': [1]}), pd.DataFrame({'y': [2]})",
        "import pandas as pd\na, b = pd.Series([1]), pd.Series([2])",
        "import pandas as pd\na, b = (pd.array([1, None], dtype='Int64') for _ in 'ab')",
        "from matplotlib.figure import Figure\na, b = Figure(), Figure()\n"
        "for f in (a, b): f.add_subplot().imshow([[1, 2]], cmap='plasma')\ndel f",
        "from sklearn.ensemble import RandomForestClassifier as Forest\n"
        "a, b = (Forest(2).fit([[1], [2]], [0, 1]) for _ in 'ab')",
    ],
)
def test_values_of_a_library_share_nothing_that_is_its_own(sides, make):
    pytest.importorskip("pandas")
    pytest.importorskip("sklearn")
    home, away = sides
    run(home, make)
    parcel = move(home, away)
    assert not parcel.pins
    assert {frozenset({"n:a"}), frozenset({"n:b"})} <= set(home.sizes)
