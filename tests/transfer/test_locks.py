"""A lock that nobody holds is one on both sides, for all who have it; a held one is named."""

import pytest

from gpulease.errors import GPULeaseError
from tests.transfer.kinds import BY_NEED, open_pair, play
from tests.transfer.pair import CellError, home_thread

KINDS = {
    "lock": "threading.Lock()",
    "recursive lock": "threading.RLock()",
    "condition": "threading.Condition()",
    "condition over a lock": "threading.Condition(threading.Lock())",
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


@pytest.fixture(scope="module")
def shared():
    with open_pair() as pair:
        yield pair


@pytest.fixture(scope="module")
def by_need():
    with open_pair(BY_NEED) as pair:
        yield pair


@pytest.fixture(params=["eager", "by need"])
def either(request, shared, by_need):
    return shared if request.param == "eager" else by_need


def begin(pair, cell):
    play(pair, ["import threading; seen = 0\n" + cell], beside_gpu=False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", ["home", "gpu"])
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


def test_conditions_over_one_lock_keep_it(shared):
    begin(
        shared,
        "class Queue:\n    def __init__(s):\n        s.mutex = threading.Lock(); s.items = []\n"
        "        s.some = threading.Condition(s.mutex); s.room = threading.Condition(s.mutex)\n"
        "    def put(s, x):\n        with s.some: s.items.append(x); s.some.notify()\n"
        "q = Queue(); some = q.some",
    )
    shared.gpu("q.put(1)\nwith q.mutex: assert not q.room.acquire(False)\nassert some is q.some")
    shared.home("q.put(2)\nassert q.items == [1, 2] and some is q.some")
    shared.home("with some: assert q.mutex.locked() and not q.room.acquire(False)")


def test_it_does_not_look_changed(shared):
    begin(shared, "lock = threading.RLock(); box = [lock, [0]]")
    shared.gpu("box, lock")
    shared.home("with lock: pass")
    shared.gpu("box, lock")
    assert shared.last.moved == (), shared.last


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", ["lock", "box[0]", "use()"])
def test_one_that_was_taken_later_is_refused_by_name(either, kind, at):
    cell = f"lock = {KINDS[kind]}; box = [lock]\ndef use(own=lock): return own\nn = 1"
    begin(either, cell)
    either.gpu(f"{at}; n += 1")
    either.home("lock.acquire()")
    name = at.partition("[")[0].partition("(")[0]
    either.gpu("n += 1")
    with pytest.raises(GPULeaseError, match=f"{name} cannot travel .*that is in use"):
        either.gpu(at)
    either.home("lock.release()")
    either.gpu(f"assert n == 3 and {at}.acquire(False)")
    with pytest.raises(GPULeaseError, match=f"{name} cannot travel .*that is in use"):
        either.home(at)
    either.gpu("lock.release()")
    either.home(f"with {at}: n += 1\nassert n == 4")


@pytest.mark.parametrize("kind", KINDS)
def test_a_held_one_that_never_travelled_stays(shared, kind):
    begin(shared, f"lock = {KINDS[kind]}; lock.acquire(); box = [lock, 1]")
    shared.gpu("box[1] = 2")
    with pytest.raises(CellError, match=r"box\[0\] stayed in your notebook: a .* that is in use"):
        shared.gpu("box[0].acquire(False)")
    shared.home("assert box[1] == 2 and box[0] is lock\nlock.release()")
    shared.gpu("box[1] = 3")
    with pytest.raises(CellError, match="stayed in your notebook"):
        shared.gpu("box[0].acquire(False)")
    shared.home("assert box == [lock, 3] and lock.acquire(False)")


def test_a_condition_that_a_thread_of_the_notebook_may_tell_of_something_stays(shared):
    begin(
        shared,
        "import os\nchanged = threading.Condition(); box = [changed]\nr, w = os.pipe()\n"
        "def work():\n    os.read(r, 1)\n    with changed: changed.notify()\n"
        "t = threading.Thread(target=work); t.start()",
    )
    with pytest.raises(CellError, match=r"box\[0\] stayed in your notebook: a condition"):
        shared.gpu("with box[0]: box[0].wait()")
    shared.home("os.write(w, b'x'); t.join(); os.close(r); os.close(w)")


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


def test_a_class_with_a_way_of_its_own_to_be_loaded_may_use_one(shared):
    begin(
        shared,
        "class C:\n    def __init__(s): s.lock = threading.Lock(); s.n = 1\n"
        "    def __setstate__(s, d):\n        vars(s).update(d)\n        with s.lock: s.n += 1\n"
        "c = C(); lock = c.lock",
    )
    shared.gpu("assert c.n == 2 and c.lock is lock")
    shared.home("assert c.lock is lock")


def test_one_that_is_made_while_it_is_pickled_is_refused(shared):
    begin(
        shared,
        "class C:\n    def __getstate__(s): return {'lock': threading.Lock()}\nc = C()",
    )
    with pytest.raises(GPULeaseError, match=r"c cannot travel .*a lock that its own pickling"):
        shared.gpu("c")
