"""A lab on Kubernetes: who is there before leaves for it, and its people's pods have its image."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from gpulease.demo.browse import Browser
from testcluster.cluster import Cluster
from testcluster.site.people import LONG, at_work
from testcluster.site.site import PASSWORD, Site, running_site

#: Another build of the students' image.
TAG = "course"
IMAGE = f"local.test/gpulease:{TAG}"
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

POLICY = f"""
pools:
  cards: {{evidence: cells}}
classes:
  card:
    pool: cards
    pod: {{kind: device_plugin}}
time_outs:
  {{idle: 10m, quiet: 20m, warning: 3s, drain_max: 20s, interrupt_grace: 0, minimum_runtime: 0}}
reservations:
  lead: 5s
  groups:
    cs101: {{image: "{IMAGE}"}}
"""


@pytest.fixture(scope="module")
def school(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site with a course that has an image of its own."""
    cluster.load_images(tag=TAG)
    with running_site(cluster, tmp_path_factory.mktemp("school"), POLICY) as running:
        yield running


async def test_a_lab_gets_every_card_in_time_with_the_courses_image_and_ends_early(
    school: Site,
) -> None:
    site = school
    async with (
        Browser(site.url) as admin,
        at_work(site, "ana") as ana,
        at_work(site, "tom") as tom,
    ):
        await admin.log_in("admin", PASSWORD)
        await admin.open_service()
        await tom.run("%%gpu\nmine = 1")
        (before,) = site.lease_pods()
        # The hub learns of the roster as from an LMS, after ana's server was started.
        await admin.hub_api("POST", "groups/cs101", {})
        await admin.hub_api("POST", "groups/cs101/users", {"users": ["ana"]})
        start = (datetime.now(UTC) + timedelta(seconds=60)).replace(tzinfo=None, microsecond=0)
        lab = {
            "name": "lab", "group": "cs101", "gpu_class": "card", "seats": 4, "zone": "UTC",
            "start": start.isoformat(), "end": (start + timedelta(hours=1)).isoformat(),
        }  # fmt: skip
        made = await admin.service_api("POST", "reservations", lab)
        assert made["image"] == IMAGE

        left = await tom.watch.wait_for("ended", seconds=LONG)
        assert left["end"]["reason"] == "preempted"
        await ana.run("%%gpu\nmine = 2")
        # Tom's pod may still be going.
        uid = before["metadata"]["uid"]
        (pod,) = (each for each in site.lease_pods() if each["metadata"]["uid"] != uid)
        images = [each["spec"]["containers"][0]["image"] for each in (before, pod)]
        assert images[0] != IMAGE
        assert images[1] == IMAGE

        waiting = asyncio.ensure_future(tom.run("%%gpu\nprint('mine', mine + 1)"))
        await tom.watch.wait_for("queued", seconds=LONG)
        over = {"window": {"at": made["windows"][0]["at"], "cancelled": True}}
        if datetime.now(UTC).replace(tzinfo=None) > start:
            over = {"window": {"end_now": True}}
        await admin.service_api("PATCH", f"reservations/{made['id']}", over)
        assert "mine 2" in (await waiting).text
        assert "mine 2" in (await ana.run("print('mine', mine)")).text
        assert len(site.lease_pods()) == 2, "nobody needs ana's card"
