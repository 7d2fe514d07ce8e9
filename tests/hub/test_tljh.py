"""The plugin of The Littlest JupyterHub, called as TLJH calls it, and what it gives systemd."""

import getpass
import os
import shlex
import shutil
import stat
import subprocess
import urllib.request
from pathlib import Path

import pluggy
import pytest
from traitlets.config import Config

from gpulease import __version__
from gpulease.errors import GPULeaseError
from gpulease.hub import tljh
from gpulease.hub.merge import listed
from gpulease.system.loopback_ports import free_port
from tests.helpers import wait_for
from tests.hub.running import HubPlace, running_hub


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """TLJH's folders, and a systemctl and useradd that only write down what they are to do."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("systemctl", "useradd"):
        program = programs / name
        program.write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/said\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setenv("TLJH_INSTALL_PREFIX", str(tmp_path / "opt"))
    monkeypatch.setattr(tljh, "UNITS", tmp_path / "units")
    (tmp_path / "said").touch()
    return tmp_path


def plugins():
    manager = pluggy.PluginManager("tljh")
    assert manager.load_setuptools_entrypoints("tljh") >= 1
    return manager.hook


def configured(settings=""):
    c = Config()
    c.JupyterHub.hub_port = 15001
    c.JupyterHub.base_url = "/lab/"
    config = Path(os.environ["TLJH_INSTALL_PREFIX"]) / "config" / "config.yaml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(settings)
    plugins().tljh_custom_jupyterhub_config(c=c)
    return c


def said(machine):
    lines = (machine / "said").read_text().splitlines()
    (machine / "said").write_text("")
    return [line for line in lines if not line.startswith("useradd")]


def test_packages_of_both_environments():
    hook = plugins()
    assert [f"gpulease[hub,service]=={__version__}"] in hook.tljh_extra_hub_pip_packages()
    assert [f"gpulease[lab]=={__version__}"] in hook.tljh_extra_user_pip_packages()


def test_hub_and_service_know_each_other(machine):
    c = configured("gpulease:\n  instructors: {cs101: [grace]}\n  port: 9981\n")
    (service,) = listed(c.JupyterHub, "services")
    assert service["url"] == "http://127.0.0.1:9981"
    assert "command" not in service
    environment = machine / "opt" / "state" / "gpulease.env"
    assert stat.S_IMODE(environment.stat().st_mode) == 0o600
    variables = dict(line.split("=", 1) for line in environment.read_text().splitlines())
    assert variables["JUPYTERHUB_API_TOKEN"] == service["api_token"]
    assert variables["JUPYTERHUB_API_URL"] == "http://127.0.0.1:15001/lab/hub/api"
    assert variables["JUPYTERHUB_SERVICE_PREFIX"] == "/lab/services/gpulease/"
    assert any(role["name"].endswith("cs101") for role in listed(c.JupyterHub, "load_roles"))
    unit = (machine / "units" / "gpulease.service").read_text()
    assert service["api_token"] not in unit


def test_a_restart_of_the_hub_leaves_the_service_alone(machine):
    token = listed(configured().JupyterHub, "services")[0]["api_token"]
    assert said(machine) == [
        "systemctl daemon-reload",
        "systemctl enable gpulease.service",
        "systemctl restart --no-block gpulease.service",
    ]
    assert listed(configured().JupyterHub, "services")[0]["api_token"] == token
    assert said(machine) == ["systemctl start --no-block gpulease.service"]
    configured("gpulease: {port: 9981}")
    assert said(machine)[-1] == "systemctl restart --no-block gpulease.service"


def test_a_setting_that_there_is_not(machine):
    with pytest.raises(GPULeaseError, match=r"gpulease\.instructor ") as error:
        configured("gpulease: {instructor: grace}")
    assert "instructors" in str(error.value)
    assert said(machine) == []


def test_what_systemd_says_is_told(machine):
    (machine / "bin" / "systemctl").write_text("#!/bin/sh\necho no bus >&2\nexit 1\n")
    with pytest.raises(GPULeaseError, match="systemctl daemon-reload: no bus"):
        configured()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_understands_the_unit(machine):
    configured()
    unit = machine / "units" / "gpulease.service"
    unit.write_text(unit.read_text().replace("User=gpulease", f"User={getpass.getuser()}"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


HUB = """
import pluggy
manager = pluggy.PluginManager("tljh")
manager.load_setuptools_entrypoints("tljh")
from pathlib import Path
from gpulease.hub import tljh
tljh.UNITS = Path({units!r})
c.JupyterHub.hub_port = {port}
manager.hook.tljh_custom_jupyterhub_config(c=c)
"""


@pytest.mark.processes
def test_the_unit_s_command_serves_the_hub(machine):
    place = HubPlace(machine)
    config = machine / "opt" / "config" / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text(f"gpulease: {{port: {free_port()}}}")
    rest = HUB.format(units=str(machine / "units"), port=place.hub)
    with running_hub(place, rest):
        unit = (machine / "units" / "gpulease.service").read_text()
        command = next(x for x in unit.splitlines() if x.startswith("ExecStart="))[10:]
        environment = (machine / "opt" / "state" / "gpulease.env").read_text()
        state = machine / "state"
        state.mkdir(mode=0o700)
        words = shlex.split(command.replace("/var/lib/gpulease", str(state)))
        with (machine / "service.log").open("wb") as log:
            service = subprocess.Popen(
                words,
                env={**os.environ, **dict(x.split("=", 1) for x in environment.splitlines())},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                wait_for(lambda: healthy(place.url), 120, "the service answers through the hub")
            finally:
                service.terminate()
                service.wait()


def healthy(url):
    try:
        with urllib.request.urlopen(f"{url}services/gpulease/api/health") as answer:
            return answer.status == 200
    except OSError:
        return False
