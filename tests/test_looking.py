"""The loop that looks again and again goes on whatever a look does."""

import asyncio
import logging

import pytest

from gpulease.errors import GPULeaseError
from gpulease.service.hubapi import HubUnreachableError
from gpulease.service.looking import keep_looking
from tests.helpers import wait_for_async

LOG = logging.getLogger("tests.looking")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (HubUnreachableError("no answer"), "no answer"),
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
        keep_looking(look, wanted, every=600, log=LOG, failed="nobody looks")
    )
    await wait_for_async(lambda: len(looks) == 1, 20, "the first look")
    wanted.set()
    await wait_for_async(lambda: len(looks) == 2, 20, "the second look")
    work.cancel()
    assert "nobody looks" in caplog.text
    assert said in caplog.text
