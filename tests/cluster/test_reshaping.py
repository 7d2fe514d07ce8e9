"""On Kubernetes: a smaller lease pod on the same node, and the larger one again at a word."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpulease.demo.browse import Browser
from testcluster.cluster import Cluster
from testcluster.site.people import LONG, at_work
from testcluster.site.site import PASSWORD, Site, running_site
from tests.helpers import wait_for_async

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

POLICY = """
pools:
  cards: {evidence: cells}
classes:
  card:
    pool: cards
    max_count: 2
    pod: {kind: device_plugin}
time_outs:
  {idle: 10m, quiet: 20m, warning: 3s, drain_max: 20s, interrupt_grace: 0, minimum_runtime: 0}
reservations:
  lead: 5s
  groups:
    cs101: {}
"""


@pytest.fixture(scope="module")
def school(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site with four cards and a course."""
    with running_site(cluster, tmp_path_factory.mktemp("school"), POLICY) as running:
        yield running


def running_pods(site: Site) -> list[dict[str, Any]]:
    return [each for each in site.lease_pods() if not each["metadata"].get("deletionTimestamp")]


def cards(pod: dict[str, Any]) -> int:
    """How many cards a pod asks for."""
    asked = (each.get("resources", {}).get("limits", {}) for each in pod["spec"]["containers"])
    return sum(int(each.get("nvidia.com/gpu", 0)) for each in asked)


async def test_a_lease_gives_a_lab_one_card_and_gets_it_back(school: Site) -> None:
    site = school
    async with Browser(site.url) as admin, at_work(site, "tom") as tom:
        await admin.log_in("admin", PASSWORD)
        await admin.open_service()

        async def has(count: int, more: Callable[[dict[str, Any]], bool] = lambda _: True) -> Any:
            def there() -> Any:
                lease = tom.watch.lease
                if lease is None or (lease["state"], lease["count"]) != ("active", count):
                    return None
                return lease if more(lease) else None

            return await wait_for_async(there, LONG, f"{count} cards")

        await tom.run("%gpu request --count 2 --min-count 1")
        lease = await has(2)
        await tom.run("%%gpu\nmine = [1]")
        (before,) = running_pods(site)
        assert cards(before) == 2
        await admin.hub_api("POST", "groups/cs101", {})
        start = (datetime.now(UTC) + timedelta(seconds=20)).replace(tzinfo=None, microsecond=0)
        lab = {
            "name": "lab", "group": "cs101", "gpu_class": "card", "seats": 3, "zone": "UTC",
            "start": start.isoformat(), "end": (start + timedelta(hours=1)).isoformat(),
        }  # fmt: skip
        made = await admin.service_api("POST", "reservations", lab)
        smaller = await has(1)
        assert (smaller["id"], smaller["asked_count"]) == (lease["id"], 2)
        assert "[1, 2]" in (await tom.run("%%gpu\nmine.append(2)\nprint(mine)")).text
        (after,) = running_pods(site)
        assert cards(after) == 1
        assert after["spec"]["nodeName"] == before["spec"]["nodeName"]

        over = {"window": {"at": made["windows"][0]["at"], "cancelled": True}}
        if datetime.now(UTC).replace(tzinfo=None) > start:
            over = {"window": {"end_now": True}}
        await admin.service_api("PATCH", f"reservations/{made['id']}", over)
        await has(1, lambda lease: (lease["upgrade"] or {}).get("count") == 2)
        await tom.run("%gpu upgrade")
        assert (await has(2))["id"] == lease["id"]
        assert "[1, 2]" in (await tom.run("%%gpu\nprint(mine)")).text
