"""`compose.yaml`: its two commands as plain processes, in folders and on ports of the test."""

import asyncio
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from jupyterhub.app import JupyterHub
from traitlets.config.loader import PyFileConfigLoader

from gpulease.demo import processes
from gpulease.demo.options import PEOPLE
from gpulease.system.loopback_ports import free_port
from tests import logs
from tests.browser.demo import RunningDemo
from tests.end_to_end.people import at_work
from tests.helpers import wait_for

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
HUB, SERVICE = COMPOSE["services"]["hub"], COMPOSE["services"]["service"]
CONFIG = ROOT / "hub_config" / "compose_jupyterhub_config.py"
RECIPE = (ROOT / HUB["build"]["dockerfile"]).read_text()


def test_nothing_listens_beyond_this_machine_and_no_secret_is_in_the_file() -> None:
    assert HUB["ports"] == ["127.0.0.1:8000:8000"]
    assert "ports" not in SERVICE
    assert SERVICE["network_mode"] == SERVICE["pid"] == "service:hub"
    given = {**HUB.get("environment", {}), **SERVICE["environment"]}
    assert not any(word in name for name in given for word in ("TOKEN", "SECRET", "PASSWORD"))
    assert "JUPYTERHUB_API_TOKEN=$$(cat token/token) exec" in SERVICE["command"][-1]


def test_all_state_is_in_volumes_that_the_image_prepares() -> None:
    mounts = [mount.split(":") for part in (HUB, SERVICE) for mount in part["volumes"]]
    assert {name for name, *_ in mounts} == set(COMPOSE["volumes"])
    for _, folder, *_ in mounts:
        assert f" {folder}" in RECIPE, "a volume takes owner and mode of the image's folder"
    assert f"COPY {CONFIG.relative_to(ROOT)} {HUB['command'][-1]}" in RECIPE
    assert "token:/srv/gpulease/token:ro" in SERVICE["volumes"]


def test_the_token_is_made_at_the_first_start_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = [PyFileConfigLoader(str(CONFIG)).load_config() for _ in range(2)]
    first, second = (JupyterHub(config=each).services[0]["api_token"] for each in found)
    assert first == second == (tmp_path / "token" / "token").read_text()
    assert len(bytes.fromhex(first)) == 32
    assert stat.S_IMODE((tmp_path / "token" / "token").stat().st_mode) == 0o600


class Machine:
    """One machine on which the file's commands run."""

    def __init__(self, folder: Path, ports: dict[str, str]) -> None:
        self.folder, self._ports = folder, ports
        self.log = folder / "log"
        (folder / "service").mkdir(mode=0o700)
        (folder / "config.py").write_text(self.here(CONFIG.read_text()))
        names = (name for name in os.environ if not name.startswith(("JUPYTER", "GPULEASE_")))
        self._environment = {name: os.environ[name] for name in names}
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment["PATH"] = programs

    def here(self, text: str) -> str:
        """Return a text of the file with this machine's folders and ports."""
        found = re.compile(rf"\b({'|'.join(self._ports)})\b")
        text = found.sub(lambda port: self._ports[port[0]], text)
        text = text.replace("/etc/gpulease/jupyterhub_config.py", f"{self.folder}/config.py")
        return text.replace("/srv/gpulease", str(self.folder)).replace("$$", "$")

    @contextmanager
    def running(self, service: dict[str, Any]) -> Iterator[None]:
        """Start a service as it is configured, and wait until it is healthy."""
        given = {name: self.here(value) for name, value in service.get("environment", {}).items()}
        with self.log.open("ab") as log:
            process = processes.start(
                [self.here(word) for word in service["command"]],
                environment=self._environment | given,
                directory=self.folder,
                output=log,
            )
        kind, *check = map(self.here, service["healthcheck"]["test"])
        assert kind == "CMD"

        def healthy() -> bool:
            assert process.poll() is None, self.log.read_text()
            done = subprocess.run(
                check, env=self._environment, capture_output=True, timeout=60, check=False
            )
            return done.returncode == 0

        try:
            wait_for(healthy, 180, f"{service['command']} is healthy")
            yield
        finally:
            process.terminate()
            try:
                process.wait(90)
            finally:
                process.kill()


@pytest.mark.site
@pytest.mark.timeout(600)
def test_its_commands_serve_a_login_and_a_gpu(tmp_path: Path) -> None:
    ports = {name: str(free_port()) for name in ("8000", "8081", "8001", "9980")}
    machine = Machine(tmp_path, ports)
    demo = RunningDemo(f"http://127.0.0.1:{ports['8000']}/", tmp_path / "hub", os.getpid())

    async def work() -> None:
        async with at_work(demo, PEOPLE[0].name) as student:
            await student.run("x = [1]")
            shown = await student.run("%%gpu\nx.append(2)\nprint('on a GPU')")
            assert "on a GPU" in shown.text
            assert student.watch.lease is not None
            assert student.watch.lease["simulated"] is True
            assert "[1, 2]" in (await student.run("print(x)")).text
            await student.return_gpu()

    with logs.shown(machine.log), machine.running(HUB), machine.running(SERVICE):
        asyncio.run(work())
    token = (tmp_path / "token" / "token").read_text()
    assert token not in machine.log.read_text()
