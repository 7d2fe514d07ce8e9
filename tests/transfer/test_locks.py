"""A lock that nobody holds is one on both sides, for all who have it; a held one is named."""

import pytest

from gpulease.errors import GPULeaseError
from tests.transfer.kinds import in_turn, play
from tests.transfer.pair import CellError, home_thread

KINDS = {
    "lock": "threading.Lock()",
    "recursive lock": "threading.RLock()",
}
#: What holds one, and how one gets to it.
HOLDERS = {
    "variable": ("def use():\n    with lock: return lock", "lock"),
    "default argument": ("def use(own=lock):\n    with own: return own", "use()"),
    "closure": (
        "def make(own):\n    def use():\n        with own: return own\n    return use\n"
        "use = make(lock)",
        "use()",
    ),
    "attribute": ("class A: pass\na = A(); a.own = lock; a.n = [0]", "a.own"),
    "class": ("class A: own = lock", "A.own"),
    "dict": ("d = {lock: 1, 'k': lock}", "d['k']"),
    "its method": ("take, give = lock.acquire, lock.release", "take.__self__"),
}


def begin(pair, cell):
    play(pair, ["import threading; seen = 0\n" + cell], beside_gpu=False)


@in_turn(kind=KINDS, side=["home", "gpu"])
def test_a_function_with_a_global_lock(either, kind, side):
    begin(either, "n = [0]")
    here, there = (either.home, either.gpu)[:: 1 if side == "home" else -1]
    here(f"lock = {KINDS[kind]}\ndef add(k):\n    with lock: n.append(k)\n    return lock")
    there("add(1)\nsame = add(2)\nassert same is lock")
    here("assert n == [0, 1, 2] and add(3) is lock is same\nwith same: pass")
    there("assert n == [0, 1, 2, 3] and add(4) is lock is same")


@pytest.mark.parametrize("holder", HOLDERS)
def test_every_holder_has_the_one_lock(either, holder):
    make, at = HOLDERS[holder]
    begin(either, f"lock = threading.Lock()\n{make}\nother = [lock]; n = 0")
    if holder == "its method":
        at = "lock if take.__self__ is give.__self__ is lock else 0"
    either.gpu(f"got = [{at}]; n += got[0] is other[0] is lock\nassert lock.acquire(False)")
    either.gpu("lock.release()")
    either.home(f"assert n == 1 and got[0] is other[0] is lock is ({at})\nassert lock.acquire(0)")
    either.home("lock.release()")
    either.gpu(f"assert got[0] is other[0] is lock is ({at})")


def test_it_does_not_look_changed(eager):
    begin(eager, "lock = threading.RLock(); box = [lock, [0]]")
    eager.gpu("box, lock")
    eager.home("with lock: pass")
    eager.gpu("box, lock")
    assert eager.last.moved == (), eager.last


@in_turn(kind=KINDS, at=["lock", "box[0]", "use()"])
def test_one_that_was_taken_later_is_refused_by_name(either, kind, at):
    cell = f"lock = {KINDS[kind]}; box = [lock]\ndef use(own=lock): return own\nn = 1"
    begin(either, cell)
    either.gpu(f"{at}; n += 1")
    either.home("lock.acquire()")
    either.gpu("n += 1")
    in_use = r"lock (stayed|cannot travel) .*that is in use"
    with pytest.raises((GPULeaseError, CellError), match=in_use):
        either.gpu(f"{at}.acquire(False)")
    either.home("lock.release()")
    either.gpu(f"assert n == 3 and {at}.acquire(False)")
    with pytest.raises(GPULeaseError, match=in_use):
        either.home(f"{at}.acquire(False)")
    either.gpu("lock.release()")
    either.home(f"with {at}: n += 1\nassert n == 4")


@pytest.mark.parametrize("kind", KINDS)
def test_a_held_one_that_never_travelled_stays(eager, kind):
    begin(eager, f"lock = {KINDS[kind]}; lock.acquire(); box = [lock, 1]")
    eager.gpu("box[1] = 2")
    with pytest.raises(CellError, match=r"lock stayed in your notebook: a .* that is in use"):
        eager.gpu("box[0].acquire(False)")
    eager.home("assert box[1] == 2 and box[0] is lock\nlock.release()")
    eager.gpu("assert box[0].acquire(False)")
    with pytest.raises(GPULeaseError, match=r"lock .*that is in use"):
        eager.home("lock.acquire(False)")
    eager.gpu("box[0].release()")


def test_a_condition_stays_by_name(eager):
    begin(eager, "c = threading.Condition(); box = [c]; n = 1")
    eager.gpu("n += 1")
    for name in ("c", "box"):
        with pytest.raises(
            GPULeaseError, match=f"{name} cannot travel .*condition between threads"
        ):
            eager.gpu(name)
    eager.home("assert box[0] is c and n == 2")


def test_with_a_thread_of_the_notebook_a_change_on_both_sides_is_seen_all_the_same(new_pair):
    pair = new_pair()
    pair.attach()
    pair.home("import threading\nlock = threading.Lock(); items = []\ndef add(k):\n"
              "    with lock: items.append(k)")  # fmt: skip
    with home_thread() as do:
        add = pair.ns["add"]
        pair.start_gpu("add('gpu')")
        do(lambda: add("home"))
        pair.end_gpu()
        with pytest.raises(GPULeaseError, match="items"):
            pair.home("items")


def test_a_new_companion_gets_one(new_pair):
    pair = new_pair()
    pair.attach()
    pair.home("import threading\nlock = threading.Lock()\ndef f():\n    with lock: return lock")
    pair.gpu("f()")
    pair.companion.kill()
    pair.side.disconnect(died=True, cell="2")
    pair.home("f()")
    pair.attach()
    pair.gpu("assert f() is lock and lock.acquire(False)")
