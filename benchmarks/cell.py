"""`cell`: what an empty cell costs in a notebook with a gigabyte of variables.

Three figures of gpulease: sticky (cell after cell beside the GPU), alternating with home cells,
and the same with one item changed in between; beside ipyparallel's `%%px` on one engine that
holds the same namespace.  Every figure is from the request to reply and idle, as a front end sees.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.kernels import OwnKernel, run
from benchmarks.measure import Aim, Variants, progress, report, summary
from benchmarks.namespace import Counts, source

STICKY_CELLS_A_ROUND = 3

PEER_START = """
import ipyparallel as ipp
_cluster = ipp.Cluster(n=1)
_client = _cluster.start_and_connect_sync()
_client[:].activate()
"""


async def measure(*, rounds: int, scale: float) -> dict[str, Any]:
    """Run the benchmark and return its report."""
    counts = Counts.scaled(scale)
    variants = Variants()
    moved: dict[str, list[float]] = {}
    async with OwnKernel.start() as ours, peer(counts) as theirs:
        progress("cell: a notebook beside a companion on this machine")
        await run(ours, "%load_ext gpulease\n%gpu connect local")
        await run(ours, source(counts))
        first = await run(ours, "%%gpu\npass")
        for number in range(rounds):
            await _round(ours, theirs, variants, moved, number)
    sticky = variants.summaries()["sticky pass"]["median"]
    return report(
        "cell",
        variants,
        [
            Aim("sticky pass, milliseconds", round(sticky * 1000, 2), 15.0),
            Aim(
                "sticky pass beside ipyparallel, times as fast",
                variants.times_faster("sticky pass", "ipyparallel %%px pass"),
                1.0,
                at_most=False,
            ),
        ],
        namespace=counts.as_dict(),
        first_gpu_cell=round(first.seconds, 3),
        moved_bytes={name: summary(values) for name, values in moved.items()},
    )


@asynccontextmanager
async def peer(counts: Counts) -> AsyncIterator[OwnKernel]:
    """Start a plain kernel with an ipyparallel engine that holds the namespace."""
    async with OwnKernel.start() as kernel:
        progress("cell: an ipyparallel engine with the same namespace")
        await run(kernel, PEER_START)
        try:
            await run(kernel, "%%px\n" + source(counts))
            yield kernel
        finally:
            await run(kernel, "_cluster.stop_cluster_sync()")


async def _round(
    ours: OwnKernel,
    theirs: OwnKernel,
    variants: Variants,
    moved: dict[str, list[float]],
    number: int,
) -> None:
    await run(ours, "%gpu on")
    await run(ours, "pass")
    for _ in range(STICKY_CELLS_A_ROUND):
        variants.add("sticky pass", (await run(ours, "pass")).seconds)
        variants.add("ipyparallel %%px pass", (await run(theirs, "%%px\npass")).seconds)
    await run(ours, "%gpu off")
    variants.add("alternating: home cell", (await run(ours, "pass")).seconds)
    variants.add("alternating: gpu cell", (await run(ours, "%%gpu\npass")).seconds)
    moved.setdefault("alternating: gpu cell", []).append(await _moved(ours))
    await run(ours, f"records[{number}]['score'] = -{number}.5")
    variants.add("one item changed: gpu cell", (await run(ours, "%%gpu\npass")).seconds)
    moved.setdefault("one item changed: gpu cell", []).append(await _moved(ours))


async def _moved(kernel: OwnKernel) -> float:
    """Return the bytes that the switches of the last GPU cell moved."""
    cell = await run(kernel, "%gpu config --json")
    return float(json.loads(cell.text).get("moved_bytes", 0))
