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
}  # fmt: skip


@pytest.mark.parametrize("kind", CASES)
def test_the_held_object_is_updated_in_place(pair, kind):
    make, change, right = CASES[kind]
    pair.home(make)
    held = [pair.ns["x"]]
    pair.gpu(change)
    pair.home("x")
    assert pair.ns["x"] is held[0]
    assert right(held[0])
    pair.gpu("x")
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
