"""Two real hubs on the GPUs of one service: namesakes at work, a quota, and a hub that stops."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpulease.demo.browse import Browser
from gpulease.demo.kernel_socket import KernelSocket
from gpulease.errors import GPULeaseError
from gpulease.system.loopback_ports import free_port
from tests.end_to_end.people import LONG
from tests.helpers import wait_for, wait_for_async
from tests.hub.running import PASSWORD, HubPlace, running_hub

pytestmark = [pytest.mark.site, pytest.mark.timeout(600)]

HUB = """
import os
from gpulease.hub import setup_gpulease

c.JupyterHub.default_url = "/hub/home"
c.JupyterHub.cleanup_servers = True
c.JupyterHub.load_groups = {{"cs101": {{"users": ["alice"]}}}}
c.SimpleLocalProcessSpawner.home_dir_template = "{directory}/homes/{{username}}"
c.Spawner.cmd = [sys.executable, "-P", "-m", "jupyterhub.singleuser"]
c.Spawner.args = ["--allow-root"]
c.Spawner.start_timeout = c.Spawner.http_timeout = 120
setup_gpulease(
    c,
    service_url="http://127.0.0.1:{service}",
    service_token="{token}",
    service_name="{name}",
    spawner_class="simple",
    admins=["ada"],
)
"""
SERVICE = """
c.GPULeaseService.service_url = "http://127.0.0.1:{service}"
c.GPULeaseService.hubs = {{"lab2": {{"api_url": "{lab}", "token_env": "LAB_TOKEN"}}}}
"""
POLICY = """\
pools: {simulated-gpu: {}}
classes: {gpu: {pool: simulated-gpu, price: 1}}
time_outs: {idle: 1h, claim: 1h}
projects:
  lab2: {group: lab2/, pools: {simulated-gpu: {limit: 1}}}
  home: {everyone: true}
"""


@dataclass(frozen=True)
class Campus:
    """Two hubs, the service of both, and how to stop the second."""

    first: HubPlace
    second: HubPlace
    stop_second: Any


@pytest.fixture
def campus(tmp_path: Path) -> Any:
    places = [tmp_path / name for name in ("first", "second", "service")]
    for each in places:
        each.mkdir()
    first, second, port = HubPlace(places[0]), HubPlace(places[1]), free_port()
    with ExitStack() as all_of_it, ExitStack() as lab:
        for stack, place, name, token in (
            (all_of_it, first, "gpulease", "token-of-the-first"),
            (lab, second, "gpulease-lab2", "token-of-the-lab"),
        ):
            rest = HUB.format(directory=place.directory, service=port, token=token, name=name)
            stack.enter_context(running_hub(place, rest))
        service = _service(places[2], port, first, second)
        all_of_it.callback(service.wait, 60)
        all_of_it.callback(service.terminate)
        log = places[2] / "log"
        wait_for(lambda: "listening on port" in log.read_text(), LONG, "the service answers")
        yield Campus(first, second, lab.close)


def _service(directory: Path, port: int, first: HubPlace, second: HubPlace) -> Any:
    (directory / "config.py").write_text(SERVICE.format(service=port, lab=second.api))
    (directory / "policy.yaml").write_text(POLICY)
    command = [
        *(sys.executable, "-P", "-m", "gpulease.cli", "service", "--simulate", "--gpus=3"),
        *("--config=config.py", "--first-policy=policy.yaml", "--log-level=DEBUG"),
    ]
    with (directory / "log").open("wb") as log:
        return subprocess.Popen(
            command, cwd=directory, env=_environment(first), stdout=log, stderr=log
        )


def _environment(first: HubPlace) -> dict[str, str]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "GPULEASE_"))}
    return environ | {
        "JUPYTERHUB_API_TOKEN": "token-of-the-first", "JUPYTERHUB_API_URL": first.api,
        "JUPYTERHUB_SERVICE_NAME": "gpulease", "JUPYTERHUB_CLIENT_ID": "service-gpulease",
        "JUPYTERHUB_SERVICE_PREFIX": "/services/gpulease/", "LAB_TOKEN": "token-of-the-lab",
    }  # fmt: skip


def _doctor(campus: Campus) -> dict[str, str]:
    """Return the state of each check."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "gpulease.cli", "doctor", "--config=config.py", "--json"],
        cwd=campus.first.directory.parent / "service",
        env=_environment(campus.first),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "token-of-the" not in done.stdout + done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {each["check"]: each["state"] for each in found}


@dataclass(frozen=True)
class AtWork:
    """Somebody with a notebook open."""

    browser: Browser
    kernel: KernelSocket

    async def run(self, code: str) -> str:
        done = await self.kernel.execute(code, seconds=LONG)
        assert done.status == "ok", f"{code!r} failed with {done.error}; it showed {done.text}"
        return done.text

    async def leases(self) -> list[Any]:
        return list((await self.browser.service_api("GET", "leases?state=live"))["items"])


@asynccontextmanager
async def signed_in(place: HubPlace, service: str, name: str) -> AsyncIterator[Browser]:
    async with Browser(place.url, service=service) as browser:
        await browser.log_in(name, PASSWORD)
        await browser.open_service()
        yield browser


@asynccontextmanager
async def at_work(place: HubPlace, service: str, name: str) -> AsyncIterator[AtWork]:
    async with signed_in(place, service, name) as browser:
        await browser.start_server()
        kernel = await browser.connect(await browser.start_kernel("test.ipynb"))
        async with kernel:
            yield AtWork(browser, kernel)


def test_two_hubs_share_the_gpus_of_one_service(campus: Campus) -> None:
    asyncio.run(_story(campus))
    log = (campus.first.directory.parent / "service" / "log").read_text(errors="replace")
    assert "token-of-the" not in log
    assert "Traceback" not in log, log[-4000:]


async def _story(campus: Campus) -> None:
    ours, theirs = (campus.first, "gpulease"), (campus.second, "gpulease-lab2")
    async with (
        signed_in(*ours, "ada") as admin,
        at_work(*ours, "alice") as mine,
        at_work(*theirs, "alice") as other,
    ):
        for who, kept in ((mine, 1), (other, 2)):
            await who.run(f"kept = [{kept}]")
            assert f"[{kept}, 'gpu']" in await who.run("%%gpu\nkept.append('gpu')\nprint(kept)")
        (one,), (two,) = await mine.leases(), await other.leases()
        assert (one["user"], two["user"]) == ("alice", "lab2/alice")
        assert (one["project"], two["project"]) == ("home", "lab2")
        for who, foreign in ((mine, two), (other, one)):
            with pytest.raises(GPULeaseError) as refused:
                await who.browser.service_api("DELETE", f"leases/{foreign['id']}", {"force": True})
            assert refused.value.reason == "no_such_lease"
        everybody = (await admin.service_api("GET", "leases?state=live"))["items"]
        assert {each["id"] for each in everybody} == {one["id"], two["id"]}

        async with signed_in(*theirs, "bob") as bob, signed_in(*theirs, "ada") as boss:
            await bob.spawn()
            asked = await bob.service_api("POST", "leases", {"server": ""})

            async def waits() -> bool:
                (found,) = (await bob.service_api("GET", "leases?state=live"))["items"]
                return bool(found["state"] == "queued" and found["reason"] == "project_limit")

            await wait_for_async(waits, LONG, "the quota of the second hub holds", 1.0)
            (free,) = (await admin.service_api("GET", "classes"))["items"]
            assert free["free"] == 1  # and is nobody's of the second hub
            whose = (await boss.service_api("GET", "leases?state=live"))["items"]
            assert {each["id"] for each in whose} == {two["id"], asked["id"]}
            with pytest.raises(GPULeaseError, match="admin"):
                await boss.service_api("GET", "devices")

        found = await asyncio.to_thread(_doctor, campus)
        assert (found["hub"], found["runs"], found["hub lab2"]) == ("ok", "ok", "ok")
        await asyncio.to_thread(campus.stop_second)
        found = await asyncio.to_thread(_doctor, campus)
        assert (found["hub"], found["hub lab2"]) == ("ok", "wrong")

        async def named() -> bool:
            health = await admin.service_api("GET", "health")
            return health["hub"] == "ok" and health["hubs"]["lab2"] != "ok"

        await wait_for_async(named, LONG, "the hub that stopped is named", 1.0)
        said = (await admin.service_api("GET", "alerts"))["items"]
        assert any("lab2" in each["sentence"] for each in said), said
        assert "[1, 'gpu', 'on']" in await mine.run("%%gpu\nkept.append('on')\nprint(kept)")
        await mine.run("%gpu return")
        assert "[1, 'gpu', 'on']" in await mine.run("print(kept)")
        assert "new" in await mine.run("%%gpu\nprint('new')")
