"""300 leases over 100 nodes with 8 GPUs each, which kwok plays: admission, restart, reclaim.

One process, this test's own, stands in for all companions and all notebooks: it speaks through the
service's public API.  The service is a process of its own, under the shipped account.
"""

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from gpulease.protocol import labels
from gpulease.service.leases.events import FIGURES_EVERY
from testcluster.api import Object
from testcluster.cluster import Cluster
from testcluster.kwok import GPUS
from testcluster.many.crowd import PATIENCE, Crowd, crowd, kwok_nodes, policy
from testcluster.many.notebooks import user_names
from tests.helpers import wait_for_async

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

NODES, LEASES, RATE = 100, 300, 50
LOOK_SECONDS = 20.0
SERVICE = f"""
c.KubernetesSettings.pods_per_second = {RATE}
c.KubernetesSettings.bind_seconds = 60.0
c.GPULeaseService.hub_seconds = 10.0
"""


def test_300_leases_are_admitted_kept_through_a_restart_and_reclaimed(
    cluster: Cluster, say: Callable[[str], None]
) -> None:
    directory = Path(tempfile.mkdtemp(prefix="many-", dir=cluster.layout.logs))
    with kwok_nodes(cluster, NODES):
        asyncio.run(_whole_round(cluster, directory, say))


async def _whole_round(cluster: Cluster, directory: Path, say: Callable[[str], None]) -> None:
    async with crowd(cluster, directory, user_names(LEASES), service=SERVICE) as everybody:
        say(f"{LEASES} active in {await _admitted(everybody):.1f} s, at {RATE} pods a second")
        before = {life.pod["metadata"]["uid"]: life.pod for life in everybody.companions.present}
        devices = _devices(everybody)

        say(f"the service killed, and all back in {await _restarted(everybody):.1f} s")
        after = {life.pod["metadata"]["uid"] for life in everybody.companions.present}
        assert after == before.keys(), "no pod came or went while the service was away"
        assert _devices(everybody) == devices, "each lease kept its device"

        told, seconds = await _settled(everybody)
        say(f"{told} messages to an admin's page in {seconds:.0f} s in which nothing happened")

        say(f"all reclaimed in {await _reclaimed(everybody):.1f} s, the policy's 4 s among them")


async def _admitted(everybody: Crowd) -> float:
    """Ask for all, and check where the pods are and whose."""
    page, companions = everybody.page, everybody.companions
    asking = asyncio.create_task(everybody.notebooks.ask_all())
    took = await everybody.until("all active", lambda: page.count("active") == LEASES)
    await asking
    assert await everybody.supervisors() == LEASES
    there = [life.pod for life in companions.present]
    assert len(there) == LEASES, "one pod for each lease"
    assert {_label(pod, labels.LEASE) for pod in there} == everybody.notebooks.asked.keys()
    assert max(Counter(pod["spec"]["nodeName"] for pod in there).values()) <= GPUS
    for pod in there:
        (owner,) = pod["metadata"]["ownerReferences"]
        user = pod["metadata"]["annotations"][labels.USER]
        assert (owner["kind"], owner["name"]) == ("Pod", f"jupyter-{user}")
    return took


async def _restarted(everybody: Crowd) -> float:
    """Kill the service and start it again while all leases stand."""
    page, companions = everybody.page, everybody.companions
    asked = everybody.notebooks.hub.asked
    asked.clear()
    answered = await everybody.restart()
    took = await everybody.until(
        "everybody to be back",
        lambda: companions.connected == LEASES and page.count("active") == LEASES,
    )
    await wait_for_async(_all_seen(everybody), 120, "the service to see every companion")
    looked = "each server's token to be looked at"  # they come in their turn
    await wait_for_async(lambda: asked.count("/hub/api/user") >= LEASES, 120, looked)
    singles = [path for path in asked if path.rpartition("/")[0] == "/hub/api/users"]
    assert len(singles) < LEASES / 5, "and not each server: a list says which run"
    live = await page.get("api/leases?state=live&limit=200")
    assert live["total"] == LEASES
    return answered + took


async def _settled(everybody: Crowd) -> tuple[int, float]:
    """Count what an admin's page is told while all leases stand and nobody does anything.

    What the restart stirred up is told first, for as long as a busy machine needs.
    """
    page, began, before = everybody.page, time.monotonic(), everybody.page.events

    def seldom() -> tuple[int, float] | None:
        nonlocal began, before
        told, seconds = page.events - before, time.monotonic() - began
        if seconds < LOOK_SECONDS:
            return None
        began, before = time.monotonic(), page.events
        return (told, seconds) if told < LEASES * seconds / (2 * FIGURES_EVERY) else None

    return await wait_for_async(seldom, PATIENCE, "less than a message every few seconds")


async def _reclaimed(everybody: Crowd) -> float:
    """Let every lease fall idle, and wait until nothing of them is left."""
    page, companions = everybody.page, everybody.companions
    await page.put("api/policy", {"text": policy("3s")})
    took = await everybody.until(
        "all ended and every pod gone",
        lambda: page.count("ended") == LEASES and not companions.present,
    )
    ended = [lease for lease in page.leases.values() if lease["state"] == "ended"]
    assert Counter(lease["end"]["reason"] for lease in ended) == {"idle": LEASES}

    async def free() -> bool:
        (offered,) = (await page.get("api/classes"))["items"]
        return bool(offered["free"] == offered["total"] == NODES * GPUS)

    await wait_for_async(free, 120, "every device to be free")
    return took


def _all_seen(everybody: Crowd) -> Callable[[], object]:
    async def seen() -> bool:
        return await everybody.supervisors() == LEASES

    return seen


def _devices(everybody: Crowd) -> dict[str, str]:
    """Return each lease's device; no two have the same, and each is on the node of its pod."""
    found = {}
    for life in everybody.companions.present:
        (device,) = everybody.page.leases[life.lease]["devices"]
        assert device["uuid"].startswith(f"{life.pod['spec']['nodeName']}/")
        found[life.lease] = device["uuid"]
    assert len(set(found.values())) == LEASES
    return found


def _label(pod: Object, name: str) -> str:
    return str(pod["metadata"]["labels"][name])
