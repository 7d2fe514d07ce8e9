"""The plugin of The Littlest JupyterHub: ``--plugin gpulease``, and the machine's GPUs are leased.

The lease service is a systemd unit of its own user, so that it outlives a restart of the hub.
TLJH calls the hooks (https://tljh.jupyter.org/en/latest/contributing/plugins.html) at its
installation, the one about the hub's configuration at each start of the hub, as root.
"""

from __future__ import annotations

import os
import pwd
import secrets
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pluggy import HookimplMarker

from gpulease.errors import GPULeaseError

hook = HookimplMarker("tljh")

USER = "gpulease"
UNIT = "gpulease.service"
UNITS = Path("/etc/systemd/system")
#: Keys of ``gpulease`` in TLJH's configuration: the port of the service, and arguments of
#: ``setup_gpulease``.
KEYS = frozenset(
    (
        "admin_groups",
        "admins",
        "home_card",
        "instructors",
        "port",
        "request_groups",
        "whole_notebooks",
    )
)
#: What the service may do on the machine: its own folder, the network, and NVIDIA's devices.
_UNIT_TEXT = """\
# Written by gpulease at each start of the hub; change it with `systemctl edit gpulease`.
[Unit]
Description=gpulease: leases this machine's GPUs to notebooks
After=network.target

[Service]
User={user}
StateDirectory={user}
StateDirectoryMode=0700
UMask=0077
EnvironmentFile={environment}
ExecStart={python} -m gpulease service --url {url} --database {database}
Restart=always
RestartSec=2
CapabilityBoundingSet=
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
LockPersonality=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
DevicePolicy=closed
DeviceAllow=char-nvidia* rw

[Install]
WantedBy=multi-user.target
"""


@hook
def tljh_extra_hub_pip_packages() -> list[str]:
    """Return what the hub's environment needs."""
    return [f"gpulease[hub,service]=={version('gpulease')}"]


@hook
def tljh_extra_user_pip_packages() -> list[str]:
    """Return what the environment of the notebooks needs."""
    return [f"gpulease[lab]=={version('gpulease')}"]


@hook
def tljh_custom_jupyterhub_config(c: Any) -> None:
    """Configure the hub, and start the lease service, again where its settings have changed.

    Raises:
        GPULeaseError: ``hub_config_invalid``, ``hub_config_conflict``.
    """
    from gpulease.hub.setup import base_path, setup_gpulease

    root = Path(os.environ.get("TLJH_INSTALL_PREFIX", "/opt/tljh"))
    settings = _settings(root / "config" / "config.yaml")
    url = f"http://127.0.0.1:{settings.pop('port', 9980)}"
    environment = root / "state" / "gpulease.env"
    token = _token(environment) or secrets.token_hex(32)
    base = base_path(c)
    variables = {
        "JUPYTERHUB_API_TOKEN": token,
        "JUPYTERHUB_API_URL": f"http://127.0.0.1:{c.JupyterHub.hub_port}{base}hub/api",
        "JUPYTERHUB_SERVICE_NAME": "gpulease",
        "JUPYTERHUB_CLIENT_ID": "service-gpulease",
        "JUPYTERHUB_SERVICE_PREFIX": f"{base}services/gpulease/",
    }
    setup_gpulease(c, service_url=url, service_token=token, **settings)
    unit = _UNIT_TEXT.format(
        user=USER,
        environment=environment,
        python=sys.executable,
        url=url,
        database=f"sqlite:////var/lib/{USER}/gpulease.sqlite",
    )
    _start(environment, "".join(f"{k}={v}\n" for k, v in variables.items()), unit)


def _settings(file: Path) -> dict[str, Any]:
    """Return what ``tljh-config set gpulease.KEY VALUE`` has set.

    Raises:
        GPULeaseError: ``hub_config_invalid``.
    """
    import yaml

    found = (yaml.safe_load(file.read_text()) or {}) if file.exists() else {}
    settings = found.get("gpulease") or {}
    if odd := sorted(set(settings) - KEYS):
        raise GPULeaseError(
            "hub_config_invalid",
            f"gpulease.{odd[0]} in {file} is not a setting.",
            next_step=f"Settings are {', '.join(sorted(KEYS))}.",
        )
    return dict(settings)


def _token(environment: Path) -> str:
    lines = environment.read_text().splitlines() if environment.exists() else []
    return dict(line.partition("=")[::2] for line in lines).get("JUPYTERHUB_API_TOKEN", "")


def _start(environment: Path, variables: str, unit: str) -> None:
    """Start the service; where it runs with other settings, again."""
    try:
        pwd.getpwnam(USER)
    except KeyError:
        _run("useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", USER)
    new_unit = _written(UNITS / UNIT, unit, 0o644)
    changed = _written(environment, variables, 0o600) or new_unit
    if new_unit:
        _run("systemctl", "daemon-reload")
        _run("systemctl", "enable", UNIT)
    # The unit waits for nothing of the hub, which starts only after this.
    _run("systemctl", "restart" if changed else "start", "--no-block", UNIT)


def _written(path: Path, text: str, mode: int) -> bool:
    """Write a file where it says something else; return whether it did."""
    from gpulease.system.private_files import whole_file

    if path.exists() and path.read_text() == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with whole_file(path, replace=True) as file:
        file.write(text.encode())
    path.chmod(mode)
    return True


def _run(*command: str) -> None:
    """Run a command of the system.

    Raises:
        GPULeaseError: ``hub_config_invalid`` with what it said.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        said = "" if done.returncode == 0 else done.stderr.strip() or f"status {done.returncode}"
    except OSError as error:
        said = str(error.strerror)
    if said:
        raise GPULeaseError(
            "hub_config_invalid",
            f"The lease service cannot be started: {' '.join(command)}: {said}.",
            next_step="The plugin needs the rights of root and systemd, as TLJH itself does.",
        )
