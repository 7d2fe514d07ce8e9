"""What a thread of home and a GPU cell wrote at the same time: never overwritten, and said."""

import threading

import pytest

from gpulease.errors import GPULeaseError
from gpulease.sides.threads import UserThreads
from gpulease.transfer.api import Place
from tests.helpers import wait_for

WORKER = (
    "import threading, queue\njobs, done = queue.Queue(), queue.Queue()\n"
    "def work():\n"
    "    while (job := jobs.get()) is not None:\n"
    "        done.put(job())\n"
    "worker = threading.Thread(target=work, name='worker', daemon=True); worker.start()\n"
)


@pytest.fixture
def pair(pair):
    """A pair whose home has a thread that runs one job at a time."""
    pair.home(WORKER)
    yield pair
    pair.ns["jobs"].put(None)
    pair.ns["worker"].join()


def meanwhile(pair, cell, job):
    """Run a GPU cell, and while it runs ``job`` (an expression) in home's thread."""
    pair.start_gpu(f"import sys\n{cell}")
    pair.ns["jobs"].put(eval(f"lambda: {job}", pair.ns))
    got = pair.ns["done"].get(timeout=60)
    pair.end_gpu()
    return got


def said(pair):
    return {name: note for note in pair.after.notes for name in note.names
            if note.reason == "conflicted"}  # fmt: skip


def place(pair, name):
    return next(s.place for s in pair.side.status() if s.name == name)


def test_what_both_wrote_is_in_conflict(pair):
    pair.home("x = [1]\ntotal = 0")
    meanwhile(pair, "x.append(2); total = sum(x)", "x.append(10)")
    assert set(said(pair)) == {"x"}
    assert place(pair, "x") is Place.CONFLICTED
    with pytest.raises(GPULeaseError, match="resolve x home or"):
        pair.home("x[0]")
    with pytest.raises(GPULeaseError, match="resolve x home or"):
        pair.gpu("x[0]")
    pair.home("assert total == 3")


def test_what_one_side_wrote_and_the_other_read_is_in_none(pair):
    pair.home("x, y = [1], [1]\nseen = []\ntotal = 0")
    meanwhile(pair, "total = sum(x); y.append(2)", "(x.append(10), seen.append(sum(y)))")
    assert not said(pair)
    pair.home("assert (x, y, seen, total) == ([1, 10], [1, 2], [1], 1)")
    pair.gpu("assert (x, y, seen, total) == ([1, 10], [1, 2], [1], 1)")


def test_what_a_gpu_cell_deleted_and_home_wrote_is_in_conflict(pair):
    pair.home("x = [1]")
    meanwhile(pair, "del x", "x.append(10)")
    assert set(said(pair)) == {"x"}
    pair.side.resolve("x", "home")
    pair.home("assert x == [1, 10]")
    pair.gpu("assert x == [1, 10]")


@pytest.mark.parametrize(("keep", "kept"), [("home", [1, 10]), ("gpu", [1, 2])])
def test_the_choice_holds_on_both_sides(pair, keep, kept):
    pair.home("x = [1]\nalso = x")
    meanwhile(pair, "x.append(2)", "x.append(10)")
    assert set(said(pair)) == {"x", "also"}, "both names of the list"
    pair.side.resolve("x", keep)
    pair.home(f"assert x == {kept} and also is x, x")
    pair.gpu(f"assert x == {kept} and also is x, x")


def test_what_neither_side_shared_is_no_conflict(pair):
    pair.home("x = [1]\ny = [1]\nseen = []")
    meanwhile(pair, "y.append(len(y))", "seen.append(len(x)) or x.append(2)")
    assert not said(pair)
    pair.home("assert (x, y, seen) == ([1, 2], [1, 1], [1])")


def test_a_thread_that_only_waits_reads_nothing(pair):
    pair.home("def hold(values=(x := [1])): return values\njobs.put(hold); done.get()")
    pair.start_gpu("x.append(2)")
    pair.end_gpu()
    assert not said(pair)
    pair.home("assert x == [1, 2]")


def test_a_global_that_the_thread_binds_anew(pair):
    pair.home("count = 0\ndef bump():\n    global count\n    count += 1\nn = 0")
    meanwhile(pair, "n = count + 1; count = 7", "bump()")
    assert set(said(pair)) == {"count"}
    pair.side.resolve("count", "home")
    pair.home("assert (count, n) == (1, 1)")


def test_a_class_changed_on_both_sides(pair):
    pair.home("class C: n = 1\nc = C()\ndef put(v): C.n = v")
    meanwhile(pair, "C.n = 2", "put(3)")
    assert "C" in said(pair)
    pair.side.resolve("C", "home")
    pair.home("assert (C.n, c.n) == (3, 3)")
    pair.gpu("assert (C.n, c.n) == (3, 3), (C.n, c.n)")


def test_a_conflict_is_home_s_when_the_companion_ends(pair):
    pair.home("x = [1]")
    meanwhile(pair, "x.append(2)", "x.append(10)")
    assert [(b.name, b.place) for b in pair.side.drain(5).blockers] == [("x", Place.CONFLICTED)]
    notes = pair.side.disconnect(died=False)
    assert any(note.reason == "conflicted" and note.names == ("x",) for note in notes)
    assert pair.ns["x"] == [1, 10]


def test_binding_the_name_anew_ends_a_conflict(pair):
    pair.home("x = [1]")
    meanwhile(pair, "x.append(2)", "x.append(10)")
    pair.home("x = [5]")
    assert place(pair, "x") is not Place.CONFLICTED
    pair.gpu("assert x == [5]")


def test_a_pool_s_worker_is_the_user_s_while_it_runs_notebook_code():
    from concurrent.futures import ThreadPoolExecutor

    ns = {"go": threading.Event(), "here": threading.Event()}
    exec("def job(): here.set(); go.wait()", ns)
    with ThreadPoolExecutor(1) as pool:
        threads = UserThreads(ns)
        future = pool.submit(ns["job"])
        assert ns["here"].wait(60)
        assert len(threads.alive()) == 1
        ns["go"].set()
        future.result(60)
        wait_for(lambda: not threads.alive())


def test_a_type_variable_that_nobody_changed_is_in_no_conflict(pair):
    pair.home(
        "from typing import Generic, TypeVar\nT = TypeVar('T')\nclass G(Generic[T]): x: T\nx = []"
    )
    for change in ("x.append(1)", "x.append(T)", "x.append(G)", "x.append(1)"):
        meanwhile(pair, change, "None")
        assert not said(pair)
        pair.home("x")
    assert pair.ns["x"] == [1, pair.ns["T"], pair.ns["G"], 1]
