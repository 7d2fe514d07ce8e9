"""From the ask to the first line that a `%%gpu` cell prints, in a lease pod that starts cold.

Each round begins with no lease and an image that is on the node.  Beside it, in turn: a bare pod
of the same image that runs ``python -c 'print()'``, from its creation until it is seen to run.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.kubernetes.pods import Pods
from benchmarks.kubernetes.site import give_back, lease_pod, run, site_on
from benchmarks.measure import Aim, Variants, progress, report
from testcluster.cluster import Cluster
from testcluster.pods import pod
from testcluster.site.people import Student, at_work
from testcluster.site.shipped import HUB_NAMESPACE
from testcluster.site.site import Site

COLD, TORCH, BARE = "ask to first line", "the same, import torch", "bare pod, create to Running"
CELL = "%%gpu\nprint('first line')"
WITH_TORCH = "%%gpu\nimport torch\nprint('first line')"
HAS_TORCH = "import importlib.util\nprint('has', importlib.util.find_spec('torch') is not None)"
#: Where the time goes: each from the step before it.
STAGES = ("created", "scheduled", "running")
MOST_TIMES = 2.5


async def measure(cluster: Cluster, *, rounds: int, scale: float) -> dict[str, Any]:  # noqa: ARG001
    """Run this part and return its report."""
    variants = Variants()
    with site_on(cluster) as site:
        async with Pods.of(cluster) as pods, at_work(site, "ada") as ada:
            cells = {COLD: CELL}
            if "has True" in (await run(ada, HAS_TORCH)).text:
                cells[TORCH] = WITH_TORCH
            for number in range(rounds):
                progress(f"start: round {number + 1} of {rounds}")
                await _bare(cluster, pods, variants, number)
                for name, source in cells.items():
                    await _attach(ada, site, pods, variants, name, source)
    figures = variants.summaries()
    times = variants.times_faster(BARE, COLD)
    tail = round(figures[COLD]["p95"] / figures[BARE]["median"], 2)
    aims = [
        Aim("ask to first line beside a bare pod, medians, times", times, MOST_TIMES),
        Aim("its 95th percentile beside a bare pod's median, times", tail, MOST_TIMES),
    ]
    torch = "measured" if TORCH in cells else "not installed"
    return report("kubernetes: start", variants, aims, torch=torch)


async def _bare(cluster: Cluster, pods: Pods, variants: Variants, number: int) -> None:
    name = f"bare-{number}"
    # One that ends at once is never seen Running: the kubelet tells of its end a second later.
    body = pod(HUB_NAMESPACE, name, "python", "-c", "print(flush=True); input()")
    body["spec"]["containers"][0] |= {"stdin": True}
    created = time.perf_counter()
    cluster.api.create(body)
    variants.add(BARE, await pods.until(name, "running") - created)
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 1}
    cluster.api.delete(f"/api/v1/namespaces/{HUB_NAMESPACE}/pods/{name}", options)
    await pods.until(name, "gone")


async def _attach(
    ada: Student, site: Site, pods: Pods, variants: Variants, name: str, source: str
) -> None:
    asked = time.perf_counter()
    cell = await run(ada, source)
    if cell.first_line is None:
        raise RuntimeError("the GPU cell printed nothing")
    variants.add(name, cell.first_line)
    steps = pods.newest(lease_pod(site))
    assert steps is not None
    before = asked
    for stage in STAGES:
        variants.add(f"{name}: until {stage}", steps.at[stage] - before)
        before = steps.at[stage]
    variants.add(f"{name}: Running to line", asked + cell.first_line - before)
    await give_back(ada, site, pods)
