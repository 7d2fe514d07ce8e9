"""A site whose hub, proxy and servers prove themselves to each other by certificates.

`internal_ssl` needs more than the hub's one setting: names that the cluster's DNS knows,
certificates before the first start, a pair for the lease service.  The hub makes and checks the
certificates of servers itself.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testcluster import names
from testcluster.api import Api
from testcluster.layout import NODE_ADDRESS
from testcluster.site.shipped import HUB_NAMESPACE, OWN_NAMESPACE

HUB = f"hub.{HUB_NAMESPACE}.{names.DOMAIN}"
SERVICE = f"gpulease.{OWN_NAMESPACE}.{names.DOMAIN}"
_STORE = "internal-ssl"
_PAIR = "gpulease"


def hub_url(port: int, path: str = "/") -> str:
    """Return the hub's address for servers and for the lease service."""
    return f"https://{HUB}:{port}{path}"


def hub_config(port: int) -> str:
    """Return the lines of jupyterhub_config.py."""
    return f"""
c.JupyterHub.internal_ssl = True
c.JupyterHub.internal_certs_location = "{_STORE}"
c.JupyterHub.hub_bind_url = "https://{NODE_ADDRESS}:{port}"
c.JupyterHub.hub_connect_url = "{hub_url(port, "")}"
c.JupyterHub.trusted_alt_names = ["DNS:{HUB}", "IP:{NODE_ADDRESS}"]
"""


def store(directory: Path) -> Path:
    """Return where the hub keeps its authorities and certificates."""
    return directory / _STORE


def authorities(directory: Path) -> str:
    """Return the file of those whom the lease service trusts, the hub's among them."""
    return str(store(directory) / "services-ca_trust.crt")


def service_url(port: int, path: str = "/") -> str:
    """Return the lease service's address for proxy, servers, lease pods and agents."""
    return f"https://{SERVICE}:{port}{path}"


def service_config(port: int) -> str:
    """Return the lines of the service's configuration: it shows the pair that the hub knows."""
    return f"""
import os
c.GPULeaseService.service_url = "https://{NODE_ADDRESS}:{port}"
with open(os.environ["JUPYTERHUB_SSL_CLIENT_CA"]) as authorities:
    c.KubernetesSettings.environment = {{"GPULEASE_SERVICE_CA": authorities.read()}}
"""


def service_environment(directory: Path) -> dict[str, str]:
    """Return by what the lease service knows the hub and is known to it."""
    pair = store(directory) / _PAIR / _PAIR
    return {
        "JUPYTERHUB_SSL_KEYFILE": f"{pair}.key",
        "JUPYTERHUB_SSL_CERTFILE": f"{pair}.crt",
        "JUPYTERHUB_SSL_CLIENT_CA": authorities(directory),
    }


def proxy_options(directory: Path) -> list[str]:
    """Return what a hub that starts its proxy by itself would tell it."""
    options = []
    for end in ("api", "client"):
        own = store(directory) / f"proxy-{end}" / f"proxy-{end}"
        trusted = store(directory) / f"proxy-{end}-ca_trust.crt"
        options += [f"--{end}-ssl-key={own}.key", f"--{end}-ssl-cert={own}.crt"]
        options += [f"--{end}-ssl-ca={trusted}", f"--{end}-ssl-request-cert"]
        options += [f"--{end}-ssl-reject-unauthorized"]
    return options


def with_names(directory: Path, command: Sequence[str]) -> list[str]:
    """Return a command that asks the cluster's DNS for names, as in a pod."""
    script = f'mount --bind {directory}/resolv.conf /etc/resolv.conf && exec "$@"'
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *command]


@contextmanager
def prepared(api: Api, directory: Path, hub: int, service: int) -> Iterator[None]:
    """Make the certificates; hub and service have names, and these ports, until the end."""
    (directory / "resolv.conf").write_text(names.resolver(HUB_NAMESPACE), encoding="ascii")
    _make_certificates(directory)
    with (
        names.answering(api),
        names.given(api, "hub", HUB_NAMESPACE, hub),
        names.given(api, "gpulease", OWN_NAMESPACE, service),
    ):
        yield


def _make_certificates(directory: Path) -> None:
    environment = {**os.environ, "SITE_PASSWORD": "-", "SITE_SERVICE_TOKEN": "-" * 32}
    generate = ["-m", "jupyterhub", "-f", "jupyterhub_config.py", "--generate-certs"]
    certipy = "from certipy.command_line import main; main()"
    sign = ["-c", certipy, _PAIR, "--ca-name=hub-ca", f"--store-dir={_STORE}"]
    for command in (generate, [*sign, f"--alt-names=DNS:{SERVICE}"]):
        done = subprocess.run(
            [sys.executable, *command],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
