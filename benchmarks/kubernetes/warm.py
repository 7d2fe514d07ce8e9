"""From the ask to the first line that a `%%gpu` cell prints, in a lease pod that stood ready.

Each round begins with no lease and one pod that stands ready, which the lease gets.  Beside it
stands the part ``start``: the same cell where the pod starts cold.
"""

from __future__ import annotations

from typing import Any

from benchmarks.kubernetes.pods import PATIENCE, Pods
from benchmarks.kubernetes.site import run, site_on, until_free
from benchmarks.kubernetes.start import CELL
from benchmarks.measure import Aim, Variants, progress, report
from testcluster.cluster import Cluster
from testcluster.images import GPULEASE_IMAGE
from testcluster.site import shipped
from testcluster.site.people import at_work
from testcluster.site.ready import one_ready

WARM = "ask to first line, a pod stands ready"
MOST_SECONDS = 1.0
POLICY = f"""
pools:
  cards: {{evidence: process}}
classes:
  card: {{pool: cards, pod: {{image: "{GPULEASE_IMAGE}"}}, warm: {{pods: 1}}}}
time_outs: {{idle: 1h, idle_under_pressure: 1h, quiet: 1h}}
"""


async def measure(cluster: Cluster, *, rounds: int, scale: float) -> dict[str, Any]:  # noqa: ARG001
    """Run this part and return its report."""
    variants = Variants()
    with site_on(cluster, POLICY) as site:
        shipped.apply(cluster.api, shipped.WARM)
        async with Pods.of(cluster) as pods, at_work(site, "ada") as ada:
            for number in range(rounds):
                progress(f"warm: round {number + 1} of {rounds}")
                pod = await one_ready(site, PATIENCE)
                cell = await run(ada, CELL)
                if cell.first_line is None:
                    raise RuntimeError("the GPU cell printed nothing")
                variants.add(WARM, cell.first_line)
                await run(ada, "%gpu return")
                await pods.until(pod["metadata"]["name"], "gone")
                await until_free(ada)
    tail = variants.summaries()[WARM]["p95"]
    return report("kubernetes: warm", variants, [Aim(f"{WARM}, p95 (s)", tail, MOST_SECONDS)])
