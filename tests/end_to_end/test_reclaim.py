"""What counts as use, in a real lease: computing does, whoever computes; waiting does not."""

import asyncio
import time

import pytest

from tests.browser.demo import RunningDemo
from tests.end_to_end.people import LONG, Person, at_work
from tests.helpers import wait_for_async

pytestmark = [pytest.mark.site, pytest.mark.timeout(600)]

IDLE, QUIET = 4.0, 8.0

THREAD = """%%gpu
import threading
go, stop = threading.Event(), threading.Event()
go.set()
def work():
    while not stop.is_set():
        sum(range(10000)) if go.is_set() else stop.wait(1)
threading.Thread(target=work, daemon=True).start()
result = 'thread started'
"""


@pytest.fixture(scope="module")
def hasty(shared_demo: RunningDemo) -> RunningDemo:
    """A demo whose time-outs are seconds."""
    shared_demo.prepare(idle=IDLE, quiet=QUIET, warning=2, warm_up=1)
    return shared_demo


def seen(student: Person) -> list[str]:
    return [state for _, state in student.watch.history]


def test_a_thread_left_by_a_cell_keeps_the_lease_while_it_computes_and_not_while_it_sleeps(
    hasty: RunningDemo,
):
    async def test():
        async with at_work(hasty, "student") as student:
            await student.run(THREAD)
            await student.watch.wait_for("active", seconds=LONG)
            enough = time.monotonic() + 3 * IDLE + 12  # the peak counts for 10 s
            await wait_for_async(
                lambda: "warned" in seen(student) or time.monotonic() > enough,
                LONG,
                "several idle time-outs pass",
            )
            assert "warned" not in seen(student)
            assert student.watch.lease["verdict"] == "busy"
            assert student.watch.lease["utilisation"] > 0, "little where the machine is busy"
            await student.run("%%gpu\ngo.clear()")
            await student.watch.wait_for("warned", seconds=LONG)

    asyncio.run(test())


def test_a_cell_that_sleeps_is_taken_by_the_quiet_time_out_and_its_values_are_home(
    hasty: RunningDemo,
):
    async def test():
        async with at_work(hasty, "student") as student:
            await student.run("found = ['home']")
            cell = asyncio.ensure_future(
                student.kernel.execute(
                    "%%gpu\nimport time\nfound.append('away')\ntime.sleep(600)", seconds=LONG
                )
            )
            await student.watch.wait_for("warned", seconds=LONG)
            assert not cell.done()
            lease = await student.watch.wait_for("ended", seconds=LONG)
            assert lease["end"]["reason"] == "idle"
            assert (await cell).status == "error"
            assert "['home', 'away']" in (await student.run("print(found)")).text

    asyncio.run(test())


def test_bringing_200_mb_home_with_no_cell_does_not_postpone_it(hasty: RunningDemo):
    async def test():
        async with at_work(hasty, "student") as student:
            await student.run("import numpy as np")
            await student.run(
                "%%gpu\nblocks = [np.random.default_rng(n).random(2_500_000) for n in range(10)]"
            )
            await student.watch.wait_for("active", seconds=LONG)
            lease = await student.watch.wait_for("ended", seconds=IDLE + 60)
            assert lease["end"]["reason"] == "idle"
            home = await student.run("print(len(blocks), sum(b.nbytes for b in blocks))")
            assert "10 200000000" in home.text

    asyncio.run(test())
