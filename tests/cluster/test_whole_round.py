"""The whole round on Kubernetes: hub, server pod, websocket, GPU cell, lease pod, reclaim."""

import asyncio
import os
import re
import sys
import time

import pytest

from gpulease.demo.browse import Browser
from testcluster.devices import card
from testcluster.layout import NODE
from testcluster.site import settings
from testcluster.site.people import LONG, Student, at_work
from testcluster.site.site import PASSWORD, Site
from tests.helpers import wait_for_async

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

BUSY_SECONDS = 20.0
CARDS = {card(number) for number in range(4)}
#: What the user leaves on the GPU once the cell is over: use without it would be nobody's.
LEFT = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"
WHERE = "import os; print('at', os.environ['NVIDIA_VISIBLE_DEVICES'], os.environ['HOSTNAME'])"


def seen(text: str) -> tuple[str, str]:
    """Return the device and the host that `WHERE` printed."""
    device, host = re.findall(r"at (\S+) (\S+)", text)[-1]
    return device, host


def verdict(student: Student) -> str:
    assert student.watch.lease is not None
    return str(student.watch.lease["verdict"])


async def test_gpu_comes_to_a_notebook_and_leaves_it_with_all_variables_home(site: Site) -> None:
    async with at_work(site, "ada") as ada:
        assert seen((await ada.run(WHERE)).text) == ("void", "jupyter-ada")
        await ada.run("numbers = list(range(1000))")
        cell = await ada.run(
            f"%%gpu\ntotal = sum(numbers); numbers.append(total)\n"
            f"open('left.txt', 'w').write('from the GPU')\n{WHERE}"
        )
        device, host = seen(cell.text)
        (pod,) = site.lease_pods()
        assert device in CARDS
        assert host == pod["metadata"]["name"]
        assert pod["spec"]["nodeName"] == NODE

        await ada.watch.wait_for("ended", seconds=LONG)
        assert ada.watch.lease is not None
        assert ada.watch.lease["reason"] == "idle"
        await wait_for_async(lambda: not site.lease_pods(), LONG, "the lease pod to be gone")
        home = await ada.run(
            f"print('total', total, len(numbers), open('left.txt').read())\n{WHERE}"
        )
        assert "total 499500 1001 from the GPU" in home.text
        assert seen(home.text) == ("void", "jupyter-ada")


async def test_use_that_the_agent_sees_keeps_a_lease(site: Site) -> None:
    """No cell runs, but the driver sees the card used while a thread of the user's is left there:
    the lease stays until that ends.
    """
    async with at_work(site, "cleo") as cleo:
        device, _ = seen((await cleo.run(f"%%gpu\n{LEFT}\n{WHERE}")).text)
        number = sorted(CARDS).index(device)
        site.driver.set({f"{number}.use": 90})
        try:

            def busy() -> bool:
                assert cleo.watch.follows, "the service's events ended"
                assert verdict(cleo) == "busy", f"{cleo.watch.lease}\n{site.words()}"
                return True

            await wait_for_async(busy, LONG, "the lease to be busy")
            # Longer than it takes an idle lease to go, and than the use that the cell itself was.
            busy_until = time.monotonic() + BUSY_SECONDS
            await wait_for_async(lambda: time.monotonic() > busy_until or not busy(), LONG)
            assert cleo.watch.state == "active"
        finally:
            site.driver.set({f"{number}.use": 0})
        await cleo.watch.wait_for("ended", seconds=LONG)
        assert cleo.watch.lease is not None
        assert cleo.watch.lease["reason"] == "idle"


async def test_two_students_share_the_one_device(site: Site) -> None:
    """The second waits in the queue until the first one's idle lease is reclaimed, then runs."""
    site.cluster.devices(unhealthy=tuple(sorted(CARDS - {card(2)})))
    try:
        await wait_for_async(lambda: site.allocatable() == 1, LONG, "one device on offer")
        async with at_work(site, "ada") as ada, at_work(site, "bob") as bob:
            first = await ada.run(f"%%gpu\nmine = 'from ada'\n{WHERE}")
            assert seen(first.text)[0] == card(2)
            waiting = asyncio.ensure_future(bob.run(f"%%gpu\nmine = 'from bob'\n{WHERE}"))
            await bob.watch.wait_for("queued", seconds=LONG)
            await ada.watch.wait_for("ended", seconds=LONG)
            second = await waiting
            assert seen(second.text)[0] == card(2)
            assert seen(second.text)[1] != seen(first.text)[1]
            assert "mine is from ada" in (await ada.run("print('mine is', mine)")).text
            await bob.watch.wait_for("ended", seconds=LONG)
            assert "mine is from bob" in (await bob.run("print('mine is', mine)")).text
    finally:
        site.cluster.devices(unhealthy=())
    await wait_for_async(lambda: site.allocatable() == 4, LONG, "every device on offer")
    assert not site.lease_pods()


async def admin(site: Site, *words: str) -> str:
    """Run `gpulease admin` as an admin of the hub; return what it says."""
    async with Browser(site.url) as browser:
        await browser.log_in("admin", PASSWORD)
        made = await browser.hub_api("POST", "users/admin/tokens", {"scopes": ["inherit"]})
    where = settings.service_url(site.settings, settings.PREFIX)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gpulease", "admin", "--url", where, *words),
        env=os.environ | {"GPULEASE_TOKEN": str(made["token"])},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(process.communicate(), LONG)
    assert process.returncode == 0, said.decode()
    return said.decode()


async def test_a_drained_node_brings_its_leases_home_and_takes_none(site: Site) -> None:
    """By the policy alone: the node itself is not touched, and others may go there."""
    async with at_work(site, "dora") as dora:
        # Left to itself it would be busy for long.
        await dora.run(f"%%gpu\nkept = 'from the GPU'\n{LEFT}")
        assert dora.watch.lease is not None
        held = str(dora.watch.lease["id"])
        try:
            said = await admin(site, "drain", NODE, "--wait")
            assert f"{NODE} takes nothing new. 1 lease is warned" in said
            assert f"{held}  dora" in said
            assert f"No lease is left on {NODE}." in said
            ended = await dora.watch.wait_for("ended", seconds=LONG)
            assert ended["end"]["reason"] == "forced"
            assert "active -> warned: node_leaving" in await admin(site, "why", held)
            assert "kept from the GPU" in (await dora.run("print('kept', kept)")).text

            again = asyncio.ensure_future(dora.run("%%gpu\nprint('again', kept)"))
            await dora.watch.wait_for("queued", seconds=LONG)
            assert not site.cluster.api.get(f"/api/v1/nodes/{NODE}")["spec"].get("unschedulable")
        finally:
            assert "grants GPUs again" in await admin(site, "undrain", NODE)
        assert "again from the GPU" in (await again).text
        await dora.return_gpu()
