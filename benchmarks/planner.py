"""How long one plan takes on a large site: 1,000 GPUs and 200 projects, 1,000 and 10,000 requests.

Five snapshots of each length of the queue, each planned ``rounds`` times.  Times are wall
clock; the processor's own stand beside them, for a busy machine lengthens only the first.
"""

from __future__ import annotations

import asyncio
import resource
import time
from typing import Any

from benchmarks import sites
from benchmarks.measure import Aim, Variants, percentile, report
from gpulease.policy.model import Snapshot
from gpulease.policy.planner import plan
from gpulease.service.app import spare_the_collector

#: Requests that wait, and seconds of the processor that a plan of them may take.
AIMS = {1_000: 0.1, 10_000: 2.0}


async def measure(rounds: int, scale: float) -> dict[str, Any]:
    """Return the benchmark's result; ``scale`` makes the sites smaller, for a look."""
    return await asyncio.to_thread(_measure, rounds, scale)


def _measure(rounds: int, scale: float) -> dict[str, Any]:
    spare_the_collector()  # as the service does
    size = {
        "gpus": max(sites.EACH, int(sites.GPUS * scale)),
        "projects": max(2, int(sites.PROJECTS * scale)),
    }
    variants, processor, aims = Variants(), dict[str, float](), list[Aim]()
    for waiting, aim in AIMS.items():
        requests, worst = max(10, int(waiting * scale)), 0.0
        for name, make in sites.SITES.items():
            views, variant = sites.rebuilt(make(requests=requests, **size)), f"{name}: {requests}"
            spent = [_timed(variants, variant, next(views)) for _ in range(rounds)]
            processor[variant] = round(percentile(spent, 0.5), 4)
            worst = max(worst, processor[variant])
        aims.append(Aim(f"processor (s) of a plan with {requests} who wait", worst, aim))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return report(
        "planner", variants, aims, size=size, processor_median=processor, peak_mib=round(peak)
    )


def _timed(variants: Variants, name: str, view: Snapshot) -> float:
    """Make one plan and return the processor's seconds; the snapshot is taken again within it."""
    began = time.process_time()
    with variants.timed(name):
        plan(next(sites.rebuilt(view)))
    return time.process_time() - began
