"""A lease pod whose service is gone keeps to its granted end, and brings everything home."""

from collections.abc import Iterator

import pytest

from testcluster.cluster import Cluster
from testcluster.site.people import LONG, at_work
from testcluster.site.site import Site, running_site
from tests.helpers import wait_for_async

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

POLICY = """
pools:
  cards: {evidence: cells}
classes:
  card:
    pool: cards
    pod: {kind: device_plugin}
time_outs:
  {idle: 10m, idle_under_pressure: 10m, quiet: 20m, warning: 3s, drain_max: 30s, hard_length: 40s}
"""


@pytest.fixture(scope="module")
def short(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site whose leases last 40 seconds at most."""
    with running_site(cluster, tmp_path_factory.mktemp("short"), POLICY) as running:
        yield running


async def test_a_pod_whose_service_is_gone_ends_when_it_was_granted_to(short: Site) -> None:
    site = short
    async with at_work(site, "nora") as nora:
        await nora.run("%%gpu\nkept = list(range(1000))")
        (pod,) = site.lease_pods()
        site.kill("service")
        path = pod["metadata"]["namespace"], pod["metadata"]["name"]

        def phase() -> str:
            return str(site.cluster.api.pod(*path)["status"]["phase"])

        # The kubelet may say so only after the cell has run.
        await wait_for_async(lambda: phase() == "Running", LONG, "the pod to run on")
        await wait_for_async(lambda: phase() == "Succeeded", LONG, "the pod to end by itself")
        assert "ended: expired" in site.cluster.api.logs(*path)
        assert "kept 1000" in (await nora.run("print('kept', len(kept))")).text
        site.start("service")
        await wait_for_async(lambda: not site.lease_pods(), LONG, "the ended pod to be collected")
        assert (
            "again 1001"
            in (await nora.run("%%gpu\nkept.append(1)\nprint('again', len(kept))")).text
        )
