"""800 asks at once on 800 GPUs of 100 nodes that kwok plays: to all registered, to all gone.

The service is a process of its own under the shipped account; one process stands in for hub,
notebooks and companions.  Measured at two settings of the service's limiter.  Beside it: as many
bare pods, created at the faster rate with as many calls under way at once, until all run.  While
all leases stand, the service is killed and started again.  Writes
are counted from the audit log.  Each stage is bounded; one that is late is told in the report.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from benchmarks.kubernetes.costs import Processors, pods_created, rate, requests
from benchmarks.kubernetes.stages import LateError, done, stage
from benchmarks.measure import Aim, Variants, progress, report
from gpulease.providers.kubernetes.api.client import Limiter
from testcluster.api import Object
from testcluster.cluster import Cluster
from testcluster.kwok import GPUS, LABEL, TAINT
from testcluster.many.crowd import Crowd, crowd, kwok_nodes, policy
from testcluster.many.kube import Kube, kube
from testcluster.many.notebooks import delete_all, user_names
from testcluster.pods import pod
from testcluster.site import shipped
from testcluster.site.shipped import HUB_NAMESPACE, OWN_NAMESPACE
from tests.helpers import WaitedTooLongError

NODES, ASKS = 100, 800
RATES = (10, 50)
#: The share of its limiter's rate that a service keeps, and writes to the API server a lease.
KEPT, WRITES = 0.9, 6.0
ACCOUNT = f"system:serviceaccount:{OWN_NAMESPACE}:gpulease"
BARE = "bare"
#: Seconds in which a service that was killed has found all its leases again.
FOUND_AGAIN = 30.0
#: Seconds that a stage may take beyond what the limiter makes it take at least.
PATIENCE = 240.0


async def measure(cluster: Cluster, *, rounds: int, scale: float) -> dict[str, Any]:  # noqa: ARG001
    """Run this part once and return its report."""
    number, variants = max(GPUS, round(ASKS * scale)), Variants()
    runs: dict[str, dict[str, Any]] = {}
    shipped.apply(cluster.api)
    with kwok_nodes(cluster, max(1, number * NODES // ASKS)):
        runs["bare pods"] = await run(f"{number} bare pods", bare(cluster, number, max(RATES)))
        for each in RATES:
            name = _named(each)
            runs[name] = await run(f"{number} asks, {name}", load(cluster, number, each, variants))
    aims = []
    for each in RATES:
        found = runs[_named(each)]
        least = round(KEPT * each, 1)
        # What was not measured is not met.
        kept = found.get("pods_per_second", 0.0)
        writes = found.get("writes_per_lease", float("inf"))
        aims += [
            Aim(f"pods a second, {_named(each)}", kept, least, at_most=False),
            Aim(f"writes a lease, {_named(each)}", writes, WRITES),
            Aim(
                f"seconds until all are found again after a restart, {_named(each)}",
                found.get("found_again_seconds", float("inf")),
                FOUND_AGAIN,
            ),
        ]
    return report("kubernetes: load", variants, aims, asks=number, runs=runs)


def _named(each: int) -> str:
    return f"limiter at {each} pods/s"


async def run(what: str, running: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    """Run one of them; what was late says so, and the others are measured all the same."""
    progress(f"load: {what}")
    try:
        return await running
    except (LateError, TimeoutError, WaitedTooLongError) as error:
        late = f"{what}: {error or 'the servers did not run in time'}"
        progress(f"load: {late}")
        return {"late": late}


async def bare(cluster: Cluster, number: int, most: float, queue: str = "") -> dict[str, Any]:
    """Create bare pods as fast as the service may, and see how soon they run."""
    limiter, names, running = Limiter(most), user_names(number), set[str]()
    before = len(cluster.audited())

    async def create(pods: Kube, name: str) -> None:
        await limiter.wait()
        await pods.create(_bare_pod(name, queue))

    async def create_all(pods: Kube) -> None:
        await asyncio.gather(*(create(pods, name) for name in names))

    async def follow(pods: Kube) -> None:
        path = f"/api/v1/namespaces/{HUB_NAMESPACE}/pods"
        async for _, seen in pods.follow(path, labelSelector=f"test={BARE}"):
            if seen["status"].get("phase") == "Running":
                running.add(seen["metadata"]["name"])

    def seen() -> str:
        return f"{len(running)} of {number} run"

    async with kube(cluster.api, Kube) as pods:
        following = asyncio.create_task(follow(pods))
        try:
            used, began = Processors(cluster, {}), time.monotonic()
            creating = asyncio.ensure_future(create_all(pods))
            await done("all created", number / most + PATIENCE, creating, seen)
            await stage("all running", PATIENCE, lambda: len(running) == number, seen)
            took = time.monotonic() - began
            cost = used.used()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await delete_all(pods, HUB_NAMESPACE, f"test={BARE}")
    return {
        "pods_per_second": rate(pods_created(cluster.audited()[before:], names)),
        "all_running_seconds": round(took, 1),
        "until_all_running": cost,
    }


def _bare_pod(name: str, queue: str) -> Object:
    tolerated = [{"operator": "Equal", **TAINT}]
    made = pod(HUB_NAMESPACE, name, node=LABEL, tolerations=tolerated)
    made["metadata"]["labels"] = {"test": BARE}
    if queue:
        made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = queue
    return made


async def load(
    cluster: Cluster, number: int, most: int, variants: Variants, queue: str = ""
) -> dict[str, Any]:
    """Run a service with this limiter, let everybody ask, and reclaim all."""
    service = f"c.KubernetesSettings.pods_per_second = {most}\n"
    service += "c.KubernetesSettings.bind_seconds = 120.0\nc.GPULeaseService.hub_seconds = 10.0\n"
    service += "c.GPULeaseService.tick = 1.0\n"
    users = user_names(number)
    before = len(cluster.audited())
    with tempfile.TemporaryDirectory(prefix="load-", dir=cluster.layout.logs) as made:
        async with crowd(cluster, Path(made), users, service=service, queue=queue) as everybody:
            found = await _round(everybody, number, most)
            lives = [life for life in everybody.companions.lives.values() if life.registered]
            asked = everybody.notebooks.asked
    name = f"{_named(most)}{', through Kueue' if queue else ''}"
    variants.seconds[f"ask to registered, {name}"] = [x.registered - asked[x.lease] for x in lives]
    variants.seconds[f"ask to gone, {name}"] = [x.gone - asked[x.lease] for x in lives]
    ours = [e for e in cluster.audited()[before:] if e["user"]["username"] == ACCOUNT]
    return {"pods_per_second": rate(pods_created(ours)), **requests(ours, number), **found}


async def _round(everybody: Crowd, number: int, most: int) -> dict[str, Any]:
    """Let everybody ask, and when all are registered let every lease fall idle."""
    companions, page, notebooks = everybody.companions, everybody.page, everybody.notebooks

    def seen() -> str:
        return f"{len(notebooks.asked)} of {number} asks answered; {everybody.seen()}"

    used = Processors(everybody.site.cluster, {"service": everybody.site.pid("service")})
    began = time.monotonic()
    asking = asyncio.create_task(notebooks.ask_all())
    await done("all asked", number / most + PATIENCE, asking, seen)
    await stage(
        "all registered",
        number / most + PATIENCE,
        lambda: page.count("active") == number,
        seen,
    )
    registered = max(life.registered for life in companions.lives.values()) - began
    cost = used.used()
    listed = time.monotonic()
    await page.get("api/leases?state=live&limit=200")
    listed = time.monotonic() - listed
    answered = await everybody.restart()
    again = await stage(
        "all found again",
        PATIENCE,
        lambda: companions.connected == number and page.count("active") == number,
        seen,
    )
    await page.put("api/policy", {"text": policy("3s", everybody.queue)})
    gone = await stage(
        "all gone",
        PATIENCE,
        lambda: page.count("ended") == number and not companions.present,
        seen,
    )
    return {
        "all_asked_seconds": round(max(notebooks.asked.values()) - began, 1),
        "all_registered_seconds": round(registered, 1),
        "found_again_seconds": round(answered + again, 1),
        "all_gone_after_policy_seconds": round(gone, 1),
        "until_all_registered": cost,
        "page_of_200_leases_seconds": round(listed, 3),
        "page_events": page.events,
        "lease_pods": len(companions.lives),
    }
