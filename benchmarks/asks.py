"""From an ask to its decision while 5,000 leases stand, and how many are admitted a second.

The service runs in a process of its own, on SQLite and then on PostgreSQL, both of which wait for
the disk; the people and their hub are this process, and what they take of the machine counts.
Nobody's server runs, so that a lease that was granted waits for one and reports nothing.

And how long 100 people wait for an answer who ask twice a second, while a single caller does all
that ``beside`` knows.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

from benchmarks.beside import LOADS, load
from benchmarks.measure import Aim, Variants, percentile, progress, report
from tests.helpers import wait_for_async
from tests.service.crowd import Crowd, Person, crowd
from tests.store.postgresql import postgresql

LEASES = 5_000
#: Asks a second once they stand, each by somebody who has nothing.
PACE = 20
#: People who ask in turn; each gives back what they were granted, and has time for it.
ASKERS = 200
#: Asks under way at once while the leases come to be.
AT_ONCE = 256
DECIDED_SECONDS = 0.25
ADMITTED_A_SECOND = {"sqlite": 300.0, "postgresql": 500.0}
PATIENCE = 600.0
#: People who ask beside such a caller, and the seconds after which 95 of 100 have their answer.
PEOPLE, ANSWERED_SECONDS = 100, 0.25


async def measure(rounds: int, scale: float) -> dict[str, Any]:
    """Return the seconds of each decision on either database; a round is a second of asks."""
    leases, variants = max(1, round(LEASES * scale)), Variants()
    aims, found = [], {}
    for kind, most in ADMITTED_A_SECOND.items():
        decided = f"ask to decision, {kind}"
        progress(f"  {kind}")
        async with _everybody(kind, leases) as everybody:
            empty = everybody.memory
            admitted = await _admitted_a_second(everybody, leases)
            full, worked = everybody.memory, everybody.worked
            variants.seconds[decided] = await _decisions(everybody, rounds)
            worked = everybody.worked - worked
        found[kind] = {
            "admitted_a_second": round(admitted, 1),
            "processor_milliseconds_an_ask": round(1000 * worked / (rounds * PACE), 1),
            "resident_megabytes": {"empty": round(empty / 1e6), "full": round(full / 1e6)},
        }
        late = percentile(variants.seconds[decided], 0.99)
        aims += [
            Aim(f"p99 of {decided}, s", round(late, 3), DECIDED_SECONDS),
            Aim(f"admitted a second, {kind}", round(admitted, 1), most, at_most=False),
        ]
    for name in LOADS:
        progress(f"  beside {name}")
        beside = f"answer beside {name}"
        variants.seconds[beside] = await _answers_beside(name, max(1, rounds // len(LOADS)), scale)
        late = percentile(variants.seconds[beside], 0.95)
        aims.append(Aim(f"p95 of {beside}, s", round(late, 3), ANSWERED_SECONDS))
    return report("asks", variants, aims, leases=leases, asks_a_second=PACE, **found)


async def _answers_beside(name: str, rounds: int, scale: float) -> list[float]:
    """Return the seconds of each answer; a round is a second of asks."""
    with tempfile.TemporaryDirectory() as made:
        async with crowd(Path(made), max(1, round(PEOPLE * scale))) as people:
            await people.ask(1)  # what a first ask loads is loaded
            people.seconds.clear()
            async with load(people, name):
                await people.ask(2 * rounds, 0.5)
            await people.end()
            return people.seconds


@asynccontextmanager
async def _everybody(kind: str, leases: int) -> AsyncIterator[Crowd]:
    """Run the service with a device for each; the last person sees what happens to all."""
    database = postgresql(fsync=True) if kind == "postgresql" else nullcontext()
    with tempfile.TemporaryDirectory() as made, database as server:
        options: dict[str, Any] = {"gpus": leases + ASKERS, "start_max": "1d"}
        if server is not None:
            options["database_url"] = server.database()
        async with crowd(Path(made), leases + ASKERS, **options) as everybody:
            yield everybody


async def _admitted_a_second(everybody: Crowd, leases: int) -> float:
    """Have all but the askers ask as fast as they are answered, until each is granted."""
    admin = everybody.admin
    await everybody.watch(1, admin)
    line = iter(everybody.people[ASKERS:])

    async def ask_one_after_another() -> None:
        for person in line:
            await everybody.asks(person)

    began = time.perf_counter()
    await asyncio.gather(*(ask_one_after_another() for _ in range(AT_ONCE)))
    await wait_for_async(lambda: _granted(admin) >= leases, PATIENCE, "each is granted")
    return leases / (
        max(at for (_, state), at in admin.seen.items() if state == "starting") - began
    )


def _granted(person: Person) -> int:
    return sum(state == "starting" for _, state in person.seen)


async def _decisions(everybody: Crowd, rounds: int) -> list[float]:
    """Return the seconds from each ask, before it is sent, to the page that says: granted."""
    askers = everybody.people[:ASKERS]
    for person in askers:
        await everybody.watch(1, person)
    found: list[float] = []

    async def ask_and_give_back(number: int) -> None:
        person = askers[number % ASKERS]
        await asyncio.sleep(max(0.0, began + number / PACE - time.perf_counter()))
        asked = time.perf_counter()
        lease = await everybody.asks(person)
        granted = (lease, "starting")
        await wait_for_async(lambda: granted in person.seen, PATIENCE, "it is granted")
        found.append(person.seen[granted] - asked)
        await everybody.gives_back(person)

    began = time.perf_counter()
    await asyncio.gather(*(ask_and_give_back(number) for number in range(rounds * PACE)))
    return found
