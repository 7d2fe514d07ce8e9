"""`kill -9` of everything that may die, one at a time at random moments, while students work.

A few rounds each time, 50 nightly; GPULEASE_FAULT_ROUNDS and GPULEASE_FAULT_SEED (a new one each
time) choose another run.
"""

import asyncio
import contextlib
import os
import random
import time
from collections.abc import Callable, Sequence

import pytest

from testcluster.faults import killing
from testcluster.faults.killing import COMPANION, Fault
from testcluster.faults.picture import look
from testcluster.faults.rest import Watchman, settle
from testcluster.faults.work import Outcome, work
from testcluster.site.people import Student, at_work
from testcluster.site.site import Site

ROUNDS = int(os.environ.get("GPULEASE_FAULT_ROUNDS", "3"))
NIGHTLY_ROUNDS = int(os.environ.get("GPULEASE_FAULT_ROUNDS", "50"))
SEED = int(os.environ.get("GPULEASE_FAULT_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
STUDENTS = ("dora", "emil", "fern")

pytestmark = pytest.mark.cluster


def _seconds(rounds: int) -> int:
    return 120 + 240 * rounds


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(ROUNDS, marks=pytest.mark.timeout(_seconds(ROUNDS)), id="few"),
        pytest.param(
            NIGHTLY_ROUNDS,
            marks=[pytest.mark.nightly, pytest.mark.timeout(_seconds(NIGHTLY_ROUNDS))],
            id="many",
        ),
    ],
)
async def test_nothing_is_lost_whatever_dies(
    site: Site, say: Callable[[str], None], rounds: int
) -> None:
    say(f"seed {SEED}, {rounds} rounds")
    watchman = Watchman(lambda: look(site))
    watching = asyncio.ensure_future(watchman.watch())
    wrong: list[str] = []
    try:
        async with contextlib.AsyncExitStack() as stack:
            students = [await stack.enter_async_context(at_work(site, n)) for n in STUDENTS]
            for number, fault in enumerate(killing.plan(SEED, rounds), 1):
                found = await _round(site, students, number, fault, say)
                found += watchman.take()
                for each in found:
                    say(f"WRONG: {each}")
                wrong += found
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    assert watchman.looks > 0
    assert watchman.looks_in_the_books > 0
    say(
        f"{watchman.looks} looks, {watchman.looks_in_the_books} with devices in the kubelet's books"
    )
    assert wrong == [], f"seed {SEED}"


async def _round(
    site: Site,
    students: Sequence[Student],
    number: int,
    fault: Fault,
    say: Callable[[str], None],
) -> list[str]:
    began = time.monotonic()
    may_lose = fault.target == COMPANION
    working = [
        asyncio.ensure_future(work(each, number * 10, may_lose=may_lose)) for each in students
    ]
    hit = await killing.strike(site, fault)
    outcomes: list[Outcome] = await asyncio.gather(*working)
    seconds, left = await settle(site)
    say(f"round {number}: {fault} (hit: {hit})")
    for outcome in outcomes:
        say(f"    {outcome}")
    say(f"    at rest {seconds:.1f} s later, {time.monotonic() - began:.1f} s in all")
    wrong = [
        f"round {number}, {fault}: {each.student}: {w}" for each in outcomes for w in each.wrong
    ]
    wrong += [f"round {number}, {fault}: not at rest after {seconds:.0f} s: {w}" for w in left]
    return wrong
