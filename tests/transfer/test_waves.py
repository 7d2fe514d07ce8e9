"""Values whose own code runs while they are loaded, and reads names of the notebook."""

import os

import pytest

from tests.transfer.kinds import BY_NEED, in_turn

HEAD = "import math\n"
#: Source, and what is read of it.
KINDS = {
    "a state that uses a module": (
        "import numpy as np\nclass D:\n    def __init__(self): self.v = 1\n"
        "    def __getstate__(self): return {'v': self.v}\n"
        "    def __setstate__(self, s): self.v = int(np.int64(s['v']))\nd = D()"
    ),
    "a function of a reduction": (
        "K = 5\ndef back(v):\n    d = D(); d.v = v - K; return d\n"
        "class D:\n    def __init__(self): self.v = 1\n"
        "    def __reduce__(self): return back, (self.v + K,)\nd = D()"
    ),
    "a constructor": (
        "K = 5\nclass D:\n    def __init__(self, v): self.v = v + K\n"
        "    def __reduce__(self): return D, (self.v - K,)\nd = D(-4)"
    ),
    "a hash": (
        "K = {'a': 5}\nclass D:\n    def __init__(self, v): self.v = int(math.sqrt(v))\n"
        "    def __hash__(self): return hash(K['a'])\n"
        "    def __eq__(self, o): return K['a'] == 5 and self.v == o.v\n"
        "d = D(1); s = {d}; m = {d: 1}"
    ),
    "an exception": (
        "CODES = {1: 'one'}\nclass E(Exception):\n"
        "    def __init__(self, v): super().__init__(v); self.v, self.text = v, CODES[v]\nd = E(1)"
    ),
    "a value of a value": (
        "K = 5\nclass C:\n    def __init__(self, k): self.k = k + K\n"
        "    def __reduce__(self): return C, (self.k - K,)\n"
        "config = C(2)\ndef find(): return config.k\n"
        "class D:\n    def __init__(self, v): self.v = v + find()\n"
        "    def __reduce__(self): return D, (self.v - find(),)\nd = D(-6)"
    ),
    "an instance that a class holds": (
        "K = 5\nclass P:\n    def __init__(self, p): self.p = p + K\n"
        "    def __reduce__(self): return P, (self.p - K,)\n"
        "class D:\n    base = P(1)\n    v = 1\nd = D()\nassert d.base.p == 6"
    ),
    "values that read each other's names": (
        "class D:\n    def __init__(self, v): self.v, self.w = v, 0\n"
        "    def __getstate__(self): return self.v, self.w\n"
        "    def __setstate__(self, s): self.v, self.w = s[0], len(NAMES)\n"
        "    def pair(self): return d, e\n"
        "NAMES = 'de'\nd, e = D(1), D(2)"
    ),
}  # fmt: skip


def of(pair, first):
    return (pair.home, pair.gpu) if first == "home" else (pair.gpu, pair.home)


@in_turn(first=["home", "gpu"], kind=KINDS)
def test_what_code_reads_while_a_value_is_loaded_is_there(either, kind, first):
    one, two = of(either, first)
    one(HEAD + KINDS[kind])
    two("out = d.v")
    either.home("out, d")
    assert either.ns["out"] == 1


IN_PLACE = (
    "K = {'a': 5}\ndef back(v):\n    d = D(); d.v = v - K['a']; return d\n"
    "class D:\n    def __init__(self): self.v = 1\n"
    "    def __reduce__(self): return back, (self.v + K['a'],)\nd = D()"
)


@pytest.mark.parametrize("first", ["home", "gpu"])
@pytest.mark.parametrize(
    ("source", "change", "read"),
    [
        (KINDS["a function of a reduction"], "K = 6\nd.v = 1", "K"),
        (KINDS["a function of a reduction"], "K = 6\nd = D()", "K"),
        (IN_PLACE, "K['a'] = 6\nd = D()", "K['a']"),
    ],
)
def test_what_code_reads_while_a_value_is_loaded_is_not_an_older_value(
    either, source, change, read, first
):
    one, two = of(either, first)
    one(source)
    two("d.v, K")
    one(change)
    two(f"out = d.v, {read}")
    either.home("out, d")
    assert either.ns["out"] == (1, 6)


def test_a_module_that_only_such_a_value_wants_is_not_imported_for_it(pair):
    """A value nobody asked for waits with its module; no note says that it cannot travel."""
    pair.home(
        "import colorsys\nclass D:\n    def __init__(self): self.v = 1\n"
        "    def __getstate__(self): return {'v': self.v}\n"
        "    def __setstate__(self, s): self.v = int(colorsys.rgb_to_hsv(0, 0, s['v'])[2])\n"
        "d = D()"
    )
    pair.gpu("pass")
    assert not pair.last.notes
    pair.gpu("out = d.v")
    pair.home("out")
    assert pair.ns["out"] == 1


@pytest.mark.parametrize("first", ["home", "gpu"])
def test_a_hash_reads_what_came_with_it_and_not_what_was_there(either, first):
    one, two = of(either, first)
    two(HEAD + KINDS["a hash"])
    one("K = {'a': 6}; d = D(4); s = {d}; m = {d: 1}")
    two("out = d in s and m[d]")
    assert either.home("out") == 1


def test_a_value_that_is_parked_finds_what_its_code_reads(new_pair, tmp_path):
    pair = new_pair()
    pair.attach()
    path = str(tmp_path / "parked")
    pair.home(f"import os\nHOME, K = {os.getpid()}, 7")
    pair.leave_parked(
        "def back(v):\n"
        "    if os.getpid() == HOME: raise OSError('no device')\n"
        "    d = D(); d.v = v + K; return d\n"
        "class D:\n    def __reduce__(self): return back, (self.v - K,)\n"
        "d = D(); d.v = 10",
        path,
    )
    pair.side.disconnect(died=False)
    pair.attach(parked=path)
    pair.gpu("out = d.v")
    pair.home("out")
    assert pair.ns["out"] == 10


def test_what_only_the_loading_needs_is_sent_each_time(pair):
    """Nobody has it on the other side in the end, and this side is told so."""
    pair.home(
        "def maker(n):\n    def helper(): return n\n    return helper\n"
        "def make(v, helpers):\n    d = D(); d.v = v; return d\n"
        "class D:\n    helpers = ()\n"
        "    def __reduce__(self): return make, (self.v, self.helpers)\n"
        "d = D()\nd.helpers = [maker(n) for n in range(8)]"
    )
    for value in range(3):
        pair.home(f"d.v = {value}")
        pair.gpu(f"assert d.v == {value}")


BY_AN_ATTRIBUTE = (
    "class K: scale = 1\nclass A:\n    v = 3\n    def __getstate__(self): return scaled(self.v)\n"
    "    def __setstate__(self, s): self.v = s / K.scale\n"
    "def scaled(v): return v * K.scale\nb = A()"
)


def test_code_that_packs_by_names_as_they_were_refuses_nothing(new_pair):
    pair = new_pair(settings=BY_NEED)
    pair.attach()
    pair.gpu(f"{BY_AN_ATTRIBUTE}; n = 0")
    pair.home("n, K")
    pair.home("other = K.scale")
    pair.home("assert b.v == 3")
