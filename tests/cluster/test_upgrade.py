"""The release is upgraded while people use their GPUs: service, agent, hub and images at once."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from testcluster.cluster import Cluster
from testcluster.images import GPULEASE_IMAGE
from testcluster.site.people import LONG, Student, at_work
from testcluster.site.site import Site, running_site
from tests.helpers import wait_for_async

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

NEW_IMAGE = GPULEASE_IMAGE.replace(":1", ":2")
#: What the upgrade replaces; the proxy stays, so notebooks go on meanwhile.
REPLACED = ("agent", "service", "hub")
#: Nothing of this test may go for being idle.
POLICY = """
pools:
  cards: {evidence: process}
classes:
  card: {pool: cards, pod: {kind: device_plugin}}
time_outs: {idle: 1h, quiet: 1h, drain_max: 30s}
"""
UNTIL_TOLD = """%%gpu
import os, time
open('runs.txt', 'w').close()
while not os.path.exists('go.txt'):
    time.sleep(0.1)
made = 'by a cell that ran on'"""


@pytest.fixture
def site(cluster: Cluster, tmp_path: Path) -> Iterator[Site]:
    with running_site(cluster, tmp_path, POLICY) as running:
        yield running


def images(site: Site) -> dict[str, tuple[str, str]]:
    """Return identity and image of each lease pod, by its lease's user."""
    return {
        each["metadata"]["annotations"]["gpulease/user"]: (
            each["metadata"]["uid"],
            each["spec"]["containers"][0]["image"],
        )
        for each in site.lease_pods()
    }


async def runs(student: Student) -> bool:
    """Whether a student's cell is there."""
    home = await student.browser.server_api("GET", "contents")
    return any(each["name"] == "runs.txt" for each in home["content"])


async def tell(student: Student) -> None:
    """Write a file into a student's home, as their file browser does."""
    text = {"type": "file", "format": "text", "content": "go"}
    await student.browser.server_api("PUT", "contents/go.txt", text)


def name_new_images(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert GPULEASE_IMAGE in text
    path.write_text(text.replace(GPULEASE_IMAGE, NEW_IMAGE), encoding="utf-8")


async def test_leases_go_on_through_an_upgrade_and_new_servers_have_the_new_image(
    site: Site,
) -> None:
    site.cluster.load_images(tag="2")
    async with at_work(site, "uma") as uma, at_work(site, "vic") as vic:
        await uma.run("%%gpu\nkept = 'from before'")
        running = asyncio.ensure_future(vic.run(UNTIL_TOLD))
        await wait_for_async(lambda: runs(vic), LONG, "the cell to run", every=0.5)
        before = images(site)
        assert set(before) == {"uma", "vic"}

        for name in REPLACED:
            site.kill(name, signal.SIGTERM)
        name_new_images(site.settings.directory / "jupyterhub_config.py")
        await tell(vic)  # its cell ends while nobody is there to see it
        await running
        assert "made by a cell that ran on" in (await vic.run("print('made', made)")).text
        for name in reversed(REPLACED):
            site.start(name)

        assert "kept from before" in (await uma.run("%%gpu\nprint('kept', kept)")).text
        assert images(site) == before, "no lease was ended or begun anew"
        await vic.run("%gpu return")
        await wait_for_async(lambda: "vic" not in images(site), LONG, "the pod to be gone")
        await vic.run("%%gpu\nagain = made")
        assert images(site)["vic"][1] == GPULEASE_IMAGE, "as its server, until that starts anew"
        async with at_work(site, "wim") as wim:
            await wim.run("%%gpu\nprint('hello')")
            assert images(site)["wim"][1] == NEW_IMAGE
