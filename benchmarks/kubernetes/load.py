"""800 asks at once on 800 GPUs of 100 nodes that kwok plays: to all registered, to all gone.

The service is a process of its own under the shipped account; one process stands in for hub,
notebooks and companions.  Measured at two settings of the service's limiter.  Beside it: as many
bare pods, created at the faster rate, until all run.  Writes are counted from the audit log.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from benchmarks.measure import Aim, Variants, progress, report
from gpulease.providers.kubernetes.limiter import Limiter
from tests.cluster.api import Object
from tests.cluster.cluster import Cluster
from tests.cluster.kwok import GPUS, LABEL, TAINT
from tests.cluster.many.crowd import PATIENCE, Crowd, crowd, kwok_nodes, policy
from tests.cluster.many.kube import kube
from tests.cluster.many.notebooks import delete_all, until_running, user_names
from tests.cluster.pods import pod
from tests.cluster.site import shipped
from tests.cluster.site.shipped import HUB_NAMESPACE, OWN_NAMESPACE

NODES, ASKS = 100, 800
RATES = (10, 50)
#: The share of its limiter's rate that a service keeps, and writes to the API server a lease.
KEPT, WRITES = 0.9, 6.0
ACCOUNT = f"system:serviceaccount:{OWN_NAMESPACE}:gpulease"
WRITING = frozenset({"create", "update", "patch", "delete", "deletecollection"})
BARE = "bare"


async def measure(cluster: Cluster, *, rounds: int, scale: float) -> dict[str, Any]:  # noqa: ARG001
    """Run this part once and return its report."""
    number, variants = max(GPUS, round(ASKS * scale)), Variants()
    runs: dict[str, dict[str, Any]] = {}
    shipped.apply(cluster.api)
    with kwok_nodes(cluster, NODES):
        runs["bare pods"] = await _bare(cluster, number, max(RATES))
        for rate in RATES:
            runs[f"limiter at {rate} pods/s"] = await _load(cluster, number, rate, variants)
    aims = []
    for rate in RATES:
        run = runs[f"limiter at {rate} pods/s"]
        least = round(KEPT * rate, 1)
        aims += [
            Aim(f"pods a second, limiter at {rate}", run["pods_per_second"], least, at_most=False),
            Aim(f"writes a lease, limiter at {rate}", run["writes_per_lease"], WRITES),
        ]
    return report("kubernetes: load", variants, aims, asks=number, runs=runs)


async def _bare(cluster: Cluster, number: int, rate: float) -> dict[str, Any]:
    """Create bare pods as fast as the service may, and see how soon they run."""
    limiter, names = Limiter(rate), user_names(number)
    async with kube(cluster.api) as pods:
        try:
            began = time.monotonic()
            for name in names:
                await limiter.wait()
                await pods.create(_bare_pod(name))
            created = time.monotonic() - began
            await until_running(pods, HUB_NAMESPACE, f"test={BARE}", set(names), PATIENCE)
            running = time.monotonic() - began
        finally:
            await delete_all(pods, HUB_NAMESPACE, f"test={BARE}")
    return {
        "pods_per_second": round(number / created, 1),
        "all_running_seconds": round(running, 1),
    }


def _bare_pod(name: str) -> Object:
    tolerated = [{"operator": "Equal", **TAINT}]
    made = pod(HUB_NAMESPACE, name, node=LABEL, tolerations=tolerated)
    made["metadata"]["labels"] = {"test": BARE}
    return made


async def _load(cluster: Cluster, number: int, rate: int, variants: Variants) -> dict[str, Any]:
    service = f"c.KubernetesSettings.pods_per_second = {rate}\n"
    service += "c.KubernetesSettings.bind_seconds = 120.0\nc.GPULeaseService.hub_seconds = 10.0\n"
    service += "c.GPULeaseService.tick = 1.0\n"
    users = user_names(number)
    before = len(cluster.audited())
    with tempfile.TemporaryDirectory(prefix="load-", dir=cluster.layout.logs) as made:
        async with crowd(cluster, Path(made), users, service=service) as everybody:
            progress(f"load: {number} asks, limiter at {rate} pods/s")
            found = await _round(everybody, number)
            lives = [life for life in everybody.companions.lives.values() if life.registered]
            asked = everybody.notebooks.asked
    name = f"limiter at {rate} pods/s"
    variants.seconds[f"ask to registered, {name}"] = [x.registered - asked[x.lease] for x in lives]
    variants.seconds[f"ask to gone, {name}"] = [x.gone - asked[x.lease] for x in lives]
    ours = [e for e in cluster.audited()[before:] if e["user"]["username"] == ACCOUNT]
    return found | _written(ours, number)


async def _round(everybody: Crowd, number: int) -> dict[str, Any]:
    """Let everybody ask, and when all are registered let every lease fall idle."""
    companions, page = everybody.companions, everybody.page
    service = psutil.Process(everybody.site.pid("service"))
    used, began = _used(service), time.monotonic()
    asking = asyncio.create_task(everybody.notebooks.ask_all())
    await everybody.until("all registered", lambda: page.count("active") == number)
    await asking
    registered = max(life.registered for life in companions.lives.values()) - began
    used_by_then = _used(service) - used
    listed = time.monotonic()
    await page.get("api/leases?state=live&limit=200")
    listed = time.monotonic() - listed
    await page.put("api/policy", {"text": policy("3s")})
    ending = time.monotonic()
    await everybody.until(
        "all gone", lambda: page.count("ended") == number and not companions.present
    )
    return {
        "all_asked_seconds": round(max(everybody.notebooks.asked.values()) - began, 1),
        "all_registered_seconds": round(registered, 1),
        "all_gone_after_policy_seconds": round(time.monotonic() - ending, 1),
        "service_processor_seconds_to_registered": round(used_by_then, 1),
        "page_of_200_leases_seconds": round(listed, 3),
        "page_events": page.events,
        "lease_pods": len(companions.lives),
    }


def _written(events: list[Object], number: int) -> dict[str, Any]:
    """Return the service's writes, and the rate at which it created pods."""
    writes = Counter(
        f"{each['verb']} {each['objectRef']['resource']}"
        for each in events
        if each["verb"] in WRITING
    )
    made = sorted(
        _seconds(each["requestReceivedTimestamp"])
        for each in events
        if (each["verb"], each["objectRef"]["resource"]) == ("create", "pods")
    )
    rate = (len(made) - 1) / (made[-1] - made[0])
    return {
        "pods_per_second": round(rate, 1),
        "writes_per_lease": round(sum(writes.values()) / number, 2),
        "writes": dict(writes),
        "reads": dict(Counter(e["verb"] for e in events if e["verb"] not in WRITING)),
    }


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def _used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system
