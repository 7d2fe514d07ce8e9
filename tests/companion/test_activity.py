"""What counts as use: the user's own work, wherever it runs, and nothing of gpulease's."""

import asyncio
import subprocess
import sys

import pytest

from gpulease import __version__
from gpulease.companion.activity import (
    BUSY_SHARE,
    ActivitySampler,
    Batches,
    WatchedCompanion,
    kind_of,
)
from gpulease.companion.kernels import Companions
from gpulease.errors import GPULeaseError
from gpulease.protocol.names import PROTOCOL_VERSION
from tests.companion.parts import Cells, closing, leased
from tests.helpers import wait_for_async

pytestmark = pytest.mark.processes

COMPUTE = """
import threading, time
go = threading.Event(); go.set()
def work():
    while True:
        if go.is_set():
            sum(range(20000))
        else:
            time.sleep(0.05)
threading.Thread(target=work, daemon=True).start()
"""


async def _seen(service, condition, what):
    """Wait for a sample, among those that come from now on, that fulfils the condition."""
    known = len(service.samples())
    found = await wait_for_async(
        lambda: [sample for sample in service.samples()[known:] if condition(sample)], 60, what
    )
    return found[0]


def _with_cells(test):
    async def run():
        async with leased() as (service, _lease, home):
            opened = (await home.open("k1"))["ok"]
            with closing(Cells(opened["connection"], home)) as cells:
                await cells.ready()
                await test(service, cells)

    asyncio.run(run())


def test_a_thread_left_by_a_finished_cell_is_use_while_it_computes_and_none_while_it_sleeps():
    async def test(service, cells):
        assert (await cells.run(COMPUTE))["status"] == "ok"

        def left(sample):  # how many threads live is told once a second
            return sample["threads"] == 1 and not sample["cells"]

        await _seen(service, lambda s: s["use"] > BUSY_SHARE and left(s), "computing")
        assert (await cells.run("go.clear()"))["status"] == "ok"
        await _seen(service, lambda s: s["use"] < 0.02 and left(s), "sleeping")

    _with_cells(test)


ON_THE_LOOP = """
import asyncio
computing = True
async def work():
    while True:
        if computing:
            sum(range(20000))
        await asyncio.sleep(0 if computing else 0.05)
task = asyncio.create_task(work())
"""


def test_a_task_left_on_the_loop_is_use_while_it_computes_and_none_while_it_sleeps():
    async def test(service, cells):
        assert (await cells.run(ON_THE_LOOP))["status"] == "ok"
        sample = await _seen(
            service, lambda s: s["use"] > BUSY_SHARE and not s["cells"] and s["tasks"], "computing"
        )
        assert (sample["threads"], sample["tasks"]) == (0, 1)
        assert (await cells.run("computing = False"))["status"] == "ok"
        await _seen(service, lambda s: s["use"] < 0.03 and not s["cells"] and s["tasks"], "asleep")
        assert (await cells.run("task.cancel()"))["status"] == "ok"
        await _seen(service, lambda s: not s["cells"] and not s["tasks"], "no task")

    _with_cells(test)


def test_a_timer_that_starts_itself_again_is_the_users_and_the_kernels_own_tasks_are_not():
    async def test(service, cells):
        code = (
            "import asyncio\n"
            "loop = asyncio.get_running_loop()\n"
            "def again():\n"
            "    global timer\n"
            "    timer = loop.call_later(0.5, again)\n"
            "again()\n"
        )
        assert (await cells.run("await asyncio.sleep(0)"))["status"] == "error"
        assert (await cells.run("import asyncio; await asyncio.sleep(0.01)"))["status"] == "ok"
        await _seen(service, lambda s: not s["cells"] and not s["tasks"], "nothing of the user's")
        assert (await cells.run(code))["status"] == "ok"
        await _seen(service, lambda s: not s["cells"] and s["tasks"], "a timer")
        assert (await cells.run("timer.cancel()"))["status"] == "ok"
        await _seen(service, lambda s: not s["cells"] and not s["tasks"], "no timer")

    _with_cells(test)


def test_a_sleeping_cell_runs_without_use():
    async def test(service, cells):
        cells.begin("import time; time.sleep(600)")
        sample = await _seen(service, lambda s: s["cells"] == 1 and s["use"] < 0.02, "a cell")
        assert (sample["threads"], sample["processes"]) == (0, 0)

    _with_cells(test)


def test_a_cell_that_holds_the_interpreter_is_seen_from_outside():
    async def test(service, cells):
        cells.begin("sum(range(10**12))")
        await _seen(
            service, lambda s: s["cells"] == 1 and s["use"] > BUSY_SHARE, "a computing cell"
        )

    _with_cells(test)


def test_a_process_the_user_left_is_use_while_it_computes():
    async def test(service, cells):
        code = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {0!r}])"
        await cells.run(code.format("while True: pass"))
        await _seen(service, lambda s: s["processes"] == 1 and s["use"] > BUSY_SHARE, "a process")
        await cells.run("p.kill(); p.wait()")
        await _seen(service, lambda s: s["processes"] == 0 and s["use"] < 0.02, "no process")

    _with_cells(test)


def test_an_open_companion_that_nobody_uses_is_not_used():
    async def test(service, cells):
        sample = await _seen(service, lambda s: not s["cells"], "a quiet sample")
        await _seen(service, lambda s: s["use"] < 0.02, "no use")
        assert (sample["threads"], sample["processes"], sample["transfers"]) == (0, 0, False)
        assert sample["tasks"] == 0

    _with_cells(test)


@pytest.fixture
def spinning():
    """A process with two computing threads besides a sleeping main thread; yields it."""
    code = (
        "import threading\n"
        "def work():\n"
        "    while True: sum(range(20000))\n"
        "ts = [threading.Thread(target=work, daemon=True) for _ in range(2)]\n"
        "for t in ts: t.start()\n"
        "print(*[t.native_id for t in ts], flush=True)\n"
        "ts[0].join()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    ids = [int(part) for part in process.stdout.readline().split()]
    yield process.pid, ids
    process.kill()
    process.wait()
    process.stdout.close()


def test_transfer_threads_move_values_and_are_no_use(spinning):
    pid, ids = spinning
    watched = WatchedCompanion(pid, transfers=frozenset(ids))
    sampler = ActivitySampler(lambda: [pid])

    async def test():
        sampler.sample([watched])
        sample = await wait_for_async(lambda: _moving(sampler, watched), 30, "moving")
        assert sample["use"] == 0.0

    asyncio.run(test())


def _moving(sampler, watched):
    sample = sampler.sample([watched])
    assert sample["use"] < 0.02
    return sample if sample["transfers"] else None


def test_the_same_threads_are_use_when_they_are_the_users(spinning):
    pid, ids = spinning
    watched = WatchedCompanion(pid, infrastructure=frozenset([pid, ids[0]]))
    sampler = ActivitySampler(lambda: [pid])

    async def test():
        sampler.sample([watched])
        await wait_for_async(lambda: sampler.sample([watched])["use"] > BUSY_SHARE, 30, "use")

    asyncio.run(test())


def test_a_cell_that_began_and_ended_between_two_samples_is_in_the_next_one_only(spinning):
    """Quick cells are use, too: somebody who runs one now and then is there."""
    pid, _ = spinning
    watched = WatchedCompanion(pid)
    sampler = ActivitySampler(lambda: [pid])
    said = []
    for words in ([], [1, 0, 1, 0], [], [1], [], [0], []):
        for cells in words:
            watched.said_cells(cells)
        sample = sampler.sample([watched])
        said.append((sample["cells"], sample["used"]))
    assert said == [(0, False), (1, True), *[(n, True) for n in (0, 1, 1, 1, 0)]]


def test_a_home_kernel_that_waits_for_its_companion_is_use(tmp_path):
    """A start may take longer than an idle lease is left: it must not end under the start."""
    go = asyncio.Event()

    class Slow(Companions):
        async def _start(self, args):
            await go.wait()
            raise GPULeaseError("companion_failed", "Slow, and then not at all.", status=500)

    async def test():
        companions = Slow(tmp_path, "a-mark")
        sampler = ActivitySampler(companions.infrastructure)
        assert sampler.sample(companions.watched)["cells"] == 0
        opening = asyncio.ensure_future(
            companions.open(
                {
                    "kernel_id": "k1",
                    "wire_key": "k",
                    "protocol": PROTOCOL_VERSION,
                    "version": __version__,
                }
            )
        )
        await wait_for_async(lambda: sampler.sample(companions.watched)["cells"], 30, "the start")
        sample = sampler.sample(companions.watched)
        assert (sample["cells"], sample["threads"], sample["use"]) == (1, 0, 0.0)
        go.set()
        with pytest.raises(GPULeaseError):
            await opening
        assert sampler.sample(companions.watched)["cells"] == 0

    asyncio.run(test())


def _sample(cells=0, use=0.0):
    return {
        "at": "", "cells": cells, "threads": 0, "processes": 0, "use": use, "transfers": False
    }  # fmt: skip


def test_a_batch_leaves_when_it_is_due_and_at_once_on_a_change():
    now = [0.0]
    batches = Batches(5.0, clock=lambda: now[0])
    assert len(batches.add(_sample())) == 1
    sizes = []
    for second in range(1, 8):
        now[0] = second
        sizes.append(len(batches.add(_sample())))
    assert sizes == [0, 0, 0, 0, 5, 0, 0]
    assert len(batches.add(_sample(use=0.5))) == 3
    assert len(batches.add(_sample(cells=1))) == 1


@pytest.mark.parametrize(
    ("sample", "kind"),
    [(_sample(), "nothing"), (_sample(cells=1), "cell"), (_sample(use=0.04), "work")],
)
def test_kinds_of_samples(sample, kind):
    assert kind_of(sample) == kind
