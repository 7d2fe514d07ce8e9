"""Large memory of arrays: what travels of it, where it arrives, and what a failure leaves."""

import gc
import pickle
import sys
import types

import numpy as np
import pytest

from gpulease.transfer import classes, commit, pieces
from gpulease.transfer.api import StageError
from gpulease.transfer.pieces import PIECE
from tests.transfer.core.test_side import move, run

MAKE = f"""
import numpy as np
a = np.arange({PIECE} // 8 * 5 + 3.0); v = a[5:50].reshape(5, 9); turned = np.asfortranarray(
    np.arange({PIECE} // 4).reshape(2, -1))
"""


def sent(parcel):
    """Return how many bytes of memory travel."""
    return sum(memoryview(part).nbytes for each in parcel.components for part in each.buffers)


@pytest.fixture
def large(sides):
    home, away = sides
    run(home, MAKE)
    move(home, away)
    return home, away


def test_what_changed_of_an_array_travels_in_pieces(large):
    home, away = large
    for space in (home.ns, away.ns):
        space["first"] = space["a"]
    move(home, away)
    kept = {side: dict(side.ns) for side in large}
    run(away, "a[0] = -1; v[4, 8] = -2; a[-1] = -3")
    assert sent(move(away, home)) == PIECE + 24
    run(
        home,
        "assert a[0] == -1 and a[49] == -2 == v[4, 8] and a[-1] == -3 and v.base is a is first",
    )
    run(home, "turned[1, 1] = -4; a += 1")
    assert sent(move(home, away)) == 5 * PIECE + 24 + PIECE
    run(away, "assert turned[1, 1] == -4 and a[0] == 0 and v.base is a is first; b = [a]")
    assert sent(move(away, home)) == 0
    run(home, "assert b[0] is a")
    for side, before in kept.items():
        assert all(side.ns[name] is before[name] for name in ("a", "turned", "first"))


def test_what_something_holds_sees_the_new_bytes(large):
    home, away = large
    run(home, "seen = (a[n] for n in (0, 1)); alone = np.zeros(a.size); two = map(alone.item, [1])")
    move(home, away)
    run(away, "a[0] = -1; alone[1] = 5; del alone; a.flags.writeable = False")
    parcel = move(away, home)
    assert sent(parcel) == 2 * PIECE
    run(home, "assert next(seen) == -1 and next(two) == 5 and not a.flags.writeable")


def test_a_view_is_writeable_though_its_array_is_not_any_more(large):
    home, away = large
    run(home, "a.flags.writeable = False")
    move(home, away)
    run(away, "box = [v]")
    move(away, home)
    run(home, "v[0, 1] = -2; assert box[0] is v and a[6] == -2 and not a.flags.writeable")
    move(home, away)
    run(away, "v[0, 0] = -1; assert a[5:7].tolist() == [-1, -2] and not a.flags.writeable")


def test_an_array_of_another_shape_is_another_memory(large):
    home, away = large
    run(away, "del v, turned; a.shape = (1, -1); a[0, 1] = -1; short = np.ones(a.size); a = [a]")
    move(away, home)
    run(home, "assert a[0].shape[0] == 1 and a[0][0, 1] == -1 and short[3] == 1")
    run(home, "a[0].shape = (-1,); a[0][0] = -2; short = a[0][:7]")
    move(home, away)
    run(away, "assert a[0][:3].tolist() == [-2, -1, 2] and short.base is a[0] and short.size == 7")


def test_what_was_away_comes_whole(large):
    home, away = large
    run(home, "a[0] = -1")
    move(home, away, set())
    gc.collect()
    assert "a" not in away.ns
    assert sent(move(home, away, {"a"}, hand_over=False)) >= 5 * PIECE
    run(away, "assert a[0] == -1; a[1] = -2")
    move(away, home)
    run(home, "assert a[1] == -2 and a[0] == -1")


@pytest.mark.parametrize("step", ["_bind", "_set_state"])
def test_a_failure_leaves_the_bytes_as_they_were(large, monkeypatch, step):
    home, away = large
    run(away, "a[:] = 0; turned[0, 0] = 7; turned.flags.writeable = False")

    def fails(*_):
        raise RuntimeError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(commit, step, fails)
        with pytest.raises((RuntimeError, StageError), match="no room"):
            move(away, home)
    run(home, "assert (a == np.arange(a.size)).all() and turned[0, 0] == 0; turned[0, 1] = 0")
    move(away, home)
    run(home, "assert not a.any() and turned[0, 0] == 7 and not turned.flags.writeable")


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_what_was_overwritten_is_kept_once(kind):
    found, undo = np.zeros(PIECE + 100, "u1"), classes.Undo()
    part = kind(b"\1" * 100)
    pieces.write(found, [(1, 2)], [part], undo)
    assert found[:PIECE].sum() == 0
    assert found[PIECE:].tolist() == [1] * 100
    assert part == (bytes(100) if kind is bytearray else b"\1" * 100)
    undo.run()
    assert not found.any()


def test_sealed_memory_goes_on_whole(large, monkeypatch):
    home, away = large
    lib = types.ModuleType("lib")
    exec("class Engine:\n    def __reduce__(self): return Engine, ()", lib.__dict__)
    monkeypatch.setitem(sys.modules, "lib", lib)
    run(away, "import lib\na[0] = -1; v = lib.Engine(); v.a = a; box = [a, v]; del lib, v, turned")
    with monkeypatch.context() as patch:
        parcel = away.pack()
        patch.setitem(sys.modules, "lib", None)
        home.commit(home.stage(pickle.loads(pickle.dumps(parcel, protocol=5))))
    away.acknowledge(parcel)
    assert set(home.away()) == {"a", "box"}
    following = type(home)("b", {"__name__": "__main__", "__builtins__": __builtins__},
                           hidden=("__name__", "__builtins__"))  # fmt: skip
    home.forget_peer()
    move(home, following)
    run(following, "assert a[0] == -1 and box[0] is a and a[-1] == a.size - 1")


def test_of_many_arrays_in_a_dict_the_one_that_changed_travels(sides):
    home, away = sides
    run(home, "import numpy as np\nall = {n: np.full(2**17, 1.0 * n) for n in range(4)}")
    move(home, away)
    run(home, "all[2][5] = -1")
    assert sent(move(home, away)) == 2**20
    assert away.ns["all"][2][5] == -1
