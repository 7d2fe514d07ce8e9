"""Whole rounds under the chart's own hub configuration: server, GPU cell, reclaim.

The chart's defaults each time, the other ways at night: each is rendered, configured and put
through guard and API server in the shorter suites.
"""

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpulease.demo.browse import Browser
from testcluster.cluster import Cluster
from testcluster.images import GPULEASE_IMAGE
from testcluster.pods import delete_namespace
from testcluster.site import shipped
from testcluster.site.chart import ChartSite, charted_site
from testcluster.site.people import LONG, at_work
from tests.cluster.conftest import POLICY
from tests.helpers import wait_for_async
from tests.hub import chart

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), chart.needs_chart]

AT_NIGHT = ("https manual", "all names", "a namespace for each user")
WHOLE_ROUNDS = ("defaults", *(pytest.param(each, marks=pytest.mark.nightly) for each in AT_NIGHT))
NODE = "/api/v1/nodes/node1"
#: The course's images are this cluster's one, and its culler is in a hurry.
COURSE = replace(
    chart.INSTALLS["a course"],
    values=json.loads(
        json.dumps(
            chart.COURSE | {"cull": {"timeout": 60, "every": 2, "adminUsers": False}}
        ).replace(chart.COURSE_IMAGE, GPULEASE_IMAGE)
    ),
)
CELLS = POLICY.replace("evidence: process", "evidence: cells")


@pytest.fixture
def charted(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[ChartSite]:
    """A site of the install that the test names."""
    directory = Path(tempfile.mkdtemp(prefix="chart-", dir=cluster.layout.logs))
    install = COURSE if request.param == "a course" else chart.INSTALLS[request.param]
    label_node(cluster, "user")
    try:
        with charted_site(cluster, directory, install, CELLS) as running:
            yield running
    finally:
        label_node(cluster, None)
        if install.servers:
            delete_namespace(cluster.api, "jupyter-ada")
            shipped.remove(cluster.api, shipped.USER_NAMESPACES)
        if install.namespace != shipped.HUB_NAMESPACE:
            delete_namespace(cluster.api, install.namespace)


def label_node(cluster: Cluster, purpose: str | None) -> None:
    labels = {"hub.jupyter.org/node-purpose": purpose}
    cluster.api.patch(NODE, {"metadata": {"labels": labels}})


@pytest.mark.parametrize("charted", WHOLE_ROUNDS, indirect=True)
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
        space = site.namespace_of("ada")
        assert lease["metadata"]["namespace"] == space
        (owner,) = lease["metadata"]["ownerReferences"]
        server = site.cluster.api.pod(space, owner["name"])
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


@asynccontextmanager
async def seen_active(browser: Browser) -> AsyncIterator[None]:
    """Let the hub hear of somebody again and again: the culler does not know a slow machine."""
    over = asyncio.Event()

    async def tell() -> None:
        while not over.is_set():
            now = {"last_activity": datetime.now(UTC).isoformat()}
            await browser.hub_api("POST", f"users/{browser.user}/activity", {"servers": {"": now}})
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), 5)

    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        over.set()
        await telling


@pytest.mark.nightly
@pytest.mark.parametrize("charted", ["a course"], indirect=True)
async def test_in_a_course_the_lease_goes_first_and_the_culled_server_after_it(
    charted: ChartSite,
) -> None:
    """An idle lease ends by our policy; its idle server, later, by the chart's own culler."""
    site, space = charted, charted.install.namespace
    async with at_work(site, "ada") as ada:
        async with seen_active(ada.browser):
            await ada.run("numbers = list(range(1000))")
            await ada.run("%%gpu\ntotal = sum(numbers)")
            (lease,) = site.lease_pods()
            (owner,) = lease["metadata"]["ownerReferences"]
            server = site.cluster.api.pod(space, owner["name"])
            began = [each["name"] for each in server["status"]["initContainerStatuses"]]
            assert began == ["course-files", "block-cloud-metadata"]
            assert [each["name"] for each in server["spec"]["containers"]] == ["notebook", "data"]
            assert server["spec"]["priorityClassName"] == "jupyterhub-default-priority"
            # What runs beside a notebook stays beside it, and so do its class and its settings.
            assert [each["name"] for each in lease["spec"]["containers"]] == ["companion"]
            assert lease["spec"]["priorityClassName"] == "gpulease-lease"

            await ada.watch.wait_for("ended", seconds=LONG)
            assert ada.watch.lease is not None
            assert ada.watch.lease["reason"] == "idle"
            assert "total 499500" in (await ada.run("print('total', total)")).text
            server_path = f"/api/v1/namespaces/{space}/pods/{owner['name']}"
            assert site.cluster.api.find(server_path) is not None

        def culled() -> bool:
            return site.cluster.api.find(server_path) is None

        await wait_for_async(culled, LONG, "the chart's culler to end the server")
        log = await asyncio.to_thread(site.log("hub").read_text, encoding="utf-8")
        assert "Culling server ada" in log
