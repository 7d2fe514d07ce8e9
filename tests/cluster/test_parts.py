"""On Kubernetes: 70% of a card becomes 40% of it for another pod, and 70 % again at a word.

The node shows one card as HAMi does: ten devices, with a hundred parts of memory and of compute.
The real scheduler and kubelet account for them; what HAMi's library would bound nobody bounds here.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpulease.demo.browse import Browser
from testcluster.cluster import Cluster
from testcluster.devices import Resource, card, default_devices
from testcluster.site.people import LONG, at_work
from testcluster.site.site import PASSWORD, Site, running_site
from tests.helpers import wait_for, wait_for_async

# Nightly, for the plugin that stands in for a device plugin does not always show its cards again.
pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(600)]

POLICY = """
pools:
  cards: {evidence: cells, parts: 10}
classes:
  large: {pool: cards, parts: 7, steps: [4], pod: {hami: {}}}
  small: {pool: cards, parts: 4, pod: {hami: {}}}
time_outs:
  {idle: 10m, quiet: 20m, warning: 3s, drain_max: 20s, interrupt_grace: 0, minimum_runtime: 0}
projects:
  course: {group: cs101, pools: {cards: {guarantee: 4}}}
  others: {everyone: true}
"""
AS_HAMI = (
    Resource("nvidia.com/gpu", (card(0),), replicas=10),
    Resource("nvidia.com/gpumem-percentage", (card(0),), replicas=100),
    Resource("nvidia.com/gpucores", (card(0),), replicas=100),
)


@pytest.fixture(scope="module")
def school(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site with one card that HAMi shares."""
    cluster.devices(resources=AS_HAMI)
    try:
        wait_for(lambda: _shows(cluster, 10), LONG, "the node shows one card in ten")
        with running_site(cluster, tmp_path_factory.mktemp("school"), POLICY) as running:
            yield running
    finally:
        # A resource that was shown once stays, as on a real node.
        cluster.devices(resources=(*default_devices().resources, *AS_HAMI[1:]))
        wait_for(lambda: _shows(cluster, 4), LONG, "the node shows its four cards again")


def _shows(cluster: Cluster, number: int) -> bool:
    shown = cluster.api.get("/api/v1/nodes/node1")["status"]["allocatable"]
    return int(shown.get("nvidia.com/gpu", 0)) == number


def percent(pod: dict[str, Any]) -> tuple[str, str, str]:
    """What a pod asks for: devices, memory and compute."""
    (limits,) = (
        asked
        for each in pod["spec"]["containers"]
        if "nvidia.com/gpu" in (asked := each.get("resources", {}).get("limits", {}))
    )
    names = ("nvidia.com/gpu", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores")
    return tuple(limits[each] for each in names)


async def test_a_lease_goes_on_with_less_of_its_card_and_gets_it_back(school: Site) -> None:
    site = school

    def pods() -> dict[str, tuple[str, str, str]]:
        living = [x for x in site.lease_pods() if not x["metadata"].get("deletionTimestamp")]
        return {x["metadata"]["annotations"]["gpulease/user"]: percent(x) for x in living}

    async with Browser(site.url) as admin:
        await admin.log_in("admin", PASSWORD)
        await admin.open_service()
        await admin.hub_api("POST", "users/ana", {})
        await admin.hub_api("POST", "groups/cs101", {})
        await admin.hub_api("POST", "groups/cs101/users", {"users": ["ana"]})
        async with at_work(site, "tom") as tom, at_work(site, "ana") as ana:

            async def has(
                who: Any, share: int, more: Callable[[dict[str, Any]], bool] = lambda _: True
            ) -> Any:
                def there() -> Any:
                    lease = who.watch.lease
                    if lease is None or (lease["state"], lease["percent"]) != ("active", share):
                        return None
                    return lease if more(lease) else None

                return await wait_for_async(there, LONG, f"{share}% of a card")

            await tom.run("%gpu request --class large --at-least 40%")
            lease = await has(tom, 70)
            await tom.run("%%gpu\nmine = [1]")
            assert pods() == {"tom": ("1", "70", "70")}
            await ana.run("%gpu request --class small")
            smaller = await has(tom, 40)
            assert (smaller["id"], smaller["asked_percent"]) == (lease["id"], 70)
            await has(ana, 40)
            assert "[1, 2]" in (await tom.run("%%gpu\nmine.append(2)\nprint(mine)")).text
            assert pods() == dict.fromkeys(("ana", "tom"), ("1", "40", "40"))
            await ana.run("%gpu return")
            await has(tom, 40, lambda lease: (lease["upgrade"] or {}).get("percent") == 70)
            await tom.run("%gpu upgrade")
            assert (await has(tom, 70))["id"] == lease["id"]
            assert "[1, 2]" in (await tom.run("%%gpu\nprint(mine)")).text
            assert pods() == {"tom": ("1", "70", "70")}
