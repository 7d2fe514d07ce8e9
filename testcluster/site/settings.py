"""The configuration of hub and service on the test cluster, as a site would write it."""

from dataclasses import dataclass
from pathlib import Path

from testcluster.images import GPULEASE_IMAGE
from testcluster.layout import NODE_ADDRESS
from testcluster.names import pod_settings
from testcluster.site import encryption
from testcluster.site.shipped import HOMES, HUB_NAMESPACE, OWN_NAMESPACE

PREFIX = "/services/gpulease/"


@dataclass(frozen=True)
class Ports:
    """Where the site's processes listen, at the node's address."""

    public: int
    hub: int
    proxy: int
    service: int
    agent: int


@dataclass(frozen=True)
class Settings:
    """What differs between sites of the tests.

    Attributes:
        policy: the policy document.
        tick: seconds between rounds of the service.
        extra_hub: further lines of the hub's configuration.
        extra_service: further lines of the service's.
        mount_homes: whether servers have a home on a volume of their own.
        namespaces: in which servers run, for the service.
        encrypted: whether hub, proxy and servers speak TLS among each other (`internal_ssl`).
    """

    directory: Path
    ports: Ports
    hub_token: str
    policy: str
    tick: float = 0.5
    extra_hub: str = ""
    extra_service: str = ""
    mount_homes: bool = True
    namespaces: tuple[str, ...] = (HUB_NAMESPACE,)
    encrypted: bool = False


def url(port: int, path: str = "/") -> str:
    return f"http://{NODE_ADDRESS}:{port}{path}"


def hub_config(settings: Settings) -> str:
    """Return jupyterhub_config.py."""
    ports, directory = settings.ports, settings.directory
    return f"""
import os
from gpulease.hub import setup_gpulease

c = get_config()
c.JupyterHub.bind_url = "{url(ports.public)}"
{encryption.hub_config(ports.hub) if settings.encrypted else _hub_address(ports.hub)}
c.JupyterHub.db_url = "sqlite:///{directory}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{directory}/cookie_secret"
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.cleanup_servers = False
c.JupyterHub.default_url = "/hub/home"
c.DummyAuthenticator.password = os.environ["SITE_PASSWORD"]
c.Authenticator.allow_all = True
c.Authenticator.admin_users = {{"admin"}}
c.ConfigurableHTTPProxy.should_start = False
c.ConfigurableHTTPProxy.api_url = "{proxy_api(settings)}"

c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
c.KubeSpawner.namespace = "{HUB_NAMESPACE}"
c.KubeSpawner.image = "{GPULEASE_IMAGE}"
c.KubeSpawner.image_pull_policy = "Never"
c.KubeSpawner.cmd = ["jupyterhub-singleuser"]
c.KubeSpawner.uid = 1000
c.KubeSpawner.gid = 100
c.KubeSpawner.fs_gid = 100
c.KubeSpawner.working_dir = "/home/jovyan"
c.KubeSpawner.extra_pod_config = {{"terminationGracePeriodSeconds": 5, **{_names(settings)}}}
c.KubeSpawner.http_timeout = 120
c.KubeSpawner.start_timeout = 180
{_homes() if settings.mount_homes else ""}
{settings.extra_hub}
setup_gpulease(
    c,
    service_url="{service_url(settings, "")}",
    service_token=os.environ["SITE_SERVICE_TOKEN"],
    admins=["admin"],
    whole_notebooks=True,
)
"""


def _hub_address(port: int) -> str:
    return f'c.JupyterHub.hub_bind_url = "{url(port)}"'


def service_url(settings: Settings, path: str = "/") -> str:
    """Return where everybody but browsers reaches the lease service."""
    port = settings.ports.service
    return encryption.service_url(port, path) if settings.encrypted else url(port, path)


def _names(settings: Settings) -> dict[str, object]:
    return pod_settings(HUB_NAMESPACE) if settings.encrypted else {"dnsPolicy": "Default"}


def proxy_api(settings: Settings) -> str:
    """Return where the hub sets the proxy's routes."""
    plain = url(settings.ports.proxy)
    return plain.replace("http:", "https:") if settings.encrypted else plain


def hub_url(settings: Settings, path: str = "/") -> str:
    """Return where everybody but browsers reaches the hub."""
    port = settings.ports.hub
    return encryption.hub_url(port, path) if settings.encrypted else url(port, path)


def _homes() -> str:
    return f"""
c.KubeSpawner.pvc_name_template = "claim-{{username}}"
c.KubeSpawner.storage_pvc_ensure = True
c.KubeSpawner.storage_class = "{HOMES}"
c.KubeSpawner.storage_access_modes = ["ReadWriteMany"]
c.KubeSpawner.storage_capacity = "1Gi"
c.KubeSpawner.volumes = [
    {{"name": "home", "persistentVolumeClaim": {{"claimName": "claim-{{username}}"}}}}
]
c.KubeSpawner.volume_mounts = [{{"name": "home", "mountPath": "/home/jovyan"}}]
"""


def service_config(settings: Settings) -> str:
    """Return the service's traitlets file."""
    ports, directory = settings.ports, settings.directory
    return f"""
c = get_config()
c.GPULeaseService.database_url = "sqlite:///{directory}/gpulease.sqlite"
c.GPULeaseService.service_url = "{url(ports.service, "")}"
c.GPULeaseService.first_policy_file = "{directory}/policy.yaml"
c.GPULeaseService.tick = {settings.tick}
c.GPULeaseService.hub_seconds = 2.0
c.GPULeaseService.provider = "kubernetes"
c.KubernetesSettings.kubeconfig = "{directory}/service.kubeconfig"
c.KubernetesSettings.namespaces = {list(settings.namespaces)}
c.KubernetesSettings.agent_account = "{OWN_NAMESPACE}/gpulease-agent"
c.KubernetesSettings.lease_service_url = "{service_url(settings, PREFIX)}"
c.KubernetesSettings.priority_class = "gpulease-lease"
c.KubernetesSettings.park = "/home/jovyan/.gpulease/parked"
{encryption.service_config(ports.service) if settings.encrypted else ""}
{settings.extra_service}
"""


def service_environment(settings: Settings) -> dict[str, str]:
    """Return what the hub's side tells the service."""
    return {
        "JUPYTERHUB_SERVICE_NAME": "gpulease",
        "JUPYTERHUB_SERVICE_PREFIX": PREFIX,
        "JUPYTERHUB_CLIENT_ID": "service-gpulease",
        "JUPYTERHUB_API_URL": hub_url(settings, "/hub/api"),
        "JUPYTERHUB_BASE_URL": "/",
        "JUPYTERHUB_API_TOKEN": settings.hub_token,
        **(encryption.service_environment(settings.directory) if settings.encrypted else {}),
    }
