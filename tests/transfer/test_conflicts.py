"""What a thread of home and a GPU cell used at the same time: found, never overwritten, said."""

import queue
import threading
import time

import pytest

from gpulease.errors import GPULeaseError
from gpulease.sides.threads import UserThreads
from gpulease.transfer.switch.concurrent import ConcurrentThreads
from gpulease.transfer_next.api import Place
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


def test_home_wrote_what_the_gpu_cell_only_read(pair):
    pair.home("x = [1]\ntotal = 0")
    meanwhile(pair, "total = sum(x)", "x.append(10)")
    assert set(said(pair)) == {"x"}
    assert "while a GPU cell used" in said(pair)["x"].sentence
    assert place(pair, "x") is Place.CONFLICTED
    with pytest.raises(GPULeaseError, match="resolve x home or"):
        pair.home("x[0]")
    with pytest.raises(GPULeaseError, match="resolve x home or"):
        pair.gpu("x[0]")
    pair.home("assert total == 1")


@pytest.mark.parametrize(("keep", "kept"), [("home", [1, 10]), ("gpu", [1])])
def test_the_choice_holds_on_both_sides(pair, keep, kept):
    pair.home("x = [1]\nalso = x")
    meanwhile(pair, "total = sum(x)", "x.append(10)")
    assert set(said(pair)) == {"x", "also"}, "both names of the list"
    pair.side.resolve("x", keep)
    pair.home(f"assert x == {kept} and also is x, x")
    pair.gpu(f"assert x == {kept} and also is x, x")


def test_home_read_what_the_gpu_cell_wrote(pair):
    pair.home("x = [1]\nseen = []")
    meanwhile(pair, "x.append(2)", "seen.append(sum(x))")
    assert set(said(pair)) == {"x"}
    assert "while worker in your notebook used" in said(pair)["x"].sentence
    with pytest.raises(GPULeaseError, match="resolve x home or"):
        pair.home("x[0]")
    pair.home("assert seen == [1]")
    pair.side.resolve("x", "gpu")
    pair.home("assert x == [1, 2]")


def test_home_read_through_what_it_was_given(pair):
    pair.home(
        "x = [1]\nclass Box: pass\nbox = Box(); box.inner = {'deep': x}\ndef look(b=box): return 1"
    )
    meanwhile(pair, "x.append(2)", "look()")
    assert "x" in said(pair)


def test_a_function_tells_what_a_gpu_cell_reads(pair):
    pair.home("x = [1]\ndef helper(): return sum(x)\ndef total(): return helper()\nn = 0")
    meanwhile(pair, "n = total()", "x.append(10)")
    assert set(said(pair)) == {"x"}


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
    meanwhile(pair, "n = count + 1", "bump()")
    assert set(said(pair)) == {"count"}
    pair.side.resolve("count", "home")
    pair.home("assert (count, n) == (1, 1)")


def test_an_unbounded_cell_may_have_read_everything(pair):
    pair.home("x = [1]")
    meanwhile(pair, "n = eval('su' + 'm(x)')", "x.append(10)")
    assert "x" in said(pair)


def test_what_waits_for_its_way_home_is_compared_too(new_pair):
    pair = new_pair(settings={"small_bytes": -1, "eager_bytes": -1})
    pair.attach()
    pair.home(WORKER + "x = [1]")
    pair.gpu("x")
    meanwhile(pair, "x.append(2)", "x.append(10)")
    assert set(said(pair)) == {"x"}
    pair.side.resolve("x", "home")
    pair.home("assert x == [1, 10], x\njobs.put(None); worker.join()")


def test_a_late_reply_finds_the_conflict_as_well(new_pair):
    pair = new_pair(settings={"reply_wait": 0.0})
    pair.attach()
    pair.home(WORKER + "x, y = [1], [1]")
    pair.gpu("x, y")
    pair.home("x, y")  # they were in doubt
    meanwhile(pair, "x.append(2)", "(x.append(10), len(y))")
    assert pair.side.explain("x") is not None, "taken away at once"
    pair.side.rest()
    with pytest.raises(GPULeaseError, match="resolve x home or"):
        pair.home("x[0]")
    pair.home("jobs.put(None); worker.join()")


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
    assert [b.place for b in pair.side.drain(5).blockers] == [Place.CONFLICTED]
    notes = pair.side.disconnect(died=False)
    assert any(note.reason == "conflicted" and note.names == ("x",) for note in notes)
    assert pair.ns["x"] == [1, 10]


def test_binding_the_name_anew_ends_a_conflict(pair):
    pair.home("x = [1]")
    meanwhile(pair, "sum(x)", "x.append(10)")
    pair.home("x = [5]")
    assert place(pair, "x") is not Place.CONFLICTED
    pair.gpu("assert x == [5]")


def test_a_working_thread_is_told_from_a_waiting_one():
    ns = {"stop": threading.Event()}
    user, watch = UserThreads(ns), ConcurrentThreads(ns)
    ticks = queue.Queue()
    exec("def wait(): stop.wait()\ndef work():\n    while not stop.wait(0.01): ticks.put(1)", ns)
    ns["ticks"] = ticks
    threads = [threading.Thread(target=ns[name], name=name) for name in ("wait", "work")]
    for thread in threads:
        thread.start()
    try:
        # Both are past their start once they wait.
        wait_for(lambda: not ticks.empty())
        wait_for(lambda: settled(threads[0]))
        watch.begin(user.running())
        while not ticks.empty():
            ticks.get()
        ticks.get(timeout=60)
        ran = watch.end(user.running())
    finally:
        ns["stop"].set()
        for thread in threads:
            thread.join()
    assert [reader.thread for reader in ran] == ["work"]
    assert {"stop", "ticks"} <= ran[0].names


def settled(thread):
    """Say whether a thread has come to rest."""
    clock = (~thread.native_id << 3) | 6
    before = time.clock_gettime_ns(clock)
    threading.Event().wait(0.05)
    return time.clock_gettime_ns(clock) == before


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
