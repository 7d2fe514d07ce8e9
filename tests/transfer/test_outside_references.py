"""What home code holds outside the notebook's names stays the same object."""

import pytest

CASES = {
    "list": ("x = [1, [2]]", "x.append(3)", lambda v: v == [1, [2], 3]),
    "dict": ("x = {'a': 1, 'b': 2}", "del x['a']; x['c'] = 3", lambda v: v == {"b": 2, "c": 3}),
    "set": ("x = {1, 2}", "x.add(3); x.remove(1)", lambda v: v == {2, 3}),
    "bytearray": ("x = bytearray(b'abc')", "x += b'd'", lambda v: v == b"abcd"),
    "array": ("import numpy as np\nx = np.zeros(5)", "x += 1", lambda v: v.sum() == 5),
    "large array": (
        "import numpy as np\nx = np.zeros(100_000)", "x += 1", lambda v: v.sum() == 100_000,
    ),
    "instance": ("class C: pass\nx = C(); x.n = 1", "x.n = 2; x.me = x", lambda v: v.me is v),
    "frame": (
        "import pandas as pd\nx = pd.DataFrame({'a': [1, 2]})", "x['b'] = x.a * 2",
        lambda v: list(v.b) == [2, 4],
    ),
    "series": (
        "import pandas as pd\nx = pd.Series([1, 2])", "x[0] = 5", lambda v: list(v) == [5, 2],
    ),
    "deque": (
        "from collections import deque\nx = deque([1], maxlen=3)", "x.append(2)",
        lambda v: list(v) == [1, 2] and v.maxlen == 3,
    ),
    "ordered dict": (
        "from collections import OrderedDict\nx = OrderedDict(a=1, b=2)", "x.move_to_end('a')",
        lambda v: list(v) == ["b", "a"],
    ),
    "defaultdict": (
        "from collections import defaultdict\nx = defaultdict(list)", "x['k'].append(2)",
        lambda v: v == {"k": [2]} and v.default_factory is list,
    ),
    "counter": (
        "from collections import Counter\nx = Counter('aab')", "x.update('b')",
        lambda v: v == {"a": 2, "b": 2},
    ),
    "list of a class": (
        "class L(list): pass\nx = L([1]); x.n = 1", "x.append(2); x.n = 5",
        lambda v: v == [1, 2] and v.n == 5,
    ),
    "dict of a class": (
        "class D(dict): pass\nx = D(a=1)", "x['b'] = 2", lambda v: v == {"a": 1, "b": 2},
    ),
    "set of a class": ("class S(set): pass\nx = S([1])", "x.add(2)", lambda v: v == {1, 2}),
    "slots": (
        "class C: __slots__ = ('a', 'b')\nx = C(); x.a = 1", "x.b = [2]; del x.a",
        lambda v: v.b == [2] and not hasattr(v, "a"),
    ),
    "dataclass": (
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    n: int\nx = C(1)", "x.n = 2",
        lambda v: v.n == 2,
    ),
    "own reduction": (
        "class C:\n    def __reduce__(self): return C, (), self.__dict__\nx = C()", "x.n = 2",
        lambda v: v.n == 2,
    ),
    "own state": (
        "class C:\n    def __getstate__(self): return {'n': self.n}\n"
        "    def __setstate__(self, s): self.n = s['n']\nx = C(); x.n = 1",
        "x.n = 2", lambda v: v.n == 2,
    ),
    "namespace": (
        "import argparse\nx = argparse.Namespace(a=1)", "x.a = [2]", lambda v: v.a == [2],
    ),
    "estimator": (
        "from sklearn.linear_model import LinearRegression\nx = LinearRegression()",
        "x.fit([[1], [2]], [1, 2])", lambda v: abs(v.coef_[0] - 1) < 1e-9,
    ),
    "pipeline": (
        "from sklearn.pipeline import make_pipeline\n"
        "from sklearn.preprocessing import StandardScaler\nx = make_pipeline(StandardScaler())",
        "x.fit([[1], [2]])", lambda v: abs(v.transform([[2]])[0][0] - 1) < 1e-9,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", CASES)
def test_the_held_object_is_updated_in_place(pair, kind):
    make, change, right = CASES[kind]
    pair.home(f"{make}\nbox = [x]")
    held = [pair.ns["x"]]
    pair.gpu(change)
    pair.home("x")
    assert pair.ns["x"] is pair.ns["box"][0] is held[0]
    assert right(held[0])
    assert not pair.after.notes
    pair.gpu("assert box[0] is x")
    assert "x" not in pair.last.moved


def test_a_held_part_is_updated_in_place(pair):
    pair.home("inner = [1]\nx = {'deep': (inner, {'k': inner})}\ndel inner")
    held = pair.ns["x"]["deep"][0]
    pair.gpu("x['deep'][0].append(2); y = x['deep']")
    pair.home("x")
    assert pair.ns["x"]["deep"][0] is held
    assert pair.ns["y"][1]["k"] is held
    assert held == [1, 2]


def test_a_rebound_name_leaves_the_held_object_alone(pair):
    pair.home("x = [1]")
    held = pair.ns["x"]
    pair.gpu("x = [2]")
    pair.home("x")
    assert held == [1]
    assert pair.ns["x"] == [2]


def test_a_librarys_own_object_stays_that(pair):
    """It is found by its name on either side; another one would not be it."""
    pair.home("import re, pandas as pd\nx = re.IGNORECASE\ny = pd.NA")
    held = [pair.ns["x"], pair.ns["y"]]
    pair.gpu("assert x is re.IGNORECASE and y is pd.NA\nz = [x, y]")
    pair.home("z")
    assert pair.ns["z"][0] is held[0]
    assert pair.ns["z"][1] is held[1]
