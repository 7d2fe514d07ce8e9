"""Tasks that nobody awaits are held, logged when they fail, cancelled together; loops poll on."""

import asyncio
import gc
import logging
import weakref

import pytest

from gpulease.errors import GPULeaseError
from gpulease.system.background import BackgroundTasks, keep_polling
from tests.helpers import wait_for_async

log = logging.getLogger("gpulease.test_background")


async def test_a_task_is_held_until_it_ends() -> None:
    tasks, ended = BackgroundTasks(log, "failed"), asyncio.Event()
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
    tasks, done = BackgroundTasks(log, "the work failed"), []

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
    tasks, ended = BackgroundTasks(log, "failed"), []

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


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError("no answer"), "no answer"),
        (GPULeaseError("x", "It is full."), "It is full."),
        (ValueError("a fault of ours"), "a fault of ours"),
    ],
)
async def test_a_look_that_fails_is_logged_and_the_next_one_follows(error, said, caplog):
    looks, wanted = [], asyncio.Event()

    async def look():
        looks.append(1)
        if len(looks) == 1:
            raise error

    work = asyncio.create_task(
        keep_polling(look, wanted, every=600, log=log, failed="nobody looks", away=(OSError,))
    )
    await wait_for_async(lambda: len(looks) == 1, 20, "the first look")
    wanted.set()
    await wait_for_async(lambda: len(looks) == 2, 20, "the second look")
    work.cancel()
    assert "nobody looks" in caplog.text
    assert said in caplog.text
    assert ("Traceback" in caplog.text) == isinstance(error, ValueError), "ours is told in full"


async def test_how_long_until_the_next_look_is_asked_after_each() -> None:
    looks: list[int] = []

    async def look() -> None:
        looks.append(1)

    work = asyncio.create_task(
        keep_polling(
            look, asyncio.Event(), every=lambda: 0.01 if len(looks) < 3 else 600, log=log, failed=""
        )
    )
    await wait_for_async(lambda: len(looks) == 3, 20, "the third look")
    work.cancel()
