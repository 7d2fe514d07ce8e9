"""An administrator at a terminal, with a token of the hub: list leases, end one with a reason."""

import asyncio
import os
import subprocess
import sys

import pytest

from gpulease.demo.browse import Browser
from tests.browser.demo import RunningDemo
from tests.end_to_end.people import LONG, at_work

pytestmark = [pytest.mark.site, pytest.mark.timeout(600)]


def gpulease(demo: RunningDemo, token: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpulease", "admin", "--url", demo.service, *words],
        env={**os.environ, "GPULEASE_TOKEN": token},
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG,
    )


async def token_of(demo: RunningDemo, name: str) -> str:
    async with Browser(demo.url) as browser:
        await browser.log_in(name, name)
        made = await browser.hub_api("POST", f"users/{name}/tokens", {"scopes": ["inherit"]})
        return str(made["token"])


def test_list_and_end_with_a_reason_that_the_student_reads(demo: RunningDemo):
    async def test():
        admin, other = await token_of(demo, "admin"), await token_of(demo, "student2")
        async with at_work(demo, "student") as student:
            await student.run("%%gpu\nvalue = 1")
            held = student.watch.lease["id"]

            listed = await asyncio.to_thread(gpulease, demo, admin, "list")
            assert listed.returncode == 0, listed.stderr
            assert held in listed.stdout
            assert "student" in listed.stdout

            end = ("end", held, "--reason", "Maintenance at 15:00")
            refused = await asyncio.to_thread(gpulease, demo, other, *end)
            assert refused.returncode == 2
            assert held not in (await asyncio.to_thread(gpulease, demo, other, "list")).stdout

            done = await asyncio.to_thread(gpulease, demo, admin, *end)
            assert done.returncode == 0, done.stderr
            lease = await student.watch.wait_for("ended", seconds=LONG)
            assert lease["end"]["reason"] == "forced"
            assert "Maintenance at 15:00" in lease["end"]["note"]
            assert "1" in (await student.run("print(value)")).text

    asyncio.run(test())


def test_what_a_demo_writes_is_nobody_elses(demo: RunningDemo):
    ours = "said.log"
    written = [x for x in demo.directory.iterdir() if x.is_file() and x.name != ours]
    assert {"demo.log", "jupyterhub.sqlite", "gpulease.sqlite"} <= {each.name for each in written}
    assert [each.name for each in written if each.stat().st_mode & 0o077] == []
