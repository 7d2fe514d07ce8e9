"""Interrupts, deaths, conflicts, memory: nothing is overwritten, and every loss is said."""

import os
import signal
import threading

import pytest

from gpulease.errors import GPULeaseError
from gpulease.transfer import commit
from gpulease.transfer.api import Place
from tests.helpers import wait_for
from tests.transfer.pair import CellError, home_thread


def test_a_home_thread_and_a_gpu_cell_conflict(pair):
    pair.home("shared = [1]\nkeep = shared")
    with home_thread() as do:
        pair.start_gpu("import sys\nshared.append(2)\nsys.stdin and None")
        do(lambda: pair.ns["shared"].append("thread"))
        pair.end_gpu()
    assert any(note.reason == "conflicted" for note in pair.after.notes)
    assert "resolve" in pair.side.explain("shared").sentence
    with pytest.raises(GPULeaseError, match="changed in your notebook and "):
        pair.home("print(shared)")
    pair.side.resolve("shared", "home")
    pair.home("assert shared == [1, 'thread'] and keep is shared")
    pair.gpu("assert shared == [1, 'thread'], shared")


def test_a_conflict_resolved_for_the_gpu(pair):
    pair.home("shared = [1]")
    with home_thread() as do:
        pair.start_gpu("shared.append(2)")
        do(lambda: pair.ns["shared"].append("thread"))
        pair.end_gpu()
    pair.side.resolve("shared", "gpu")
    pair.home("assert shared == [1, 2], shared")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_during_a_switch_leaves_both_as_before(pair):
    pair.home("import numpy as np\nbig = np.ones(40_000_000)")

    def interrupt_soon():
        timer = threading.Timer(0.15, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        return timer

    timer = interrupt_soon()

    def switch_for_ever():
        nonlocal timer
        while True:
            # Python drops one that comes while the callback of a weak reference runs, and warns.
            if not timer.is_alive():
                timer = interrupt_soon()
            pair.side.before_gpu_cell("big.sum()")
            pair.side.after_home_cell()
            pair.ns["big"][0] += 1
            pair.side.owner = Place.HOME

    with pytest.raises(KeyboardInterrupt):
        switch_for_ever()
    timer.cancel()
    timer.join()
    pair.home("assert big.sum() >= 40_000_000 and big[1] == 1")
    pair.gpu("assert big[1] == 1; n = 1")
    pair.home("assert n == 1")


def slow_to_load(begun, ended):
    """Return a cell whose ``x`` the companion begins to load, and has loaded when it may end."""
    return f"""
class Slow:
    def __hash__(self):
        import os, time  # the names of the notebook are not there yet
        if os.getpid() != {os.getpid()}:
            open({str(begun)!r}, 'w').close()
            while not os.path.exists({str(ended)!r}): time.sleep(0.01)
        return 1
x = {{Slow()}}"""


def interrupted_while_it_loads(pair, begun):
    """Interrupt a GPU cell of ``x`` once the companion has begun to load it."""

    def interrupt():
        wait_for(begun.exists, 30, "the companion loads")
        os.kill(os.getpid(), signal.SIGINT)

    other = threading.Thread(target=interrupt)
    other.start()
    with pytest.raises(KeyboardInterrupt):
        pair.gpu("x")
    other.join()


def test_an_interrupt_does_not_wait_for_the_other_side(pair, tmp_path):
    """It is loading what it got, which nobody can stop; the next cell waits for that."""
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    pair.home(slow_to_load(begun, ended))

    interrupted_while_it_loads(pair, begun)
    assert not ended.exists()
    ended.touch()
    pair.home("y = [2]")
    pair.gpu("assert y == [2] and len(x) == 1; y.append(3)")
    pair.home("assert y == [2, 3]")


@pytest.fixture
def unforeseen(monkeypatch):
    """Return what makes the next commit at home fail as nobody foresaw."""
    usual = commit.apply

    def fails(*args):
        monkeypatch.setattr(commit, "apply", usual)
        raise RuntimeError("not foreseen")

    return lambda: monkeypatch.setattr(commit, "apply", fails)


def test_what_nobody_foresaw_is_a_refusal_and_leaves_all_as_it_was(pair, unforeseen):
    """A request of the front end's beside a cell would have no answer to another exception."""
    pair.gpu("x = [1]")
    pair.start_gpu("x.append(2)")
    unforeseen()
    with pytest.raises(GPULeaseError, match="failed inside gpulease") as error:
        pair.end_gpu()
    assert error.value.reason == "internal"
    pair.home("assert x == [1, 2]")


def test_what_nobody_foresaw_at_the_end_of_a_lease_is_said_and_can_be_tried_again(lazy, unforeseen):
    lazy.gpu("x = [1]")
    unforeseen()
    assert not lazy.side.drain(60).done
    assert lazy.side.drain(60).done
    assert lazy.ns["x"] == [1]


def test_too_big_for_home_stays_away_and_says_so(new_pair):
    pair = new_pair(available=lambda: 300 * 2**20)
    pair.attach()
    pair.gpu("import numpy as np\nbig = np.ones(8_000_000)\nn = 5")
    with pytest.raises(GPULeaseError, match=r"big.*memory|memory"):
        pair.home("big.sum()")
    pair.home("assert n == 5")
    pair.gpu("assert big.sum() == 8_000_000")


def test_even_the_small_may_not_fit(new_pair):
    pair = new_pair(available=lambda: 262 * 2**20)
    pair.attach()
    pair.gpu("import numpy as np\nw = [np.ones(1_000_000) for _ in range(2)]\nv = 5")
    with pytest.raises(GPULeaseError, match="memory"):
        pair.home("w[0].sum()")
    assert pair.home("v") == 5


@pytest.mark.parametrize(
    ("make", "why"),
    [
        ("import socket; x = socket.socket()", "socket"),
        ("import threading; x = threading.Lock(); x.acquire()", "lock that is in use"),
        ("x = {'deep': [memoryview(bytearray(1))]}", "memoryview"),
        ("x = open('/dev/null')", "open file"),
        ("x = (i for i in range(3))", "generator"),
        ("import threading; x = threading.Thread()", "thread"),
    ],
)
def test_refused_kinds_stop_only_the_cell_that_needs_them(pair, make, why):
    pair.home(make + "\nn = 1")
    try:
        pair.gpu("n += 1")
        with pytest.raises(GPULeaseError, match=f"x cannot travel.*{why}"):
            pair.gpu("x")
        pair.home("assert n == 2")
    finally:
        pair.home("x.close() if hasattr(x, 'close') else None\ndel x")


def test_a_value_stuck_away_is_explained(pair):
    pair.gpu("g = (i for i in range(3)); n = 1")
    with pytest.raises(GPULeaseError, match=r"g cannot travel.*generator"):
        pair.home("next(g)")
    pair.home("assert n == 1")
    pair.gpu("assert next(g) == 0")


def test_parked_values_reach_the_next_companion(pair, tmp_path):
    path = tmp_path / "parked"
    pair.home("k = 3\ndef triple(v): return k * v")
    pair.start_gpu("import numpy as np\nw = np.ones(5_000_000)\nhold = [triple, w]")
    pair.companion.hear()
    answer = pair.companion.ask({"op": "park", "path": str(path)})
    assert answer["done"], answer
    assert path.stat().st_mode & 0o777 == 0o600
    pair.side.after_gpu_cell(1)
    pair.companion.kill()
    notes = pair.side.disconnect(died=False)
    assert {n for note in notes for n in note.names} >= {"w"}
    assert {s.place for s in pair.side.status() if s.name == "w"} == {Place.PARKED}
    pair.attach(parked=str(path))
    pair.home("assert w.sum() == 5_000_000 and hold[1] is w and hold[0] is triple")


def _left_with_a_parked_file(pair, path):
    """A companion held ``w`` and a generator, parked what it could and left in good order."""
    source = "import numpy as np\nw = np.ones(5_000_000)\ng = (i for i in range(3))"
    pair.leave_parked(source, path)


def test_what_could_not_be_parked_is_lost_and_not_said_to_be_parked(pair, tmp_path):
    path = tmp_path / "parked"
    _left_with_a_parked_file(pair, path)
    pair.side.disconnect(died=False, lost=("g",))
    assert pair.side.explain("g").reason == "lost"
    assert pair.side.explain("w").reason == "parked"
    pair.attach(parked=str(path))
    pair.home("assert w.sum() == 5_000_000")


def test_what_the_next_companion_does_not_find_parked_is_lost(pair, tmp_path):
    _left_with_a_parked_file(pair, tmp_path / "parked")
    pair.side.disconnect(died=False)
    assert pair.side.explain("w").reason == "parked"
    pair.attach()
    assert pair.side.explain("w").reason == "lost"
    with pytest.raises(GPULeaseError, match="w was parked, and is lost: it was not found there"):
        pair.home("w")


def test_a_killed_companion_during_collection(pair):
    pair.home("x = [1]")
    pair.start_gpu("x.append(2)")
    pair.companion.hear()
    pair.companion.kill()
    with pytest.raises(GPULeaseError) as caught:
        pair.side.after_gpu_cell(1)
    assert caught.value.reason == "companion_gone"
    pair.side.disconnect(died=True, cell="1")
    assert "lost" in pair.side.explain("x").reason
    with pytest.raises(GPULeaseError, match="lost with the companion"):
        pair.home("x")
    pair.side.recover(["x"])
    pair.home("assert x == [1]")


def test_only_the_proved_key_is_served(pair):
    import zmq

    from gpulease.channel.keys import KeyPair
    from gpulease.transfer.home import HomeSide

    public, secret = zmq.curve_keypair()
    stranger = HomeSide({}, hidden=())
    with pytest.raises(GPULeaseError):
        stranger.connect(pair.companion.endpoint, KeyPair(public.decode(), secret.decode()))
    pair.gpu("n = 1")


def test_a_computing_thread_beside_the_gpu_never_gives_a_torn_value(pair):
    pair.gpu(
        "import threading\nstop = []\npairs = {'a': 0, 'b': 0}\n"
        "def count():\n"
        "    while not stop:\n"
        "        pairs['a'] += 1\n        pairs['b'] += 1\n"
        "t = threading.Thread(target=count, daemon=True); t.start()"
    )
    try:
        pair.gpu("n = 2")
        pair.home("assert n == 2")
    finally:
        pair.gpu("stop.append(1)\nt.join()")
    pair.home("assert pairs['a'] == pairs['b'] > 0")


def test_a_cell_error_travels_with_what_the_cell_did(pair):
    pair.home("x = []")
    with pytest.raises(CellError, match="ZeroDivisionError"):
        pair.gpu("x.append(1)\n1 / 0")
    pair.home("assert x == [1]")


def test_drain_from_another_thread(pair):
    pair.gpu("import numpy as np\nw = np.ones(3_000_000)")
    reports = []
    thread = threading.Thread(target=lambda: reports.append(pair.side.drain(60)))
    thread.start()

    def drained():
        pair.side.commit_pending()
        return not thread.is_alive()

    wait_for(drained)
    assert reports[0].done, reports
    pair.side.commit_pending()
    assert pair.ns["w"].sum() == 3_000_000


def test_a_module_is_not_lost_with_the_companion(pair):
    pair.home("import os, threading, time")
    pair.gpu("import sys\ngenerator = (n for n in ())\ncame = 1")
    pair.home("assert sys.path")
    # What an ended cell made may be home before anybody asks for it: this one does not end.
    pair.start_gpu("time.sleep(0)\nos.getpid()\nlast = 1\nthreading.Event().wait()")
    pair.companion.kill()
    with pytest.raises(GPULeaseError):
        pair.side.after_gpu_cell(3)
    pair.side.disconnect(died=True, cell="3")
    pair.home("assert os.getpid() and time.time() and sys.path")
    assert pair.ns["came"] == 1, "it was small, and is here since its cell"
    for name in ("generator", "last"):
        assert pair.side.explain(name).reason == "lost"


def test_a_module_that_waits_beside_the_gpu_is_called_a_module(pair):
    pair.gpu("import colorsys as waiting")
    rows = {row.name: row for row in pair.side.status()}
    assert rows["waiting"].type_name == "module"


def test_what_the_next_companion_cannot_read_is_lost_with_the_reason(pair, tmp_path):
    path = tmp_path / "parked"
    pair.home("import os\nHOME = os.getpid()")
    pair.leave_parked(
        "class D:\n"
        "    def __hash__(self, made=os.getpid()):\n"
        "        import os\n"
        "        if os.getpid() != made: raise OSError('not this process')\n"
        "        return 1\n"
        "d = {D()}",
        path,
    )
    pair.side.disconnect(died=False)
    (note,) = pair.attach(parked=str(path))
    assert note.names == ("d",)
    sentence = pair.side.explain("d").sentence
    assert "not this process" in sentence
    assert "Run cell [1] again" in sentence


@pytest.mark.parametrize("where", ["home", "gpu"])
def test_what_is_lost_can_be_deleted(pair, tmp_path, where):
    pair.home("kept = 1")
    _left_with_a_parked_file(pair, tmp_path / "parked")
    pair.side.disconnect(died=False)
    pair.attach()
    with pytest.raises(GPULeaseError, match="w was parked, and is lost"):
        pair.home("kept = 2\ndel w")
    (pair.home if where == "home" else pair.gpu)("del w, kept")
    pair.home("assert 'w' not in globals() and 'kept' not in globals()")
    assert pair.side.explain("w") is None
    assert {row.name for row in pair.side.status()} == {"g", "np"}


def test_what_is_on_the_gpu_is_deleted_without_coming_home(pair):
    pair.home("kept = 1")
    pair.gpu("import numpy as np\nw = np.ones(5_000_000)\ng = (i for i in range(3))")
    pair.home("del w, g, kept")
    assert [row.name for row in pair.side.status()] == ["np"]
    pair.gpu("left = [n for n in ('w', 'g', 'kept') if n in globals()]")
    pair.home("assert left == []")


def test_a_cell_that_deletes_what_never_was_deletes_nothing_of_the_gpu_s(pair):
    pair.gpu("import numpy as np\nw = np.ones(5_000_000)")
    with pytest.raises(NameError):
        pair.home("del never, w")
    pair.home("assert w.sum() == 5_000_000")


def test_a_name_deleted_at_home_does_not_come_back_with_what_shares_its_memory(new_pair):
    pair = new_pair(settings={"small_bytes": -1})
    pair.attach()
    pair.home("import numpy as np\nw = np.arange(24.)\nv = w[:5]")
    pair.gpu("w[...] = 7")
    pair.home("del w")
    pair.home("assert v.sum() == 35 and 'w' not in globals()")
    pair.gpu("assert 'w' not in globals() and v.sum() == 35")
    pair.gpu("w = 3")
    pair.home("assert w == 3")
