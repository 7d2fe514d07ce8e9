"""Pods that stand ready, on a real site: claimed by a lease, given away to another class."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gpulease.protocol import labels
from testcluster.api import ApiError, Object
from testcluster.cluster import Cluster
from testcluster.devices import card
from testcluster.images import GPULEASE_IMAGE
from testcluster.site import shipped
from testcluster.site.people import LONG, at_work
from testcluster.site.ready import one_ready, ready_pods
from testcluster.site.site import Site, running_site
from tests.cluster.test_whole_round import seen
from tests.helpers import wait_for_async

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

POLICY = f"""
pools: {{cards: {{evidence: cells}}}}
classes:
  card: {{pool: cards, pod: {{image: "{GPULEASE_IMAGE}"}}, warm: {{pods: 1}}}}
  other: {{pool: cards}}
time_outs: {{idle: 60s, warning: 3s, warm_up: 1s, drain_max: 30s}}
"""
WHERE = "import os; print('at', os.environ['NVIDIA_VISIBLE_DEVICES'], os.environ['HOSTNAME'])"
ONE = tuple(card(number) for number in range(1, 4))


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Site]:
    directory = Path(tempfile.mkdtemp(prefix="warm-", dir=cluster.layout.logs))
    with running_site(cluster, directory, POLICY) as running:
        shipped.apply(cluster.api, shipped.WARM)
        yield running


@pytest.fixture
async def one_card(site: Site) -> AsyncIterator[None]:
    site.cluster.devices(unhealthy=ONE)
    await wait_for_async(lambda: site.allocatable() == 1, LONG, "one device on offer")
    yield
    site.cluster.devices(unhealthy=())
    await wait_for_async(lambda: site.allocatable() == 4, LONG, "every device on offer")


def leased(site: Site) -> list[Object]:
    """Return the pods that are somebody's."""
    return [each for each in site.lease_pods() if labels.LEASE in each["metadata"]["labels"]]


async def test_a_lease_gets_the_pod_that_stands_ready_with_its_servers_variables(
    site: Site,
) -> None:
    async with at_work(site, "ada") as ada:
        await ada.run("kept = list(range(10))")
        pod = await one_ready(site, LONG)
        assert not pod["metadata"].get("ownerReferences")
        cell = await ada.run(f"%%gpu --class card\nkept.append(sum(kept))\n{WHERE}")
        assert seen(cell.text)[1] == pod["metadata"]["name"]
        (claimed,) = leased(site)
        assert claimed["metadata"]["uid"] == pod["metadata"]["uid"]
        owner = claimed["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["name"]) == ("Pod", "jupyter-ada")
        assert claimed["spec"]["activeDeadlineSeconds"] > 0
        # Another one takes its place, and the first goes with its lease: one user, once.
        other = await one_ready(site, LONG)
        assert other["metadata"]["uid"] != pod["metadata"]["uid"]
        assert "home 45" in (await ada.run("%gpu return\nprint('home', kept[-1])")).text
        await ada.watch.wait_for("ended", seconds=LONG)
        await wait_for_async(lambda: not leased(site), LONG, "the lease's pod gone")


@pytest.mark.usefixtures("one_card")
async def test_it_is_given_away_when_another_class_needs_its_device(site: Site) -> None:
    async with at_work(site, "bob") as bob:
        pod = await one_ready(site, LONG)
        cell = await bob.run(f"%%gpu --class other\n{WHERE}")
        assert seen(cell.text)[1] != pod["metadata"]["name"]
        await wait_for_async(lambda: not ready_pods(site), LONG, "no pod beside it")


async def test_the_service_can_make_no_other_pod_its_own(site: Site) -> None:
    """The right to patch pods is for those that it made: the hub's, say, it cannot touch."""
    api = site.cluster.api
    service = api.as_account(shipped.OWN_NAMESPACE, "gpulease")
    async with at_work(site, "cleo"):
        path = f"/api/v1/namespaces/{shipped.HUB_NAMESPACE}/pods/jupyter-cleo"
        marks = {
            labels.NAME: labels.APP,
            labels.COMPONENT: labels.LEASE_COMPONENT,
            labels.INSTANCE: labels.APP,
        }
        for change in ({"annotations": {"x": "y"}}, {"labels": marks}):
            with pytest.raises(ApiError) as refused:
                service.patch(path, {"metadata": change})
            assert refused.value.status in (403, 422)
            assert "gpulease-lease-pods" in refused.value.message
