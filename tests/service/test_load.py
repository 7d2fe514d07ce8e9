"""A class that begins, and every page that watches it: nothing is lost, and nothing is kept."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.helpers import wait_for_async
from tests.service.crowd import crowd, settled

pytestmark = pytest.mark.processes

#: Bytes that a page costs while it is open, and by which the service may differ when all is over.
PAGE, AFTERWARDS = 200_000, 48 * 2**20


async def begin(folder: Path, people: int, channels: int, asks: int, pace: float) -> float:
    """Let a class begin and end; return how many asks were answered in a second."""
    async with crowd(folder, people) as made:
        await made.ask(4)  # what a first ask loads stays
        await made.end()
        before = made.memory
        await made.watch(channels)
        began = time.monotonic()
        await made.ask(asks, pace)
        speed = people * asks / (time.monotonic() - began)
        most = made.memory
        await made.end()
        await settled(made)
        for person in made.people:
            assert await made.listed(person) == len(person.new)
        await made.leave()
        assert most - before < AFTERWARDS + channels * PAGE
        await wait_for_async(
            lambda: made.memory - before < AFTERWARDS, 60, f"{before} bytes of memory again"
        )
        return speed


async def test_a_class_that_begins_loses_nothing(tmp_path: Path) -> None:
    await begin(tmp_path, people=20, channels=200, asks=8, pace=0.0)


@pytest.mark.nightly
@pytest.mark.timeout(900)
async def test_a_thousand_pages_and_two_hundred_asks_a_second_for_a_minute(tmp_path: Path) -> None:
    await begin(tmp_path, people=100, channels=1000, asks=120, pace=0.5)
