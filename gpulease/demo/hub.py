"""The demo's hub: its configuration as a function of the demo's options.

What is particular to the demo: its people and how they are let in, their servers (processes of
this user, each with a home directory of its own), ports, directories, the proxy.  Everything about
GPUs is ``setup_gpulease``'s, as on any hub.
"""

from __future__ import annotations

import hmac
import json
import os
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from jupyterhub.auth import Authenticator
from jupyterhub.spawner import SimpleLocalProcessSpawner
from traitlets.config import Config

from gpulease.demo.options import ENV_OPTIONS, GROUP, NOTEBOOK, PEOPLE, TORCH_NOTEBOOK, DemoOptions
from gpulease.hub import GPULeaseSpawnerMixin, setup_gpulease
from gpulease.hub.local_ports import OwnPortMixin

#: No question and no look at the network on a student's first page.
_LAB_SETTINGS = {
    "@jupyterlab/apputils-extension/notification.jupyterlab-settings": {
        "fetchNews": "false",
        "checkForUpdates": False,
    }
}


class DemoSpawner(GPULeaseSpawnerMixin, OwnPortMixin, SimpleLocalProcessSpawner):
    """Starts a server in the student's own directory, with the demo notebooks in it."""

    async def start(self) -> Any:
        """Start the server once its home is furnished."""
        furnish(Path(self.home_dir))
        return await super().start()


def furnish(home: Path) -> None:
    """Put the demo notebooks and settings into a home; what is there already stays."""
    home.mkdir(parents=True, exist_ok=True)
    for name in (NOTEBOOK, TORCH_NOTEBOOK):
        notebook = home / name
        if not notebook.exists():
            notebook.write_text(notebook_text(name))
    for name, settings in _LAB_SETTINGS.items():
        file = home / ".jupyter" / "lab" / "user-settings" / name
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(settings))


def notebook_text(name: str = NOTEBOOK) -> str:
    """Return a demo notebook as it is shipped."""
    return (resources.files("gpulease.demo") / "notebooks" / name).read_text()


class DemoAuthenticator(Authenticator):
    """Fixed names and passwords, printed by ``gpulease demo``: for loopback only."""

    async def authenticate(self, _handler: Any, data: Mapping[str, str]) -> str | None:
        """Return the name when the password fits."""
        for person in PEOPLE:
            if person.name == data["username"] and hmac.compare_digest(
                person.password.encode(), data["password"].encode()
            ):
                return person.name
        return None


def configure(
    c: Config, options: DemoOptions | None = None, *, service_token: str | None = None
) -> None:
    """Fill the hub's configuration ``c``; the options come from the environment if not given.

    With ``service_token`` the lease service runs by itself; otherwise the hub starts it.
    """
    demo = options or DemoOptions.from_json(os.environ[ENV_OPTIONS])
    _configure_hub(c, demo)
    _configure_people(c)
    _configure_servers(c, demo)
    setup_gpulease(
        c,
        service_url=f"http://127.0.0.1:{demo.ports.service}",
        service_command=None if service_token else service_command(demo),
        service_token=service_token,
        # Everything of a demo runs under the account of whoever started it; in a container and in
        # the tests of this repository that is root.
        allow_service_as_root=True,
        spawner_class=DemoSpawner,
        instructors={GROUP: ["instructor"]},
        whole_notebooks=True,
    )


def service_command(demo: DemoOptions) -> list[str]:
    """Return the command that runs the lease service of this demo."""
    time_outs = [
        f"--GPULeaseService.first_time_outs={name}={seconds:g}"
        for name, seconds in demo.time_outs().items()
    ]
    return [
        *(sys.executable, "-P", "-m", "gpulease.cli", "service"),
        f"--database=sqlite:///{demo.directory / 'gpulease.sqlite'}",
        f"--gpus={demo.gpus}",
        f"--gpu-name={demo.gpu_name}",
        f"--gpu-memory={demo.memory}GiB",
        *(["--simulate"] if demo.simulate else []),
        *time_outs,
    ]


def _configure_hub(c: Config, demo: DemoOptions) -> None:
    hub = c.JupyterHub
    hub.bind_url = demo.url
    # Where the card "Request GPU" is; the hub would start a server at once instead.
    hub.default_url = "/hub/home"
    hub.hub_bind_url = f"http://127.0.0.1:{demo.ports.hub}"
    hub.db_url = f"sqlite:///{demo.directory / 'jupyterhub.sqlite'}"
    hub.cookie_secret_file = str(demo.directory / "jupyterhub_cookie_secret")
    # Ctrl-C ends the servers too: a demo leaves nothing behind.
    hub.cleanup_servers = True
    proxy = c.ConfigurableHTTPProxy
    proxy.api_url = f"http://127.0.0.1:{demo.ports.proxy}"
    proxy.pid_file = str(demo.directory / "proxy.pid")
    # The longest any request may take, in ms; starting a server is the slowest.
    proxy.command = [sys.executable, "-m", "gpulease.demo.proxy", "--proxy-timeout", "300000"]


def _configure_people(c: Config) -> None:
    c.JupyterHub.authenticator_class = DemoAuthenticator
    c.Authenticator.allowed_users = {person.name for person in PEOPLE}
    c.Authenticator.admin_users = {"admin"}
    c.JupyterHub.load_groups = {GROUP: {"users": ["student", "student2"]}}


def _configure_servers(c: Config, demo: DemoOptions) -> None:
    c.SimpleLocalProcessSpawner.home_dir_template = str(demo.directory / "homes" / "{username}")
    # -P: a student's random.py must not stop the student's own server.
    c.Spawner.cmd = [sys.executable, "-P", "-m", "jupyterhub.singleuser"]
    c.Spawner.default_url = f"/lab/tree/{NOTEBOOK}"
    if os.geteuid() == 0:  # in a container, for example; the demo listens on loopback only
        c.Spawner.args = ["--allow-root"]
    # Seconds until the hub notices that a server, or the lease service, has died.
    c.Spawner.poll_interval = 5
    c.Spawner.start_timeout = 120
    c.Spawner.http_timeout = 120
