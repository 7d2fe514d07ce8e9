"""A lease pod's process: settings, address and ports, credential, and its three ends."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.companion import pod as pod_process
from gpulease.companion.drain import WARN_BEFORE, next_step
from gpulease.companion.ports import Ports
from gpulease.errors import GPULeaseError
from gpulease.protocol import names as protocol
from gpulease.sides.environment import companion_environment
from tests.companion.parts import Cells, LeaseService, closing
from tests.companion.pods import Pod, running
from tests.helpers import wait_for_async

pytestmark = pytest.mark.processes

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
GOOD = {
    protocol.ENV_LEASE: "lease-1",
    protocol.ENV_SERVICE_URL: "https://gpulease.example/services/gpulease",
    protocol.ENV_POD_IP: "10.1.2.3",
    protocol.ENV_TOKEN_FILE: "/var/run/secrets/gpulease/token",
}


def test_a_cell_runs_on_the_pods_address_and_ports_in_the_containers_environment(tmp_path):
    async def test():
        more = {
            "CUDA_VISIBLE_DEVICES": "GPU-7",
            "CUDA_DEVICE_MEMORY_LIMIT": "4g",
            "LANG": "C.UTF-8",
        }
        async with running(tmp_path, **more, GPULEASE_PORTS="8890-8920") as (_, pod, home):
            answer = await home.open(
                "k1", environ={"HOME": "/root", "PATH": "/nowhere", "OMP_NUM_THREADS": "3"}
            )
            assert "ok" in answer, answer
            opened = answer["ok"]
            info = opened["connection"]
            ports = [info[f"{name}_port"] for name in ("shell", "iopub", "stdin", "control", "hb")]
            wire = re.fullmatch(rf"tcp://{re.escape(pod.ip)}:(\d+)", opened["wire_address"])
            assert wire is not None
            assert info["ip"] == pod.ip
            assert all(8890 <= port <= 8920 for port in [*ports, int(wire[1])])
            with closing(await Cells(info, home).ready()) as cells:
                said = json.loads(
                    await cells.text("import os, json\nprint(json.dumps(dict(os.environ)))")
                )
            assert said["CUDA_VISIBLE_DEVICES"] == "GPU-7"
            assert said["CUDA_DEVICE_MEMORY_LIMIT"] == "4g"
            assert said["OMP_NUM_THREADS"] == "3"
            assert said["HOME"] == str(tmp_path)
            assert said["PATH"].startswith(os.environ["PATH"][:4])
            ours = {name for name in said if name.startswith("GPULEASE_")}
            assert ours == {"GPULEASE_LEASE", "GPULEASE_COMPANION", "GPULEASE_NODES"}
            second = await home.open("k2")
            assert second["ok"]["connection"]["shell_port"] not in ports
            home_again = await home.call("close", kernel_id="k1")
            assert home_again["ok"] is True

    asyncio.run(test())


def test_the_companion_is_started_before_anything_heavy_is_imported():
    heavy = ("asyncio", "zmq", "tornado", "jupyter_client", "ipykernel", "numpy")
    code = f"import sys, gpulease.companion.pod; print(set({heavy}) & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_companion_has_no_debugger_and_its_cells_may_import_one(tmp_path):
    async def test():
        async with running(tmp_path) as (_, _, home):
            opened = (await home.open("k1"))["ok"]
            with closing(await Cells(opened["connection"], home).ready()) as cells:
                assert (
                    await cells.text("import sys; print('debugpy' in sys.modules)")
                ).strip() == "False"
                assert (
                    await cells.text("import debugpy; print(debugpy.__name__)")
                ).strip() == "debugpy"

    asyncio.run(test())


def test_ports_that_are_used_up_are_named_and_come_back(tmp_path):
    async def test():
        async with running(tmp_path, GPULEASE_PORTS="8890-8897") as (_, _pod, home):
            assert "ok" in await home.open("k1")
            refused = await home.open("k2")
            assert refused["problem"]["reason"] == "no_ports"
            await home.call("close", kernel_id="k1")
            assert "ok" in await home.open("k3")

    asyncio.run(test())


def test_the_token_is_read_anew_for_each_connection_and_never_logged(tmp_path):
    async def test():
        async with running(tmp_path) as (service, pod, _):
            service.token = "the-next-token"
            pod.token_file.write_text(service.token)
            hellos = len(service.of_type("hello"))
            service.channels[-1].close()
            await wait_for_async(
                lambda: len(service.of_type("hello")) > hellos, 60, "the pod with its new token"
            )
            assert service.of_type("hello")[-1]["keys"]
        said = pod.log.read_text()
        assert "the-next-token" not in said
        assert "credential" not in said

    asyncio.run(test())


def test_sigterm_brings_everything_home_and_then_ends(tmp_path):
    async def test():
        async with running(tmp_path, GPULEASE_GRACE="30") as (service, pod, home):
            await home.open("k1")
            pod.process.terminate()
            push = await home.pushed("drain")
            assert push["reason"] == "stopped"
            assert datetime.fromisoformat(push["until"]) < datetime.now(UTC) + timedelta(seconds=27)
            assert pod.process.poll() is None
            await home.call("drained", kernel_id="k1", result="done", blockers=[])
            assert await pod.ended() == 0
            assert pod.last_line() == "gpulease.companion: ended: stopped"
            bye = service.of_type("bye")[-1]
            assert (bye["reason"], bye["parked"]) == ("stopped", 0)

    asyncio.run(test())


def test_at_its_granted_end_without_a_service_it_warns_drains_and_exits(tmp_path):
    async def test():
        async with running(tmp_path, GPULEASE_DRAIN_MAX="30") as (service, pod, home):
            await home.open("k1")
            end = (datetime.now(UTC) + timedelta(seconds=5)).isoformat()
            service.tell({"type": "lease", "hard_end": end})
            await service.stop()
            warned = await home.pushed("warn")
            assert (warned["until"], warned["reason"]) == (end, "hard_end")
            push = await home.pushed("drain")
            assert datetime.now(UTC) >= datetime.fromisoformat(end)
            assert (push["reason"], push["park"]) == ("expired", True)
            await home.call("drained", kernel_id="k1", result="done", blockers=[])
            assert (await home.pushed("end"))["reason"] == "expired"
            assert await pod.ended() == 0
            assert pod.last_line() == "gpulease.companion: ended: expired"

    asyncio.run(test())


def test_a_service_that_is_back_and_grants_more_calls_the_leaving_off(tmp_path):
    async def test():
        async with running(tmp_path, GPULEASE_DRAIN_MAX="60") as (service, pod, home):
            await home.open("k1")
            end = datetime.now(UTC) + timedelta(seconds=2)
            service.tell({"type": "lease", "hard_end": end.isoformat()})
            await wait_for_async(lambda: bool(service.channels), 10, "the channel")
            service.refuse = True
            service.channels[-1].close()
            await home.pushed("drain")
            service.refuse = False
            await wait_for_async(lambda: bool(service.channels), 60, "the pod to be back")
            later = (end + timedelta(hours=1)).isoformat()
            service.tell({"type": "lease", "hard_end": later})
            await home.pushed("resume")
            await home.call("drained", kernel_id="k1", result="done", blockers=[])
            with closing(
                await Cells((await home.open("k1"))["ok"]["connection"], home).ready()
            ) as cells:
                assert await cells.text("print(6 * 7)") == "42\n"
            assert pod.process.poll() is None

    asyncio.run(test())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (protocol.ENV_LEASE, "../x"),
        (protocol.ENV_SERVICE_URL, "gpulease.example"),
        (protocol.ENV_TOKEN_FILE, ""),
        (protocol.ENV_POD_IP, "0.0.0.0"),
        (protocol.ENV_POD_IP, "pod-1"),
        (protocol.ENV_PORTS, "8890"),
        (protocol.ENV_PORTS, "9000-8000"),
        (protocol.ENV_HARD_END, "tomorrow"),
        (protocol.ENV_HARD_END, "2026-03-01T12:00:00"),
        (protocol.ENV_ATTEMPT, "first"),
        (protocol.ENV_GRACE, "-1"),
        (protocol.ENV_DRAIN_MAX, "nan"),
        (protocol.ENV_MIRROR, "home"),
        (protocol.ENV_MIRROR_LIMIT, "-5"),
    ],
)
def test_a_wrong_setting_is_named(name, value):
    with pytest.raises(GPULeaseError) as refused:
        pod_process.settings({**GOOD, name: value})
    assert refused.value.reason == "bad_settings"
    assert name in refused.value.sentence


def test_settings_are_those_of_the_manifest():
    found = pod_process.settings(
        {**GOOD, protocol.ENV_HARD_END: NOW.isoformat(), protocol.ENV_PORTS: "80-90"}
    )
    assert (found.ip, found.ports, found.hard_end) == ("10.1.2.3", (80, 90), NOW.isoformat())
    assert (found.devices, found.in_container, found.token) == (None, True, "")
    assert pod_process.settings(GOOD).ports == protocol.DEFAULT_PORTS


def test_values_are_not_parked_where_they_would_go_with_the_pod():
    park = {protocol.ENV_PARK: "/home/jovyan/.gpulease/parked"}
    assert pod_process.settings({**GOOD, **park}).park_dir == "/home/jovyan/.gpulease/parked"
    assert (
        pod_process.settings({**GOOD, **park, protocol.ENV_MIRROR: "/home/jovyan"}).park_dir == ""
    )
    outside = {**park, protocol.ENV_MIRROR: "/home/other"}
    assert pod_process.settings({**GOOD, **outside}).park_dir == park[protocol.ENV_PARK]


def test_a_pod_that_cannot_start_says_why_by_status_and_last_line(tmp_path):
    async def test():
        service = LeaseService()
        for more, status, words in (
            ({protocol.ENV_LEASE: ""}, 2, "bad_settings: The lease pod's GPULEASE_LEASE"),
            ({protocol.ENV_POD_IP: "192.0.2.1"}, 3, "bad_address: 192.0.2.1"),
        ):
            pod = Pod(tmp_path, service.url, more=more)
            try:
                assert await pod.ended() == status
                assert words in pod.last_line()
            finally:
                pod.clean_up()
        await service.stop()

    asyncio.run(test())


# Another user may not be allowed to walk to this interpreter, so it may read everything.
SANDBOX = """
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=1777 none /mnt
cp {token} /mnt/token
mount -o remount,bind,ro /
export HOME=/nonexistent TMPDIR=/mnt
cd /mnt
exec setpriv --reuid=12345 --regid=12345 --clear-groups \\
    --inh-caps=+dac_read_search --ambient-caps=+dac_read_search -- "$@"
"""


def _may_unshare() -> bool:
    if shutil.which("unshare") is None or shutil.which("setpriv") is None:
        return False
    tried = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "true"],
        capture_output=True, check=False,
    )  # fmt: skip
    return tried.returncode == 0


@pytest.mark.skipif(not _may_unshare(), reason="needs root and namespaces")
def test_it_is_the_first_process_of_another_user_on_a_read_only_file_system(tmp_path):
    async def test():
        script = SANDBOX.format(token=tmp_path / "token")
        wrapper = [
            "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
            "sh", "-c", script, "sh",
        ]  # fmt: skip
        more = {protocol.ENV_TOKEN_FILE: "/mnt/token"}
        async with running(tmp_path, wrapper=wrapper, **more) as (_, _pod, home):
            opened = (await home.open("k1", cwd="/mnt"))["ok"]
            with closing(await Cells(opened["connection"], home).ready()) as cells:
                assert (
                    await cells.text("import os\nprint(os.getuid(), os.getppid())") == "12345 1\n"
                )
                assert await cells.text(
                    "try: open('/etc/gpulease-test', 'w')\nexcept OSError as e: print(e.errno)"
                ) in ("30\n", "13\n")
                orphan = "import subprocess as s\ns.run(['sh', '-c', '(sleep 0.1 &) ; true'])"
                await cells.run(orphan)
                zombies = (
                    "import glob\nprint(sum(' Z ' in open(f).read()"
                    " for f in glob.glob('/proc/[0-9]*/stat')))"
                )

                async def reaped() -> bool:
                    return await cells.text(zombies) == "0\n"

                await wait_for_async(reaped, 30, "orphans to be collected")

    asyncio.run(test())


@given(
    st.one_of(st.none(), st.integers(-(10**5), 10**5)),
    st.booleans(),
    st.booleans(),
)
def test_silence_alone_changes_nothing(ends_in, silent, warned):
    end = "" if ends_in is None else (NOW + timedelta(seconds=ends_in)).isoformat()
    step = next_step(end, NOW, silent=silent, warned=warned)
    over = ends_in is not None and ends_in <= 0
    near = ends_in is not None and timedelta(seconds=ends_in) <= WARN_BEFORE
    assert (step == "leave") == (silent and over)
    if step == "warn":
        assert silent
        assert near
        assert not warned
    if step == "clear":
        assert warned
        assert not (silent and near)


def test_what_home_says_of_its_own_machine_does_not_reach_a_container():
    base = {
        "PATH": "/opt/bin",
        "HF_HOME": "/models",
        "MY_TOKEN": "x",
        "NVIDIA_VISIBLE_DEVICES": "0",
    }
    home = {"PATH": "/usr/bin", "HOME": "/home/ada", "HF_HOME": "/other", "TZ": "UTC"}
    found = companion_environment(base, home, "lease", "k", None, in_container=True)
    assert found == {
        "PATH": "/opt/bin", "HF_HOME": "/models", "NVIDIA_VISIBLE_DEVICES": "0", "TZ": "UTC",
        "GPULEASE_LEASE": "lease", "GPULEASE_COMPANION": "lease/k",
    }  # fmt: skip


def test_ports_are_never_given_twice():
    ports = Ports((20001, 20010))
    taken = ports.take(6, "127.7.7.7") + ports.take(4, "127.7.7.7")
    assert sorted(taken) == list(range(20001, 20011))
    with pytest.raises(GPULeaseError):
        ports.take(1, "127.7.7.7")
    ports.give_back(taken[:1])
    assert ports.take(1, "127.7.7.7") == taken[:1]
    assert Ports().take(2, "127.7.7.7") == [0, 0]
