"""From the decision to take a lease until its pod's object is gone, so that its device is free.

The last cell changed 100 MB.  Beside it, in turn: a bare pod that ends at once when it is asked to,
from the request to delete it until it is gone.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.kubernetes.pods import Pods
from benchmarks.kubernetes.site import lease_pod, run, site_on, until_free
from benchmarks.measure import Aim, Variants, progress, report
from benchmarks.reclaim import CHANGED, FILL, changed, check
from benchmarks.stack import Watch
from testcluster.cluster import Cluster
from testcluster.lease_world import OBEDIENT
from testcluster.pods import pod
from testcluster.site.people import Student, at_work
from testcluster.site.shipped import HUB_NAMESPACE
from testcluster.site.site import Site

BARE = "bare delete"
#: Seconds beyond a bare delete.
BEYOND = 2.0


async def measure(cluster: Cluster, *, rounds: int, scale: float) -> dict[str, Any]:  # noqa: ARG001
    """Run this part and return its report."""
    variants = Variants()
    with site_on(cluster) as site:
        async with (
            Pods.of(cluster) as pods,
            at_work(site, "ada") as ada,
            Watch.of(ada.browser) as watch,
        ):
            await run(ada, FILL)
            for number in range(1, rounds + 1):
                progress(f"reclaim: round {number} of {rounds}")
                await _bare(cluster, pods, variants, number)
                await _reclaim(ada, site, pods, watch, variants, number)
    figures = variants.summaries()
    most = round(figures[BARE]["median"] + BEYOND, 3)
    aims = [Aim("decision to gone, p95 seconds", round(figures[CHANGED]["p95"], 3), most)]
    return report("kubernetes: reclaim", variants, aims, changed_bytes=100_000_000)


async def _bare(cluster: Cluster, pods: Pods, variants: Variants, number: int) -> None:
    name = f"bare-{number}"
    body = pod(HUB_NAMESPACE, name, *OBEDIENT)
    body["spec"]["terminationGracePeriodSeconds"] = 30
    cluster.api.create(body)
    await pods.until(name, "running")
    asked = time.perf_counter()
    cluster.api.delete(f"/api/v1/namespaces/{HUB_NAMESPACE}/pods/{name}")
    variants.add(BARE, await pods.until(name, "gone") - asked)


async def _reclaim(
    ada: Student, site: Site, pods: Pods, watch: Watch, variants: Variants, number: int
) -> None:
    lease = await changed(ada.kernel, watch)
    name = lease_pod(site)
    await ada.browser.service_api("DELETE", f"leases/{lease}")
    decided = await watch.until(watch.draining)
    gone = await pods.until(name, "gone")
    variants.add(CHANGED, gone - decided)
    variants.add(f"{CHANGED}: until deleted", await pods.until(name, "deleting") - decided)
    await run(ada, check(number))
    await until_free(ada)
