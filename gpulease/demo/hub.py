"""The demo's hub: its configuration as a function of the demo's options.

Owns what is particular to the demo (people, ports, directories, the proxy); everything about GPUs
is ``setup_gpulease``'s, as on any hub.
"""

from __future__ import annotations

import os
import sys

from traitlets.config import Config

from gpulease.demo.authenticator import DemoAuthenticator
from gpulease.demo.options import ENV_OPTIONS, GROUP, NOTEBOOK, PEOPLE, DemoOptions
from gpulease.demo.spawner import DemoSpawner
from gpulease.hub import setup_gpulease


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
