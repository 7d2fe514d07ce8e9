"""A lease's life with real processes: open, run, refuse, die, drain, end."""

import asyncio
import os
import re
import signal
import sys
from datetime import UTC, datetime, timedelta

import pytest

from gpulease.companion.tree import lease_processes
from tests.companion.parts import LEASE_ID, Cells, closing, leased
from tests.helpers import process_is_gone, wait_for_async

pytestmark = pytest.mark.processes


def _soon(seconds=20):
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def test_a_cell_runs_under_homes_count_directory_and_environment(tmp_path):
    async def test():
        async with leased() as (_, _lease, home):
            answer = await home.open(
                "k1",
                cwd=str(tmp_path),
                environ={"COURSE": "cs101", "API_TOKEN": "x", "CUDA_VISIBLE_DEVICES": "7"},
                packages={"tornado": "0.1", "nosuchpackage": "1"},
            )
            opened = answer["ok"]
            assert opened["fresh"] is True
            assert len(opened["warnings"]) == 2
            with closing(Cells(opened["connection"], home)) as cells:
                await cells.ready()
                reply = await cells.run("1/0", count=42)
                assert reply["execution_count"] == 42
                plain = re.sub(r"\x1b\[[0-9;]*m", "", "".join(reply["traceback"]))
                assert "Cell In[42]" in plain
                shown = await cells.text(
                    "import os; print(os.getcwd(), os.environ.get('COURSE'),"
                    " os.environ.get('API_TOKEN'), repr(os.environ['CUDA_VISIBLE_DEVICES']),"
                    " os.environ['GPULEASE_LEASE'])"
                )
                assert shown.split() == [str(tmp_path), "cs101", "None", "''", LEASE_ID]
            again = (await home.open("k1"))["ok"]
            assert (again["fresh"], again["pid"]) == (False, opened["pid"])

    asyncio.run(test())


def test_what_does_not_fit_is_refused_with_the_way_out():
    async def test():
        async with leased() as (_, _lease, home):
            minor = f"{sys.version_info[0]}.{sys.version_info[1] + 1}.0"
            python = (await home.open("k1", python=minor))["problem"]
            assert python["reason"] == "python_mismatch"
            assert "minor version" in python["next_step"]
            protocol = (await home.open("k1", protocol="99.0"))["problem"]
            assert protocol["reason"] == "protocol_mismatch"
            lacking = (await home.call("open", kernel_id="k1"))["problem"]
            assert lacking["reason"] == "malformed"
            assert (await home.open("k1"))["ok"]["fresh"] is True

    asyncio.run(test())


def test_an_environment_without_gpulease_is_told_to_install_it(tmp_path):
    async def test():
        bare = tmp_path / "python"
        bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
        bare.chmod(0o755)
        async with leased() as (_, _lease, home):
            problem = (await home.open("k1", executable=str(bare)))["problem"]
            assert problem["reason"] == "gpulease_missing"
            assert "Install gpulease" in problem["next_step"]

    asyncio.run(test())


def test_a_broken_environment_is_named_with_its_cause(tmp_path):
    async def test():
        broken = tmp_path / "broken"
        (broken / "ipykernel").mkdir(parents=True)
        (broken / "ipykernel/__init__.py").write_text("raise ImportError('libfoo.so.3: missing')")
        python = tmp_path / "python"
        python.write_text(f'#!/bin/sh\nPYTHONPATH={broken} exec {sys.executable} "$@"\n')
        python.chmod(0o755)
        async with leased() as (_, _lease, home):
            problem = (await home.open("k1", executable=str(python)))["problem"]
            assert problem["reason"] == "companion_failed"
            assert "libfoo.so.3: missing" in problem["title"]
            assert "Install gpulease" not in problem["next_step"]

    asyncio.run(test())


def test_a_companion_that_is_killed_while_it_starts_blames_no_environment(tmp_path):
    async def test():
        python, begun = tmp_path / "python", tmp_path / "begun"
        python.write_text(  # the first one is killed, as by a limit of memory
            f"#!/bin/sh\n[ -e {begun} ] || {{ touch {begun}; kill -9 $$; }}\n"
            f'exec {sys.executable} "$@"\n'
        )
        python.chmod(0o755)
        async with leased() as (_, _lease, home):
            problem = (await home.open("k1", executable=str(python)))["problem"]
            assert problem["reason"] == "companion_failed"
            assert problem["title"] == "The companion was ended while it started."
            assert "Run the cell again" in problem["next_step"]
            assert (await home.open("k1", executable=str(python)))["ok"]["fresh"] is True

    asyncio.run(test())


def test_a_notebook_that_comes_back_while_its_companion_ends_gets_another():
    async def test():
        async with leased() as (_, _lease, home):
            opened = (await home.open("k1"))["ok"]
            with closing(Cells(opened["connection"], home)) as cells:
                await cells.ready()  # it needs a moment to end
                closed, again = await asyncio.gather(
                    home.call("close", kernel_id="k1"), home.open("k1")
                )
            assert closed["ok"] is True
            assert (again["ok"]["fresh"], again["ok"]["pid"] != opened["pid"]) == (True, True)

    asyncio.run(test())


def test_a_dead_companion_is_told_and_the_next_open_is_fresh():
    async def test():
        async with leased() as (_, _lease, home):
            opened = (await home.open("k1"))["ok"]
            with closing(Cells(opened["connection"], home)) as cells:
                await cells.ready()
                cells.begin("while True: pass")
                os.kill(opened["pid"], signal.SIGKILL)
                died = await home.pushed("companion_died")
            assert (died["kernel_id"], "SIGKILL" in died["detail"]) == ("k1", True)
            again = (await home.open("k1"))["ok"]
            assert again["fresh"] is True
            assert again["pid"] != opened["pid"]

    asyncio.run(test())


def test_nothing_that_a_cell_started_outlives_the_lease():
    async def test():
        async with leased() as (service, lease, home):
            opened = (await home.open("k1"))["ok"]
            with closing(Cells(opened["connection"], home)) as cells:
                await cells.ready()
                shown = await cells.text(
                    "import subprocess\n"
                    "a = subprocess.Popen(['setsid', 'sleep', '600'])\n"
                    "b = subprocess.Popen(['setsid', 'env', '-i', '/bin/sleep', '600'])\n"
                    "c = subprocess.Popen(['sh', '-c', 'trap \"\" TERM; sleep 600 & wait'])\n"
                    "print(a.pid, b.pid, c.pid)"
                )
                strays = [int(pid) for pid in shown.split()]
            assert not any(process_is_gone(pid) for pid in strays)
            service.tell({"type": "end", "reason": "returned"})
            assert (await home.pushed("end"))["reason"] == "returned"
            assert await lease.ended() == 0
            assert all(process_is_gone(pid) for pid in [*strays, opened["pid"]])
            assert lease_processes({LEASE_ID}) == set()
            await wait_for_async(lambda: service.of_type("bye"))
            assert service.of_type("bye")[0]["reason"] == "ended"

    asyncio.run(test())


def test_closing_one_kernel_ends_what_it_started_and_leaves_the_other():
    async def test():
        async with leased() as (_, _lease, home):
            first, second = (await home.open("k1"))["ok"], (await home.open("k2"))["ok"]
            with closing(Cells(first["connection"], home)) as cells:
                await cells.ready()
                stray = int(
                    await cells.text(
                        "import subprocess\nprint(subprocess.Popen(['setsid', 'sleep', '600']).pid)"
                    )
                )
            await home.call("close", kernel_id="k1")
            assert process_is_gone(first["pid"])
            await wait_for_async(lambda: process_is_gone(stray))
            assert not process_is_gone(second["pid"])

    asyncio.run(test())


def test_closing_a_kernel_leaves_another_leases_kernel_of_the_same_name():
    """Kernel ids are names of connection files: two leases on a machine may have the same."""

    async def test():
        async with (
            leased() as (_, _lease, home),
            leased(lease_id=f"{LEASE_ID}-other") as (_, _other, neighbour),
        ):
            await home.open("k1")
            opened = (await neighbour.open("k1", hash_seed="7"))["ok"]
            with closing(Cells(opened["connection"], neighbour)) as cells:
                await cells.ready()
                code = "import subprocess; print(subprocess.Popen(['setsid', 'sleep', '600']).pid)"
                child = int(await cells.text(code))
            assert (await home.call("close", kernel_id="k1"))["ok"] is True
            assert not process_is_gone(opened["pid"])
            assert not process_is_gone(child)

    asyncio.run(test())


def test_interrupts_reach_a_loop_and_an_awaiting_cell():
    async def test():
        async with leased() as (_, _lease, home):
            opened = (await home.open("k1"))["ok"]
            with closing(Cells(opened["connection"], home)) as cells:
                await cells.ready()
                for code in ("while True: pass", "import asyncio; await asyncio.sleep(600)"):
                    msg_id = cells.begin("print('begun', flush=True)\n" + code)
                    while True:
                        message = await cells.client.get_iopub_msg(timeout=60)
                        if message["msg_type"] == "stream":
                            break
                    assert (await home.call("interrupt", kernel_id="k1"))["ok"] is True
                    reply = await cells.reply(msg_id)
                    assert reply["ename"] in ("KeyboardInterrupt", "CancelledError")

    asyncio.run(test())


def test_a_drain_waits_for_home_and_interrupts_what_runs():
    async def test():
        async with leased() as (service, _lease, home):
            opened = (await home.open("k1"))["ok"]
            with closing(Cells(opened["connection"], home)) as cells:
                await cells.ready()
                msg_id = cells.begin("import time; time.sleep(600)")
                await service.cell_seen()
                service.tell({"type": "drain", "until": _soon(), "reason": "idle", "park": False})
                assert (await home.pushed("drain"))["reason"] == "idle"
                assert (await cells.reply(msg_id))["ename"] == "KeyboardInterrupt"
                refused = (await home.open("k2"))["problem"]
                assert refused["reason"] == "draining"
                assert service.of_type("drained") == []
                await home.call("drained", kernel_id="k1", result="done", blockers=[])
                await wait_for_async(lambda: service.of_type("drained"))
                assert service.of_type("drained")[0]["result"] == "done"

    asyncio.run(test())


def test_a_blocked_drain_names_the_blocker_and_a_silent_home_is_named_too():
    async def test():
        async with leased() as (service, _lease, home):
            await home.open("k1")
            service.tell({"type": "drain", "until": _soon(), "reason": "idle", "park": False})
            await home.pushed("drain")
            blocker = {"name": "g", "reason": "generator", "sentence": "g cannot.", "size": None}
            await home.call("drained", kernel_id="k1", result="blocked", blockers=[blocker])
            await wait_for_async(lambda: service.of_type("drained"))
            said = service.of_type("drained")[0]
            assert (said["result"], said["blockers"]) == ("blocked", [blocker])
            service.tell({"type": "resume"})
            await home.pushed("resume")
            service.tell({"type": "drain", "until": _soon(0.5), "reason": "idle", "park": False})
            await wait_for_async(lambda: len(service.of_type("drained")) == 2)
            assert service.of_type("drained")[1]["blockers"][0]["reason"] == "home_silent"

    asyncio.run(test())


def test_a_drain_of_an_empty_lease_is_done_at_once():
    async def test():
        async with leased() as (service, _lease, _home):
            service.tell({"type": "drain", "until": _soon(), "reason": "returned", "park": True})
            await wait_for_async(lambda: service.of_type("drained"))
            assert service.of_type("drained")[0]["result"] == "done"

    asyncio.run(test())
