"""Kernels of one server at a real hub: a click, two notebooks, a restart, a kill."""

import asyncio
import os
import signal

import pytest

from tests.browser.demo import RunningDemo
from tests.end_to_end.people import LONG, at_work
from tests.helpers import wait_for_async

#: What %gpu auto sends to the GPU in every environment.
ABOUT = "!nvidia-smi > /dev/null 2>&1\n"
pytestmark = [pytest.mark.site, pytest.mark.timeout(600)]


def test_a_click_runs_cells_about_the_gpu_on_it(demo: RunningDemo):
    async def test():
        async with at_work(demo, "student") as student:
            await student.run("import os\nhome = os.getpid()")
            await student.browser.service_api("POST", "leases", {"server": "", "origin": "page"})
            await student.watch.wait_for("active", seconds=LONG)

            async def away():
                seen = await student.run(f"{ABOUT}print('away' if os.getpid() != home else '')")
                return "away" in seen.text

            await wait_for_async(away, LONG, "cells run on the GPU")
            assert "home" in (await student.run("print('home' * (os.getpid() == home))")).text
            await student.run("%gpu off")
            assert not await away()

    asyncio.run(test())


def test_two_notebooks_of_a_server_share_the_lease(demo: RunningDemo):
    async def test():
        async with at_work(demo, "student") as student:
            await student.run("%%gpu\nx = 'first notebook'")
            held = student.watch.lease["id"]
            kernel_id = await student.browser.start_kernel("second.ipynb")
            async with await student.browser.connect(kernel_id) as second:
                run = await second.execute("%%gpu\nx = 'second notebook'", seconds=LONG)
                assert run.status == "ok", run.error
                assert "second" in (await second.execute("print(x)")).text
            assert "first" in (await student.run("print(x)")).text
            leases = await student.browser.service_api("GET", "leases?state=live")
            assert [each["id"] for each in leases["items"]] == [held]

    asyncio.run(test())


def test_a_killed_companion_ends_the_cell_and_loses_nothing_that_was_home(demo: RunningDemo):
    async def test():
        async with at_work(demo, "student") as student:
            await student.run("kept = [1]")
            away = await student.run("%%gpu\nimport os\nkept.append(2)\nprint('pid', os.getpid())")
            companion = int(away.text.split("pid")[1])
            assert "[1, 2]" in (await student.run("print(kept)")).text

            cell = asyncio.ensure_future(
                student.kernel.execute(
                    "%%gpu\nkept.append(3)\nprint('running')\nwhile True: pass", seconds=LONG
                )
            )

            async def running():
                state = await student.browser.service_api("GET", "leases?state=live")
                return cell.done() or state["items"][0]["utilisation"]

            await wait_for_async(running, LONG, "the cell runs on the GPU")
            os.kill(companion, signal.SIGKILL)
            ended = await cell
            assert ended.status == "error"
            assert "companion" in ended.error.lower()
            # The cell may have changed it: the older value is not passed off as the newest.
            after = await student.kernel.execute("print(kept)", seconds=LONG)
            assert after.status == "error"
            assert "lost" in after.error
            await student.run("%gpu recover kept")
            assert "[1, 2]" in (await student.run("print(kept)")).text
            again = await student.run("%%gpu\nprint('pid', os.getpid())")
            assert int(again.text.split("pid")[1]) != companion

    asyncio.run(test())


#: A notebook that another program runs, in a terminal of the server.
EXECUTED = """
import nbformat, subprocess, sys
cells = [nbformat.v4.new_code_cell(text) for text in ("%%gpu\\nx = 1", "print(x)")]
nbformat.write(nbformat.v4.new_notebook(cells=cells), "alone.ipynb")
command = [sys.executable, "-m", "nbconvert", "--execute", "--to", "notebook", "alone.ipynb"]
print(subprocess.run(command, capture_output=True, text=True).stderr)
print(nbformat.read("alone.nbconvert.ipynb", 4).cells[1].outputs[0].text)
"""


def test_a_notebook_that_nbconvert_executes_takes_its_lease_along(demo: RunningDemo):
    async def test():
        async with at_work(demo, "student") as student:
            ran = await student.run(EXECUTED)
            assert ran.text.strip().endswith("1"), ran.text
            await student.watch.wait_for("ended", seconds=LONG)

    asyncio.run(test())


def test_a_restarted_kernel_keeps_the_lease_and_begins_empty(demo: RunningDemo):
    async def test():
        async with at_work(demo, "student") as student:
            await student.run("%%gpu\nvalue = 1")
            held = student.watch.lease["id"]
            (kernel,) = await student.browser.server_api("GET", "kernels")
            await student.browser.server_api("POST", f"kernels/{kernel['id']}/restart")
            async with await student.browser.connect(kernel["id"]) as kernel_again:
                gone = await kernel_again.execute(
                    "%%gpu\nprint('value' in globals())", seconds=LONG
                )
                assert gone.status == "ok", gone.error
                assert "False" in gone.text
            assert student.watch.lease["id"] == held
            assert student.watch.state == "active"

    asyncio.run(test())
