"""The supervisor's process: started ahead, orphaned, killed, by hand."""

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from gpulease.companion.tree import lease_processes, marked
from gpulease.system.process_table import parse_stat
from tests.companion.parts import (
    LEASE_ID,
    RUN,
    Cells,
    Home,
    Lease,
    LeaseService,
    closing,
    config,
    leased,
    proc_file,
)
from tests.helpers import process_is_gone, wait_for, wait_for_async

pytestmark = pytest.mark.processes


async def _prepared(pid):
    """Wait until the supervisor started ahead has its companion process at rest."""

    return await wait_for_async(
        lambda: lease_processes({f"standby-{RUN}"}) - {pid}, 60, "the process started ahead"
    )


def test_a_supervisor_says_hello_before_it_imports_what_only_an_opening_needs():
    late = {"jupyter_client", "ipykernel"}
    code = f"import sys, gpulease.companion.run; print({late} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_supervisor_started_ahead_is_bound_within_a_second_and_takes_the_mark():
    async def test():
        service = LeaseService()
        lease = Lease("--standby", mark=f"standby-{RUN}")
        home = None
        try:
            (companion,) = await _prepared(lease.pid)
            assert b"CUDA_VISIBLE_DEVICES" not in proc_file(companion, "environ")
            # "Prepared" is told on a private line; imports are over when CPU time stands still.
            await wait_for_async(lambda: _at_rest(companion), 60, "imports done")
            before = _cpu_seconds(lease.pid) + _cpu_seconds(companion)
            lease.tell(config(service.url, f"lease-{RUN}-9"))
            hello = await service.hello()
            home = Home(hello["address"], hello["public_key"])
            service.tell({"type": "admit", "client_key": home.public, "kernel_id": "k1"})
            opened = (await home.open("k1"))["ok"]
            with closing(Cells(opened["connection"], home)) as cells:
                await cells.ready()
                assert (await cells.text("print(1)")).strip() == "1"
                took = _cpu_seconds(lease.pid) + _cpu_seconds(companion) - before
            assert opened["pid"] == companion
            # Of the processor, which a busy machine only makes it wait for.
            assert took < 2.0  # well below one second on a machine that is not busy
            assert marked({f"lease-{RUN}-9"}) == {lease.pid, companion}
            assert marked({f"standby-{RUN}"}) == set()
        finally:
            if home is not None:
                home.close()
            lease.clean_up()
            await service.stop()

    asyncio.run(test())


_last_cpu: dict[int, tuple[int, float]] = {}


def _cpu_seconds(pid):
    return parse_stat(proc_file(pid, "stat").decode()).cpu / os.sysconf("SC_CLK_TCK")


def _at_rest(pid):
    """CPU time unchanged for 0.3 s."""
    used, now = _cpu_seconds(pid), time.monotonic()
    known = _last_cpu.get(pid)
    if known is None or known[0] != used:
        _last_cpu[pid] = (used, now)
        return False
    return now - known[1] > 0.3


def test_a_supervisor_started_ahead_ends_when_its_server_closes_the_line():
    async def test():
        lease = Lease("--standby", mark=f"standby-{RUN}-2")
        try:
            assert lease.process.stdin is not None
            lease.process.stdin.close()
            assert await lease.ended() == 0
            assert marked({f"standby-{RUN}-2"}) == set()
        finally:
            lease.clean_up()

    asyncio.run(test())


@pytest.mark.parametrize(
    "line", [b"{not json\n", b"{}\n", b'{"lease_id": "../x"}\n', b'{"lease_id": "a", "token": 1}\n']
)
def test_a_malformed_order_is_refused_and_leaves_nothing(line):
    lease = Lease(mark=f"bad-{RUN}")
    try:
        assert lease.process.stdin is not None
        lease.process.stdin.write(line)
        lease.process.stdin.flush()
        assert lease.process.wait(60) == 1
        wait_for(lambda: not lease_processes({f"bad-{RUN}"}), 10)
    finally:
        lease.clean_up()


# Stands for the notebook server: starts a supervisor, passes stdin on, and can be killed.
PARENT = """
import subprocess, sys, os
from gpulease.sides.environment import marked_environment
p = subprocess.Popen([sys.executable, "-m", "gpulease.companion"], stdin=subprocess.PIPE,
                     env=marked_environment(os.environ, sys.argv[1]), start_new_session=True)
p.stdin.write(sys.stdin.buffer.readline()); p.stdin.flush()
print(p.pid, flush=True)
p.wait()
"""


def test_a_killed_parent_ends_the_tree_and_the_lease_says_so():
    async def test():
        service = LeaseService()
        parent = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-c", PARENT, LEASE_ID], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        home = None
        try:
            assert parent.stdin is not None
            assert parent.stdout is not None
            parent.stdin.write(json.dumps(config(service.url)).encode() + b"\n")
            parent.stdin.flush()
            hello = await service.hello()
            home = Home(hello["address"], hello["public_key"])
            service.tell({"type": "admit", "client_key": home.public, "kernel_id": "k1"})
            opened = (await home.open("k1"))["ok"]
            os.kill(parent.pid, signal.SIGKILL)
            await wait_for_async(lambda: service.of_type("bye"), 30, "bye")
            assert service.of_type("bye")[0]["reason"] == "parent_gone"
            await wait_for_async(lambda: process_is_gone(hello["pid"]), 15, "the end")
            assert process_is_gone(opened["pid"])
            assert lease_processes({LEASE_ID}) == set()
        finally:
            if home is not None:
                home.close()
            parent.kill()
            parent.wait()
            for stream in (parent.stdin, parent.stdout):
                if stream is not None:
                    stream.close()
            await service.stop()

    asyncio.run(test())


def test_a_killed_supervisor_takes_its_companions_with_it():
    async def test():
        async with leased() as (_, lease, home):
            opened = (await home.open("k1"))["ok"]
            os.kill(lease.pid, signal.SIGKILL)
            await wait_for_async(lambda: process_is_gone(opened["pid"]), 15, "the companion")

    asyncio.run(test())


def test_by_hand_a_connection_file_is_all_a_notebook_needs(tmp_path):
    async def test():
        file = tmp_path / "lease.json"
        process = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-m", "gpulease.companion", "--connection-file", str(file)],
            stdin=subprocess.DEVNULL,
        )
        home = None
        try:
            await wait_for_async(file.exists, 60, "the connection file")
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            view = json.loads(file.read_text())
            keys = (view["client_public_key"], view["client_secret_key"])
            home = Home(view["address"], view["server_key"], keys)
            opened = (await home.open("any-kernel"))["ok"]
            process.send_signal(signal.SIGINT)
            await wait_for_async(lambda: process.poll() is not None, 30, "the end")
            assert process.wait() == 0
            assert not file.exists()
            assert process_is_gone(opened["pid"])
        finally:
            if home is not None:
                home.close()
            process.kill()
            process.wait()

    asyncio.run(test())


@pytest.mark.parametrize("ip", ["0.0.0.0", "203.0.113.7"])
def test_an_address_that_notebooks_cannot_use_is_refused(tmp_path, ip):
    done = subprocess.run(
        [sys.executable, "-m", "gpulease.companion", "--ip", ip, "--connection-file",
         str(tmp_path / "x.json")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "--ip" in done.stderr
    assert not (tmp_path / "x.json").exists()
