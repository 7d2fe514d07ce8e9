"""The loop that looks again and again keeps running whatever a look does."""

import asyncio
import logging

import pytest

from gpulease.background import keep_looking
from gpulease.errors import GPULeaseError
from tests.helpers import wait_for_async

LOG = logging.getLogger("tests.looking")


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
        keep_looking(look, wanted, every=600, log=LOG, failed="nobody looks", away=(OSError,))
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
        keep_looking(
            look, asyncio.Event(), every=lambda: 0.01 if len(looks) < 3 else 600, log=LOG, failed=""
        )
    )
    await wait_for_async(lambda: len(looks) == 3, 20, "the third look")
    work.cancel()
