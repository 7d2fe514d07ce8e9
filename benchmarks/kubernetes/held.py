"""5,000 leases that are held while the service dies: how soon a new one has found all again.

Servers, lease pods and their nodes are kwok's, as in ``load``; the leases are asked for and granted
as any, and each has its supervisor's channel.  The notebook servers' own channels are left out:
their other ends would take more of the machine than the service does.  How long it takes until all
are held is told and is no aim here.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import psutil

from benchmarks.kubernetes.costs import Processors
from benchmarks.kubernetes.load import FOUND_AGAIN, run
from benchmarks.kubernetes.stages import done, stage
from benchmarks.measure import Aim, Variants, report
from testcluster.cluster import Cluster
from testcluster.kwok import GPUS
from testcluster.many.crowd import Crowd, crowd, kwok_nodes
from testcluster.many.notebooks import user_names
from testcluster.site import shipped

LEASES = 5_000
#: Lease pods that the service may create a second: what it takes to get there is not measured.
RATE = 200
#: Rounds of killing and starting anew.
RESTARTS = 2
#: Seconds that a stage may take: two cores play the whole cluster.
PATIENCE = 1_200.0
SERVICE = f"""
c.KubernetesSettings.pods_per_second = {RATE}
c.KubernetesSettings.bind_seconds = 600.0
c.GPULeaseService.hub_seconds = 10.0
c.GPULeaseService.tick = 1.0
"""


async def measure(cluster: Cluster, *, rounds: int, scale: float) -> dict[str, Any]:
    """Run this part once, with some restarts, and return its report."""
    number, variants = max(GPUS, round(LEASES * scale)), Variants()
    users = user_names(number)
    shipped.apply(cluster.api)
    made = Path(tempfile.mkdtemp(prefix="held-", dir=cluster.layout.logs))
    with kwok_nodes(cluster, -(-number // GPUS)):
        held = _held(cluster, made, users, min(rounds, RESTARTS))
        found = await run(f"{number} leases held", held)
    seconds = found.get("found_again_seconds", [float("inf")])
    if measured := [each for each in seconds if each < float("inf")]:
        variants.seconds["service killed to all found again"] = measured
    aim = Aim("seconds until all are found again after a restart", max(seconds), FOUND_AGAIN)
    return report("kubernetes: held", variants, [aim], leases=number, **found)


async def _held(
    cluster: Cluster, directory: Path, users: list[str], restarts: int
) -> dict[str, Any]:
    async with crowd(
        cluster, directory, users, service=SERVICE, patience=PATIENCE, listening=False
    ) as everybody:
        asking = asyncio.create_task(everybody.notebooks.ask_all())
        asked = await done("all asked", PATIENCE, asking, everybody.seen)
        granted = await _all_there(everybody, len(users), "all registered")
        held, seconds, costs = _megabytes(everybody), [], []
        for _ in range(restarts):
            used = Processors(cluster, {})
            answered = await everybody.restart()
            again = await _all_there(everybody, len(users), "all found again")
            seconds.append(round(answered + again, 1))
            new = psutil.Process(everybody.site.pid("service")).cpu_times()
            costs.append({**used.used(), "service": round(new.user + new.system, 1)})
        return {
            "all_registered_seconds": round(asked + granted, 1),
            "found_again_seconds": seconds,
            "until_found_again": costs,
            "service_mb_before": held,
            "service_mb_after": _megabytes(everybody),
        }


async def _all_there(everybody: Crowd, number: int, what: str) -> float:
    """Wait until each companion speaks with the service, and the service calls each active."""
    companions, page = everybody.companions, everybody.page

    def there() -> bool:
        return companions.connected == number and page.count("active") == number

    return await stage(what, PATIENCE, there, everybody.seen)


def _megabytes(everybody: Crowd) -> float:
    """Return what the service has in memory now."""
    service = psutil.Process(everybody.site.pid("service"))
    return round(service.memory_info().rss / 2**20, 1)
