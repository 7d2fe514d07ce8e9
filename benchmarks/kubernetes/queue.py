"""Leases that Kueue lets in, beside bare pods (without a GPU, which only leases may
have there) that it lets in, on nodes that kwok plays.

Its quota has room for all, so what is measured is the way through its gate.  As ``load`` otherwise.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.kubernetes.load import ASKS, NODES, bare, load, run
from benchmarks.measure import Variants, report
from testcluster import kueue
from testcluster.cluster import Cluster
from testcluster.kwok import GPUS
from testcluster.many.crowd import kwok_nodes
from testcluster.site import shipped
from testcluster.site.shipped import HUB_NAMESPACE

RATE = 50
QUEUE = "students"


async def measure(cluster: Cluster, *, rounds: int, scale: float) -> dict[str, Any]:  # noqa: ARG001
    """Run this part once and return its report.

    Raises:
        SystemExit: Kueue is not built.
    """
    problem = kueue.why_no_kueue()
    if problem:
        raise SystemExit(problem)
    number, variants = max(GPUS, round(ASKS * scale)), Variants()
    runs: dict[str, dict[str, Any]] = {}
    shipped.apply(cluster.api)
    shipped.apply(cluster.api, shipped.KUEUE)
    directory = Path(tempfile.mkdtemp(prefix="kueue-", dir=cluster.layout.logs))
    try:
        with (
            kwok_nodes(cluster, max(1, number * NODES // ASKS)),
            kueue.running_kueue(cluster, directory, (HUB_NAMESPACE,)),
        ):
            kueue.queue(cluster.api, "gpus", number, {QUEUE: HUB_NAMESPACE})
            runs["bare pods"] = await run(
                f"{number} bare pods through Kueue", bare(cluster, number, RATE, QUEUE)
            )
            runs["leases"] = await run(
                f"{number} asks through Kueue", load(cluster, number, RATE, variants, QUEUE)
            )
    finally:
        shipped.remove(cluster.api, shipped.KUEUE)
    return report("kubernetes: queue", variants, [], asks=number, runs=runs)
