"""A whole round of two releases of the hub's chart, on the GPUs of one service.

gpulease's chart makes the second one's rights, token and settings, and prints its values.
"""

import asyncio
import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpulease.protocol import labels
from testcluster import own_chart
from testcluster.api import Object, path_of
from testcluster.cluster import Cluster
from testcluster.pods import delete_namespace, new_namespace
from testcluster.site.chart import ChartSite, charted_site, further_hub
from testcluster.site.people import LONG, Student, at_work
from tests.cluster.test_chart import CELLS, label_node
from tests.helpers import wait_for_async
from tests.hub import chart

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.nightly,  # test_several_hubs.py shows it each time, without the chart
    pytest.mark.timeout(600),
    chart.needs_chart,
]

LAB = "lab2"
#: The second hub has the first one's ports, at an address of its own.
ADDRESS = "198.18.0.2"
FURTHER: dict[str, Any] = {"furtherHubs": {LAB: {}}}
POLICY = f"{CELLS}projects:\n  {LAB}: {{group: {LAB}/, pools: {{cards: {{limit: 1}}}}}}\n"


@dataclass(frozen=True)
class Campus:
    """Both hubs; the service is the first one's."""

    first: ChartSite
    second: ChartSite


@pytest.fixture
def campus(cluster: Cluster) -> Iterator[Campus]:
    directory = Path(tempfile.mkdtemp(prefix="hubs-", dir=cluster.layout.logs))
    one, other = (directory / name for name in ("first", "second"))
    one.mkdir()
    other.mkdir()
    new_namespace(cluster.api, LAB)
    with contextlib.ExitStack() as made:
        made.callback(tidy, cluster)
        subprocess.run(["ip", "address", "add", f"{ADDRESS}/32", "dev", "cni0"], check=True)
        made.callback(
            subprocess.run, ["ip", "address", "delete", f"{ADDRESS}/32", "dev", "cni0"], check=True
        )
        label_node(cluster, "user")
        made.callback(label_node, cluster, None)
        for each in wide_rights():
            cluster.api.ensure(each)
        first = charted_site(cluster, one, chart.Install(given=FURTHER), POLICY)
        site = made.enter_context(first)
        install = chart.Install(release=LAB, namespace=LAB)
        ours = own_chart.hub_values(FURTHER, hub=LAB)
        second = further_hub(cluster, other, install, ours, ADDRESS)
        yield Campus(site, made.enter_context(second))


def tidy(cluster: Cluster) -> None:
    """Remove what the chart made for several namespaces."""
    for each in wide_rights():
        cluster.api.remove(path_of(each))
    delete_namespace(cluster.api, LAB)


def wide_rights() -> list[Object]:
    """Return what the service needs to see the events of more than one namespace."""
    found = own_chart.render(FURTHER)
    return [each for path, each in found if path == "user-namespaces/service.yaml"]


async def test_namesakes_of_two_releases_compute_apart_and_give_back(campus: Campus) -> None:
    """Hub, server, GPU cell, reclaim, for ada of each hub at the same time."""
    first, second = campus.first, campus.second
    async with at_work(first, "ada") as ours, at_work(second, "ada") as theirs:
        await ours.run("numbers = list(range(1000))")
        await theirs.run("numbers = list(range(2000))")
        await asyncio.gather(*(each.run("%%gpu\ntotal = sum(numbers)") for each in (ours, theirs)))
        pods = {each["metadata"]["namespace"]: each for each in first.lease_pods()}
        assert pods.keys() == {first.install.namespace, LAB}
        users = {
            space: each["metadata"]["annotations"][labels.USER] for space, each in pods.items()
        }
        assert users == {first.install.namespace: "ada", LAB: f"{LAB}/ada"}
        for space, each in pods.items():
            (owner,) = each["metadata"]["ownerReferences"]
            assert first.cluster.api.pod(space, owner["name"])["metadata"]["uid"] == owner["uid"]
        assert await seen_by(ours) == {"ada"}
        assert await seen_by(theirs) == {f"{LAB}/ada"}
        for person in (ours, theirs):
            await person.watch.wait_for("ended", seconds=LONG)
            assert person.watch.lease is not None
            assert person.watch.lease["reason"] == "idle"
        await wait_for_async(lambda: not first.lease_pods(), LONG, "the lease pods to be gone")
        assert "total 499500" in (await ours.run("print('total', total)")).text
        assert "total 1999000" in (await theirs.run("print('total', total)")).text


async def seen_by(student: Student) -> set[str]:
    """Return whose leases somebody sees."""
    found = await student.browser.service_api("GET", "leases?state=live")
    return {each["user"] for each in found["items"]}
