"""Whole rounds under the chart's own hub configuration: server, GPU cell, reclaim."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testcluster.cluster import Cluster
from testcluster.pods import delete_namespace
from testcluster.site import shipped
from testcluster.site.chart import ChartSite, charted_site
from testcluster.site.people import LONG, at_work
from tests.cluster.conftest import POLICY
from tests.helpers import wait_for_async
from tests.hub import chart

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), chart.needs_chart]

CELLS = POLICY.replace("evidence: process", "evidence: cells")


@pytest.fixture
def charted(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[ChartSite]:
    """A site of the install that the test names."""
    directory = Path(tempfile.mkdtemp(prefix="chart-", dir=cluster.layout.logs))
    install = chart.INSTALLS[request.param]
    try:
        with charted_site(cluster, directory, install, CELLS) as running:
            yield running
    finally:
        if install.namespace != shipped.HUB_NAMESPACE:
            delete_namespace(cluster.api, install.namespace)


@pytest.mark.parametrize("charted", ["defaults", "https manual", "all names"], indirect=True)
async def test_a_gpu_comes_and_goes(charted: ChartSite) -> None:
    """With the init container of the chart, its user scheduler, its names and its address."""
    site = charted
    async with at_work(site, "ada") as ada:
        await ada.run("numbers = list(range(1000))")
        cell = await ada.run(
            "%%gpu\ntotal = sum(numbers)\nimport os; print(os.environ['HOSTNAME'])"
        )
        (lease,) = site.lease_pods()
        assert lease["metadata"]["name"] in cell.text
        assert lease["metadata"]["namespace"] == site.install.namespace
        (owner,) = lease["metadata"]["ownerReferences"]
        server = site.cluster.api.pod(site.install.namespace, owner["name"])
        assert [each["name"] for each in server["status"]["initContainerStatuses"]] == [
            "block-cloud-metadata"
        ]
        assert server["spec"]["schedulerName"].endswith("user-scheduler")
        reached = f"http://gpulease.{shipped.OWN_NAMESPACE}:9980{site.base}services/gpulease/"
        assert reached in json.dumps(server["spec"]["containers"])
        assert reached in json.dumps(lease["spec"]["containers"])

        await ada.watch.wait_for("ended", seconds=LONG)
        assert ada.watch.lease is not None
        assert ada.watch.lease["reason"] == "idle"
        await wait_for_async(lambda: not site.lease_pods(), LONG, "the lease pod to be gone")
        assert "total 499500" in (await ada.run("print('total', total)")).text
