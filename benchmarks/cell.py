"""`cell`: what an empty cell costs in a notebook with a gigabyte of variables.

Three figures of gpulease: sticky (cell after cell on the GPU), alternating with home cells,
and the same with one item changed in between; beside ipyparallel's `%%px` on one engine that
holds the same namespace.  Every figure is from the request to reply and idle, as a front end sees.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.kernels import OwnKernel, run
from benchmarks.measure import Aim, Variants, progress, report
from benchmarks.namespace import Counts, source

STICKY_CELLS_A_ROUND = 3
STICKY, PEER = "sticky pass", "ipyparallel %%px pass"
ALTERNATING, CHANGED = "alternating", "one item changed"
#: The item is one of 100,000 in a list: a GPU cell that does not name the list need not have it.
READ, READER = "one item changed and read", "%%gpu\nlen(records)"

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
    async with OwnKernel.start() as ours, peer(counts) as theirs:
        progress("cell: a notebook beside a companion on this machine")
        await run(ours, "%load_ext gpulease")
        await run(ours, "%gpu connect local")
        await run(ours, source(counts))
        first = await run(ours, "%%gpu\npass")
        for _ in range(rounds):
            await _round(ours, theirs, variants)
        moved = await _moved_bytes(ours)
    sticky = round(variants.summaries()[STICKY]["median"] * 1000, 2)
    aims = [
        Aim("sticky pass, median milliseconds", sticky, 15.0),
        Aim(
            "sticky pass, times as fast as ipyparallel",
            variants.times_faster(STICKY, PEER),
            1.0,
            at_most=False,
        ),
    ]
    return report(
        "cell",
        variants,
        aims,
        namespace=counts.as_dict(),
        first_gpu_cell=round(first.seconds, 3),
        moved_bytes=moved,
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


async def _round(ours: OwnKernel, theirs: OwnKernel, variants: Variants) -> None:
    await run(ours, "%gpu on")
    await run(ours, "pass")
    for _ in range(STICKY_CELLS_A_ROUND):
        variants.add(STICKY, (await run(ours, "pass")).seconds)
        variants.add(PEER, (await run(theirs, "%%px\npass")).seconds)
    await run(ours, "%gpu off")
    variants.add(f"{ALTERNATING}: home cell", (await run(ours, "pass")).seconds)
    variants.add(f"{ALTERNATING}: gpu cell", (await run(ours, "%%gpu\npass")).seconds)
    await run(ours, _change())
    variants.add(f"{CHANGED}: gpu cell", (await run(ours, "%%gpu\npass")).seconds)
    await run(ours, _change())
    variants.add(f"{READ}: gpu cell", (await run(ours, READER)).seconds)


_values = itertools.count(1)


def _change() -> str:
    """Return a cell that gives one item a value it never had."""
    return f"records[{next(_values) % 100}]['score'] = -{next(_values)}.5"


async def _moved_bytes(kernel: OwnKernel) -> dict[str, float]:
    """Return what the switches of one more GPU cell of each kind move.

    Apart from the timed rounds, for a front end that listens has its own cost.
    """
    await kernel.listen()
    moved = {}
    plain = "%%gpu\npass"
    cells = ((ALTERNATING, "pass", plain), (CHANGED, _change(), plain), (READ, _change(), READER))
    for name, between, cell in cells:
        await run(kernel, between)
        moved[name] = (await kernel.told_of(cell))["moved_bytes"]
    return moved
