"""How long an answer takes when a class begins: 100 people ask twice a second, 1,000 pages watch.

The service runs in a process of its own on loopback; the people, their pages and their hub are this
process, and what they take of the machine counts. One round is one second of it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.measure import Aim, Variants, percentile, progress, report
from tests.service.crowd import crowd, settled

PEOPLE, CHANNELS, ASKS_A_SECOND = 100, 1000, 2
ANSWER = 0.25


async def measure(rounds: int, scale: float) -> dict[str, Any]:
    """Return the seconds of each answer to an ask."""
    channels = int(CHANNELS * scale)
    variants = Variants()
    with tempfile.TemporaryDirectory() as made:
        async with crowd(Path(made), PEOPLE) as people:
            await people.ask(1)  # what a first ask loads is loaded
            people.seconds.clear()
            idle = people.memory
            await people.watch(channels)
            progress(f"  {channels} pages are open")
            before = people.worked
            await people.ask(rounds * ASKS_A_SECOND, 1 / ASKS_A_SECOND)
            worked, most = people.worked - before, people.memory
            await people.end()
            await settled(people)
    variants.seconds["answer to an ask"] = people.seconds
    late = percentile(people.seconds, 0.95)
    aims = [Aim("p95 of an answer, seconds", round(late, 3), ANSWER)]
    megabytes = {"idle": round(idle / 1e6, 1), "most": round(most / 1e6, 1)}
    an_ask = round(1000 * worked / len(people.seconds), 2)
    return report(
        "service", variants, aims, channels=channels,
        processor_milliseconds_an_ask=an_ask, resident_megabytes=megabytes,
    )  # fmt: skip
