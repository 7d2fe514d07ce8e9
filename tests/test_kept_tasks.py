"""Tasks that nobody awaits: held, logged when they fail, cancelled together."""

import asyncio
import gc
import logging
import weakref

from gpulease.background import KeptTasks
from tests.helpers import wait_for_async

log = logging.getLogger("gpulease.test_kept_tasks")


async def test_a_task_is_held_until_it_ends() -> None:
    tasks, ended = KeptTasks(log, "failed"), asyncio.Event()
    done = []

    async def work() -> None:
        await ended.wait()
        done.append(True)

    alive = weakref.ref(running := work())
    tasks.keep(running)
    del running
    await asyncio.sleep(0)
    gc.collect()
    assert alive() is not None
    ended.set()
    await wait_for_async(lambda: done, 30)


async def test_a_failure_is_logged_with_its_cause_and_ends_nothing_else(caplog) -> None:
    tasks, done = KeptTasks(log, "the work failed"), []

    async def fails() -> None:
        raise ValueError("odd")

    async def works() -> None:
        done.append(True)

    tasks.keep(fails())
    tasks.keep(works())
    await wait_for_async(lambda: done and caplog.records, 30)
    (record,) = caplog.records
    assert (record.name, record.getMessage()) == (log.name, "the work failed")
    assert record.exc_info is not None
    assert "odd" in str(record.exc_info[1])


async def test_cancelled_tasks_end_without_a_word(caplog) -> None:
    tasks, ended = KeptTasks(log, "failed"), []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    for _ in range(3):
        tasks.keep(work())
    await asyncio.sleep(0)
    tasks.cancel()
    await wait_for_async(lambda: len(ended) == 3, 30)
    assert not caplog.records
