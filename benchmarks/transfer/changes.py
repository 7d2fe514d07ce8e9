"""What a small change in a large value costs, and how soon a cell starts while much is copied back.

These are the rows that do not copy a whole GiB.  Reading 100,000 dicts of which one changed is a
row of `cell`.
"""

from __future__ import annotations

import asyncio
import statistics

from benchmarks.kernels import OwnKernel, run
from benchmarks.measure import Aim, Variants

MIB = 2**20
HELD, NOTHING = "reads what the companion holds", "reads nothing"
INSTANCES = "100,000 instances, one changed"
QUIET, ARRAY, GRAPH = "first line: quiet", "first line: 1 GiB drains", "first line: graph drains"
_POINTS = """
class Point:
    def __init__(self, x): self.x = x
points = [Point(n) for n in range({count})]
"""
#: A graph of so many objects: what is pickled, and no buffer that is only copied.
_GRAPH = "graph = {{n: [n, str(n + {n})] for n in range({count})}}"


async def measure(
    kernel: OwnKernel, variants: Variants, *, rounds: int, size: int, scale: float
) -> list[Aim]:
    """Add the rows to ``variants`` and return their aims."""
    await _reads(kernel, variants, rounds, size)
    sent = await _one_of_many(kernel, size)
    await _instances(kernel, variants, rounds, scale)
    await _first_lines(kernel, variants, rounds, scale)
    medians = {name: statistics.median(each) for name, each in variants.seconds.items()}
    return [
        Aim("a cell that reads what the companion holds, extra milliseconds",
            round((medians[HELD] - medians[NOTHING]) * 1000, 1), 80.0),
        Aim("1 MB changed in a dict of arrays, MiB sent", round(sent / MIB, 2), 8.0),
        Aim("100,000 instances of which one changed, seconds", round(medians[INSTANCES], 3), 0.8),
        *(
            Aim(f"{name}, delay in milliseconds",
                round((medians[name] - medians[QUIET]) * 1000, 1), 100.0)
            for name in (ARRAY, GRAPH)
        ),
    ]  # fmt: skip


async def _reads(kernel: OwnKernel, variants: Variants, rounds: int, size: int) -> None:
    await run(kernel, f"value = np.ones({size // 8})")
    await run(kernel, "%%gpu\nvalue is None")
    for _ in range(rounds):
        variants.add(NOTHING, (await run(kernel, "%%gpu\npass")).seconds)
        variants.add(HELD, (await run(kernel, "%%gpu\nvalue[0]")).seconds)
    await run(kernel, "del value")


async def _one_of_many(kernel: OwnKernel, size: int) -> float:
    """Return the bytes that travel when one of the arrays in a dict changed."""
    await kernel.listen()
    await run(kernel, f"arrays = {{n: np.full({MIB // 8}, 1.0 * n) for n in range({size // MIB})}}")
    await run(kernel, "%%gpu\nlen(arrays)")
    await run(kernel, "arrays[7][:] = -1.0")
    moved = (await kernel.told_of("%%gpu\nlen(arrays)"))["moved_bytes"]
    await run(kernel, "del arrays")
    return float(moved)


async def _instances(kernel: OwnKernel, variants: Variants, rounds: int, scale: float) -> None:
    count = max(100, round(100_000 * scale))
    await run(kernel, _POINTS.format(count=count))
    await run(kernel, "%%gpu\nlen(points)")
    for number in range(rounds):
        await run(kernel, f"points[{number}].x = -1")
        variants.add(INSTANCES, (await run(kernel, "%%gpu\nlen(points)")).seconds)
    await run(kernel, "del points")


async def _first_lines(kernel: OwnKernel, variants: Variants, rounds: int, scale: float) -> None:
    count = max(100, round(500_000 * scale))  # each of them a list with a string
    for number in range(rounds):
        await run(kernel, "%%gpu\npass")
        variants.add(QUIET, (await run(kernel, "%%gpu\nprint(1)")).first)
        for name, cell in (
            (ARRAY, f"large = np.full(_size // 8, {number}.0)"),
            (GRAPH, _GRAPH.format(count=count, n=number)),
        ):
            await run(kernel, f"%%gpu\n{cell}")
            await asyncio.sleep(0.1)  # so that it is on its way
            variants.add(name, (await run(kernel, "%%gpu\nprint(1)")).first)
            await run(kernel, f"%%gpu\ndel {cell.split()[0]}")
