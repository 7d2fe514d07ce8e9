"""How long one plan takes on a large site: 10,000 requests, 1,000 GPUs, 200 projects.

Five snapshots, each planned anew ``rounds`` times, and how the time grows with the queue.  Times
are wall clock; the processor's own stand beside them, for a busy machine lengthens only the first.
"""

from __future__ import annotations

import asyncio
import resource
import time
from math import log
from typing import Any

from benchmarks import sites
from benchmarks.measure import Aim, Variants, percentile, progress, report
from gpulease.policy.model import Snapshot
from gpulease.policy.planner import plan
from gpulease.service.app import spare_the_collector

#: Seconds that a plan may take at most.
AIM = 0.1
#: The queue is made so many times as long to see how the time grows.
LONGER = 10


async def measure(rounds: int, scale: float) -> dict[str, Any]:
    """Return the benchmark's result; ``scale`` makes the sites smaller, for a look."""
    return await asyncio.to_thread(_measure, rounds, scale)


def _measure(rounds: int, scale: float) -> dict[str, Any]:
    spare_the_collector()  # as the service does
    size = {
        "requests": max(10, int(sites.REQUESTS * scale)),
        "gpus": max(sites.EACH, int(sites.GPUS * scale)),
        "projects": max(2, int(sites.PROJECTS * scale)),
    }
    variants, processor = Variants(), dict[str, float]()
    for name, make in sites.SITES.items():
        views = sites.rebuilt(make(**size))
        spent = [_timed(variants, name, next(views)) for _ in range(rounds)]
        processor[name] = round(percentile(spent, 0.5), 4)
    worst = max(max(each) for each in variants.seconds.values())
    short = _processor_seconds(sites.empty(**size))
    long = _processor_seconds(sites.empty(**{**size, "requests": size["requests"] * LONGER}))
    n = size["requests"]
    bound = LONGER * log(n * LONGER) / log(n)
    growth = round(long / short / bound, 2)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    aims = [
        Aim("the worst of all plans (s)", round(worst, 3), AIM),
        Aim(f"{LONGER} times the queue, by n log n", growth, 1.25),
    ]
    return report(
        "planner", variants, aims, size=size, processor_median=processor, peak_mib=round(peak)
    )


def _timed(variants: Variants, name: str, view: Snapshot) -> float:
    """Make one plan and return the processor's seconds; the snapshot is taken anew within it."""
    began = time.process_time()
    with variants.timed(name):
        plan(next(sites.rebuilt(view)))
    return time.process_time() - began


def _processor_seconds(view: Snapshot) -> float:
    progress(f"  {len(view.leases)} leases and requests")
    began = time.process_time()
    plan(view)
    return time.process_time() - began
