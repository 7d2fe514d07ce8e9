"""A lease whose nodes are pods of their own: what the first one launches runs on all of them."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zmq

from gpulease.companion import jobs as jobs_module
from gpulease.companion import member as member_module
from gpulease.companion.jobs import Jobs
from gpulease.companion.member import Guests
from gpulease.companion.mirrors import Mirrors
from gpulease.companion.ports import Ports
from gpulease.errors import GPULeaseError
from gpulease.protocol import names as protocol
from tests.companion.parts import Cells, Home, LeaseService, closing
from tests.companion.pods import Pod, admitted
from tests.companion.test_launch import MEET
from tests.helpers import may_mount, process_is_gone, wait_for_async

pytestmark = pytest.mark.processes

ELSEWHERE = 'mount --make-rprivate / && mount -t tmpfs -o mode=755 none {home} && exec "$@"'
RUN = f"!{sys.executable} -P -m gpulease launch {sys.executable}"


@dataclass
class Group:
    """Two pods that know of each other, and an admitted home kernel."""

    pods: list[Pod]
    services: list[LeaseService]
    home: Home

    @contextlib.asynccontextmanager
    async def cells(self, where: Path) -> AsyncIterator[Cells]:
        opened = (await self.home.open("k1", cwd=str(where)))["ok"]
        with closing(Cells(opened["connection"], self.home)) as cells:
            yield await cells.ready()


@contextlib.asynccontextmanager
async def group(directory: Path, gpus: int = 4, home: Path | None = None) -> AsyncIterator[Group]:
    """Start two pods, and introduce them as the service does.

    ``home``: a directory in which the second one sees a mirror of its own.
    """
    services, pods, kernel = [LeaseService(), LeaseService()], [], None
    try:
        for rank, service in enumerate(services):
            place = directory / f"pod{rank}"
            place.mkdir()
            more = {
                protocol.ENV_RANK: str(rank),
                protocol.ENV_NODE_COUNT: "2",
                protocol.ENV_COUNT: str(gpus),
                "IMAGE": f"image of {rank}",
            }
            wrapper: list[str] = []
            if home is not None and rank:
                more[protocol.ENV_MIRROR] = str(home)
                wrapper = ["unshare", "--mount", "sh", "-c", ELSEWHERE.format(home=home), "sh"]
            made = await asyncio.to_thread(Pod, place, service.url, wrapper=wrapper, more=more)
            pods.append(made)
        first, second = [await service.hello() for service in services]
        assert "launch_key" not in second
        key = {"client_key": first["launch_key"], "kernel_id": ""}
        services[1].tell({"type": "admit", **key})
        await wait_for_async(lambda: services[1].of_type("admitted"), 60, "the key admitted")
        where = {"address": second["address"], "public_key": second["public_key"]}
        services[0].tell({"type": "nodes", "nodes": [where]})
        kernel = await admitted(services[0])
        yield Group(pods, services, kernel)
    finally:
        if kernel is not None:
            kernel.close()
        for pod in pods:
            await asyncio.to_thread(pod.clean_up)
        for service in services:
            await service.stop()


async def test_processes_of_two_pods_meet_at_the_first_one(tmp_path: Path) -> None:
    (tmp_path / "meet.py").write_text(MEET)
    async with group(tmp_path) as pods, pods.cells(tmp_path) as cells:
        told = json.loads(await cells.text("import os; print(os.environ['GPULEASE_NODES'])"))
        assert [(each["address"], each["gpus"]) for each in told] == [
            (pod.ip, 2) for pod in pods.pods
        ]
        said = await cells.text(f"{RUN} meet.py".replace("launch", "launch --per-gpu"))
        lines = sorted(said.splitlines())
        assert lines == [f"[{rank}] {rank} of 4 on None total 6" for rank in range(4)]


async def test_a_launched_process_has_the_cells_words_and_its_own_machines(tmp_path: Path) -> None:
    (tmp_path / "show.py").write_text(
        "import os, sys\n"
        "print(os.environ['MINE'], os.environ['IMAGE'], os.environ['HOME'], os.getcwd())\n"
        "print('oh', file=sys.stderr)\n"
        "sys.stdout.buffer.write(bytes([0xe2, 0x82, 0xac]) + b'x' * 30_000 + b'\\n')\n"
    )
    async with group(tmp_path) as pods, pods.cells(tmp_path) as cells:
        said = await cells.text(f"import os; os.environ['MINE'] = 'yes'\n{RUN} show.py")
        for rank in range(2):
            home = pods.pods[rank].token_file.parent
            assert f"[{rank}] yes image of {rank} {home} {tmp_path}" in said
            assert f"[{rank}] oh" in said
            assert f"[{rank}] \u20ac{'x' * 30_000}" in said


async def test_a_failure_on_another_pod_ends_all_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "fail.py").write_text(
        "import os, pathlib, signal, sys\n"
        "pathlib.Path(os.environ['RANK'] + '.tmp').write_text(str(os.getpid()))\n"
        "os.rename(os.environ['RANK'] + '.tmp', os.environ['RANK'])\n"
        "while os.environ['RANK'] == '1' and not pathlib.Path('0').exists(): pass\n"
        "sys.exit(7) if os.environ['RANK'] == '1' else signal.pause()\n"
    )
    async with group(tmp_path) as pods, pods.cells(tmp_path) as cells:
        said = await cells.text(f"{RUN} fail.py")
        assert "rank 1 failed (status=7); the others are ended" in said
        assert process_is_gone(int((tmp_path / "0").read_text()))
        missing = await cells.text(f"%cd /proc/self\n{RUN} -c pass")
        assert missing, "it says something"


async def test_what_runs_on_other_pods_ends_with_the_launch_however_that_ends(
    tmp_path: Path,
) -> None:
    (tmp_path / "wait.py").write_text(
        "import os, pathlib, signal\n"
        "pathlib.Path(os.environ['RANK'] + '.tmp').write_text(str(os.getpid()))\n"
        "os.rename(os.environ['RANK'] + '.tmp', os.environ['RANK'])\n"
        "signal.pause()\n"
    )

    def pids() -> list[int]:
        return [int((tmp_path / rank).read_text()) for rank in "01"]

    async with group(tmp_path) as pods, pods.cells(tmp_path) as cells:
        begin = (
            "import subprocess, sys; p = subprocess.Popen([sys.executable, '-P', '-m', 'gpulease',"
            " 'launch', sys.executable, 'wait.py']); print(p.pid)"
        )
        for number in (signal.SIGINT, signal.SIGKILL):
            launch = int(await cells.text(begin))
            await wait_for_async(lambda: (tmp_path / "1").exists(), 60, "both run")
            await wait_for_async(lambda: (tmp_path / "0").exists(), 60, "both run")
            first, second = pids()
            os.kill(launch, number)
            await wait_for_async(lambda p=second: process_is_gone(p), 60, "the far one's end")
            if number is signal.SIGINT:
                await wait_for_async(lambda p=first: process_is_gone(p), 60, "the near one's end")
            for rank in "01":
                (tmp_path / rank).unlink()


async def test_a_pod_of_a_further_node_ends_when_it_is_told_to_with_what_runs_there(
    tmp_path: Path,
) -> None:
    async with group(tmp_path) as pods, pods.cells(tmp_path) as cells:
        (tmp_path / "far.py").write_text(
            "import os, pathlib, signal\n"
            "os.environ['RANK'] == '0' or pathlib.Path('pid').write_text(str(os.getpid()))\n"
            "signal.pause()\n"
        )
        cells.begin(f"{RUN} far.py")
        pid = tmp_path / "pid"
        await wait_for_async(lambda: pid.exists() and pid.read_text(), 60, "it runs")
        pods.pods[1].process.send_signal(signal.SIGTERM)
        assert await pods.pods[1].ended() == 0
        assert pods.pods[1].last_line() == "gpulease.companion: ended: stopped"
        assert process_is_gone(int(pid.read_text()))


async def test_nobody_without_the_first_ones_key_launches_anything(tmp_path: Path) -> None:
    async with group(tmp_path) as pods:
        where = [m for m in pods.services[1].heard if m["type"] == "hello"][-1]
        stranger = Home(where["address"], where["public_key"])
        try:
            with pytest.raises(AssertionError, match="call run"):
                await stranger.call("run", 2, words=["true"], environment={}, place={}, cwd="/")
        finally:
            stranger.close()


async def test_what_cannot_be_started_says_why_and_who_is_silent_loses_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs, client, other = Jobs(), object(), object()
    environment = {"PATH": os.environ["PATH"]}
    with pytest.raises(GPULeaseError, match="no-such could not be started in /: No such file"):
        await jobs.run(client, ["no-such"], environment, "/")  # type: ignore[arg-type]
    now: Any = 1000.0
    monkeypatch.setattr(jobs_module.time, "monotonic", lambda: now)
    mine = await jobs.run(client, ["sleep", "600"], environment, "/")  # type: ignore[arg-type]
    others = await jobs.run(other, ["sleep", "600"], environment, "/")  # type: ignore[arg-type]
    now += 10 * jobs_module.LOST_AFTER  # nobody looked: who was not read was not silent
    await jobs.end_silent()
    assert len(jobs.pids or ()) == 2
    for second in range(int(jobs_module.LOST_AFTER) + 1):
        if second == 9:
            jobs.heard(client)  # type: ignore[arg-type]
        now += 1
        await jobs.end_silent()
    with pytest.raises(GPULeaseError, match="no such process"):
        await jobs.wait(others)
    assert len(jobs.pids or ()) == 1
    await jobs.end(mine)
    assert jobs.pids == set()


async def test_a_status_is_taken_by_whoever_waits_for_it() -> None:
    jobs, client, environment = Jobs(), object(), {"PATH": os.environ["PATH"]}
    begun = asyncio.ensure_future(jobs.run(client, ["sleep", "600"], environment, "/"))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert jobs.pids is None, "it starts: its pid is not known"
    job = await begun
    pids = jobs.pids
    assert pids
    ending = asyncio.ensure_future(jobs.end(job))
    await asyncio.sleep(0)
    assert jobs.pids == pids, "it is ended: its status is not taken yet"
    await ending
    assert jobs.pids == set()


async def test_what_runs_on_a_further_pod_is_told_while_it_runs(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(
        "import os, pathlib, signal\n"
        "if os.environ['RANK'] == '0': signal.pause()\n"
        "while not pathlib.Path('enough').exists(): pass\n"
        "raise SystemExit(3)\n"
    )
    async with group(tmp_path) as pods, pods.cells(tmp_path) as cells:
        service = pods.services[1]
        assert not service.samples(), "of nothing it says nothing"
        cell = cells.begin(f"{RUN} work.py")

        def worked() -> bool:
            return any(each["use"] > 0.1 for each in service.samples())

        await wait_for_async(worked, 60, "its work told")
        assert all(each["processes"] and not each["cells"] for each in service.samples())
        (tmp_path / "enough").touch()
        await cells.reply(cell)


@pytest.mark.skipif(not may_mount(), reason="needs root and mount namespaces")
async def test_where_homes_are_mirrored_a_launch_sends_its_files_and_brings_back_what_was_written(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    work = home / "lab" / "one"
    work.mkdir(parents=True)
    (work / "show.py").write_text(
        "import os, pathlib, sys\n"
        "rank = os.environ['RANK']\n"
        "print('read', pathlib.Path('data/in').read_text())\n"
        "pathlib.Path('of' + rank).write_text('by ' + rank)\n"
        "pathlib.Path('same').write_text('by ' + rank + pathlib.Path('data/in').read_text())\n"
    )
    (work / "data").mkdir()
    (work / "data" / "in").write_text("first")
    (home / "beside").write_text("not below the launch")
    async with group(tmp_path, home=home) as pods, pods.cells(work) as cells:
        for text in ("first", "second"):
            (work / "data" / "in").write_text(text)
            said = await cells.text(f"{RUN} show.py")
            for rank in range(2):
                assert f"[{rank}] read {text}" in said, said
                assert (work / f"of{rank}").read_text() == f"by {rank}"
                (work / f"of{rank}").unlink()
            assert (work / "same").read_text() == f"by 0{text}"
            assert "same was changed here and by the GPU" in said
        kept = {each.read_text() for each in work.glob("*same*")}
        assert kept == {"by 0second", "by 1first", "by 1second"}


async def test_the_files_of_a_launch_that_is_silent_are_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirrors = Mirrors(str(tmp_path), 2**20, "127.0.0.1", Ports((20_000, 20_001)))
    guests, clients = Guests(mirrors), [object(), object()]
    now: Any = 1000.0
    monkeypatch.setattr(member_module.time, "monotonic", lambda: now)
    asked = {"root": str(tmp_path / "lab"), "wire_key": zmq.curve_keypair()[0].decode()}
    elsewhere = {**asked, "launch": "x", "root": "/"}
    assert await guests.called(clients[0], "mirror", elsewhere) is None  # type: ignore[arg-type]
    for client, launch in zip(clients, "ab", strict=True):
        assert await guests.called(client, "mirror", {**asked, "launch": launch})  # type: ignore[arg-type]
    with pytest.raises(GPULeaseError, match="port"):
        await guests.called(clients[0], "mirror", {**asked, "launch": "c"})  # type: ignore[arg-type]
    for _ in range(int(member_module.LOST_AFTER) + 1):
        now += 1
        guests.heard(clients[1])  # type: ignore[arg-type]
        await guests.end_silent()
    assert await guests.called(clients[1], "mirror", {**asked, "launch": "c"})  # type: ignore[arg-type]
    await guests.end_all()
