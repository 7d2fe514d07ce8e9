"""An array there and back by ipyparallel and by dask, in turn with gpulease.

Each rival has a kernel of its own as home, and one engine or worker.  One rival lives at a time,
for each holds the value on both of its sides.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from benchmarks.kernels import OwnKernel, run
from benchmarks.measure import Variants, progress
from benchmarks.transfer.whole import CHANGE, READ, START


@dataclass(frozen=True)
class Rival:
    """Cells that start it, send ``value``, make a new one there, bring that home, and end it."""

    module: str
    start: str
    send: str
    change: str
    bring: str
    end: str


IPYPARALLEL = Rival(
    "ipyparallel",
    "import ipyparallel as ipp\n_cluster = ipp.Cluster(n=1)\n"
    "_client = _cluster.start_and_connect_sync(); _engine = _client[0]; _engine.block = True",
    "_engine.push({'value': value})",
    "_engine.execute('value = value + 1')",
    "value = _engine.pull('value')",
    "_cluster.stop_cluster_sync()",
)
DASK = Rival(
    "distributed",
    "from distributed import Client, wait\n"
    "_client = Client(n_workers=1, threads_per_worker=1, dashboard_address=None, memory_limit=0)",
    "_sent = _client.scatter(value, direct=True); wait(_sent)",
    "_sent = _client.submit(lambda value: value + 1, _sent); wait(_sent)",
    "value = _client.gather(_sent, direct=True)",
    "_client.shutdown()",
)


async def measure(
    kernel: OwnKernel, variants: Variants, *, rounds: int, size: int
) -> list[tuple[str, float]]:
    """Return for each rival and way how many times as fast gpulease is, by medians."""
    found = []
    for rival in (IPYPARALLEL, DASK):
        if importlib.util.find_spec(rival.module) is None:
            progress(f"transfer: {rival.module} is not installed, so it is left out")
            continue
        found += await _against(rival, kernel, variants, rounds, size)
    return found


async def _against(
    rival: Rival, kernel: OwnKernel, variants: Variants, rounds: int, size: int
) -> list[tuple[str, float]]:
    progress(f"transfer: beside {rival.module}")
    there, back = f"beside {rival.module}: there", f"beside {rival.module}: back"
    theirs, home = f"{rival.module}: there", f"{rival.module}: back"
    async with OwnKernel.start() as other:
        await run(other, START.format(size=size))
        await run(other, rival.start)
        try:
            for number in range(rounds):
                await run(kernel, f"value = _base + {number}")
                variants.add(there, (await run(kernel, f"%%gpu\n{READ}")).seconds)
                await run(other, f"value = _base + {number}")
                variants.add(theirs, (await run(other, rival.send)).seconds)
                await run(kernel, f"%%gpu\n{CHANGE}")
                variants.add(back, (await run(kernel, READ)).seconds)
                await run(other, rival.change)
                variants.add(home, (await run(other, rival.bring)).seconds)
        finally:
            await run(other, rival.end)
    pairs = ((there, theirs), (back, home))
    return [(theirs_, variants.times_faster(ours, theirs_)) for ours, theirs_ in pairs]
