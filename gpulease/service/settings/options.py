"""A service's options, as plain values, and what it makes of them by itself.

It makes its own secret: credentials of local leases and browsers' cookies are derived from it.
The secret stands in a file of its own, not in the database: a reader of a backup or of the tables
has no credential by that.  Of leases on Kubernetes the settings are traitlets, and the provider is
made from them; the ``kubernetes`` package is imported only where a cluster is used.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy.engine import make_url
from traitlets import Dict, Float, Integer, List, Unicode, default
from traitlets.config import Configurable

from gpulease.errors import GPULeaseError
from gpulease.gpus.base import Probe
from gpulease.gpus.nvml import NVMLProbe
from gpulease.gpus.simulated import SimulatedProbe
from gpulease.policy.health import PULL_MAX
from gpulease.policy.model import GPUClass, TimeOuts
from gpulease.protocol import labels
from gpulease.providers.base import Provider, SupervisorLink
from gpulease.providers.kubernetes.manifests.manifest import SERVICE_ACCOUNT, PodSettings
from gpulease.service.metrics import Metrics
from gpulease.service.settings.reading import FurtherHub, bad_option, size_option
from gpulease.store import Ages
from gpulease.system.private_files import make_private, require_private

#: Seconds that placing a pod, starting and connecting may take beside the pull of its image.
_START_SLACK = 300.0


class KubernetesSettings(Configurable):
    """How the lease service uses a cluster."""

    kubeconfig = Unicode(
        "", help="A kubeconfig file; by default the service's own account in the cluster."
    ).tag(config=True)
    context = Unicode("", help="Which of the kubeconfig's contexts; by default the current.").tag(
        config=True
    )
    namespaces = List(
        Unicode(),
        help="Namespaces in which notebook servers run, or patterns of them such as jupyter-*; "
        "by default the service's own.",
    ).tag(config=True)
    instance = Unicode(
        labels.APP,
        help="Tells the pods of this hub and service from those of another in the same cluster; "
        "the spawner's gpulease_instance is the same.",
    ).tag(config=True)
    lease_service_url = Unicode(
        "", help="How lease pods reach this service: scheme, host, port and prefix."
    ).tag(config=True)
    agent_account = Unicode(
        "",
        help="NAMESPACE/NAME of the node agents' service account; by default gpulease-agent in the "
        "service's own namespace.",
    ).tag(config=True)
    service_account = Unicode(
        SERVICE_ACCOUNT, help="Service account of lease pods; it needs no right at all."
    ).tag(config=True)
    image = Unicode(
        "", help="Image of lease pods whose class names none; empty: the server's."
    ).tag(config=True)
    priority_class = Unicode(
        "", help="PriorityClass of lease pods whose class names none; empty: the cluster's default."
    ).tag(config=True)
    runtime_class = Unicode(
        "", help="RuntimeClass of lease pods whose class names none; empty: the cluster's default."
    ).tag(config=True)
    home = Unicode("/home/jovyan", help="Path of the student's home in the servers.").tag(
        config=True
    )
    ports = Unicode(
        "8890-8990", help="Ports of the companions, as network policies name them."
    ).tag(config=True)
    park = Unicode(
        "", help="Directory in lease pods where values that cannot return are parked; empty: none."
    ).tag(config=True)
    mirror_limit = Unicode(
        "2GiB", help="How much a mirror of a home that cannot be mounted may hold."
    ).tag(config=True)
    shared_memory = Unicode(
        "1Gi", help="Size of /dev/shm in lease pods; empty: the runtime's."
    ).tag(config=True)
    environment = Dict(
        value_trait=Unicode(),
        key_trait=Unicode(),
        help="Further environment variables of every lease pod.",
    ).tag(config=True)
    pods_per_second = Float(10.0, min=0.1, help="Lease pods created a second, at most.").tag(
        config=True
    )
    bind_seconds = Float(
        10.0, min=1.0, help="Seconds a lease pod may wait for its place on a node."
    ).tag(config=True)
    attach_seconds = Float(
        20.0, min=1.0, help="Seconds a home may take to attach before it is mirrored."
    ).tag(config=True)
    token_seconds = Integer(
        3600, min=600, help="Seconds that a lease pod's projected token is valid."
    ).tag(config=True)

    @default("namespaces")
    def _namespaces(self) -> list[str]:
        return [labels.own_namespace()]

    @default("agent_account")
    def _agent_account(self) -> str:
        return f"{labels.own_namespace()}/gpulease-agent"

    def pod_settings(self) -> PodSettings:
        """Return what is said of all lease pods.

        Raises:
            GPULeaseError: ``bad_option``.
        """
        where = urlsplit(self.lease_service_url)
        if where.scheme not in {"http", "https"} or not where.hostname:
            raise bad_option(
                "KubernetesSettings.lease_service_url",
                self.lease_service_url,
                "the address under which pods reach the service, such as "
                "http://gpulease.jupyterhub:9980/services/gpulease/",
            )
        mirror_limit = size_option("KubernetesSettings.mirror_limit", self.mirror_limit)
        return PodSettings(
            service_url=f"{self.lease_service_url.rstrip('/')}/",
            instance=self.instance,
            image=self.image,
            service_account=self.service_account,
            priority_class=self.priority_class,
            runtime_class=self.runtime_class,
            home=self.home,
            ports=self.ports,
            start_max=PULL_MAX + _START_SLACK,
            mirror_limit=mirror_limit,
            park=self.park,
            shared_memory=self.shared_memory,
            token_seconds=self.token_seconds,
            environment=tuple(sorted(self.environment.items())),
        )

    def all_namespaces(self, hubs: Sequence[FurtherHub]) -> tuple[str, ...]:
        """Return where servers of the first hub run, and those of further ones."""
        return (*self.namespaces, *(each for hub in hubs for each in hub.namespaces))

    def provider(
        self,
        link: SupervisorLink,
        classes: Callable[[], Sequence[GPUClass]],
        images: Callable[[], Sequence[str]],
        wake: Callable[[], None],
        metrics: Metrics,
        *,
        elastic: Callable[[], bool] = lambda: False,
        hubs: Sequence[FurtherHub] = (),
    ) -> Provider:
        """Return the provider, not opened yet.

        Raises:
            GPULeaseError: ``bad_option``; ``no_kubernetes`` where the package is not installed.
        """
        pod = self.pod_settings()
        namespace, _, name = self.agent_account.partition("/")
        if not namespace or not name:
            raise bad_option(
                "KubernetesSettings.agent_account", self.agent_account, "NAMESPACE/NAME"
            )
        try:
            import kubernetes  # noqa: F401 (said here rather than at the first call)

            from gpulease.providers.kubernetes.api.official import OfficialClient
            from gpulease.providers.kubernetes.manifests.manifest import Settings
            from gpulease.providers.kubernetes.provider import KubernetesProvider
        except ImportError as error:
            raise GPULeaseError(
                "no_kubernetes",
                f"Leases on Kubernetes need a package that is not installed: {error.name}.",
                next_step="Install gpulease[kubernetes].",
            ) from error
        settings = Settings(
            pod=pod,
            namespaces=self.all_namespaces(hubs),
            bind_timeout=self.bind_seconds,
            attach_timeout=self.attach_seconds,
            rate=self.pods_per_second,
            agents=(namespace, name),
            hubs={hub.name: hub.namespaces for hub in hubs},
        )
        client = OfficialClient(self.kubeconfig, self.context, observe=metrics.called)
        return KubernetesProvider(
            client, link, settings, classes=classes, images=images, elastic=elastic, wake=wake
        )


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """The service's options; ``settings`` says what each means."""

    host: str
    port: int
    prefix: str
    hub_path: str
    database_url: str
    key_file: Path | None = None  # None: beside the database
    hub_origin: str = ""
    docs_url: str = ""  # where people read more; "" is the service itself
    card_acts: bool = False  # the card on the hub's page may change something
    tls: ssl.SSLContext | None = None  # what is shown to whoever connects; None listens without
    gpus: int = 0
    gpu_name: str = "Simulated GPU"
    gpu_memory: int = 16 * 2**30
    simulate: bool = False
    policy_file: Path | None = None
    first_policy_file: Path | None = None
    first_time_outs: Mapping[str, float] = field(default_factory=dict)
    park_dir: str = ""
    park_limit: int = 2 * 2**30  # bytes
    park_expiry: float = 7 * 86400.0  # seconds
    tick: float = 1.0
    hub_seconds: float = 10.0
    lost_seconds: float = 15.0
    ages: Ages = field(default_factory=Ages)
    connections_max: int = 2000
    metrics_at: tuple[str, int] | None = None  # host and port for Prometheus alone
    request_seconds: float = 30.0  # for a request's headers, and for its body
    smtp: str = ""  # the relay by which people are told; "" sends no e-mail
    smtp_login: tuple[str, str] | None = field(default=None, repr=False)
    mail_from: str = "gpulease@localhost"
    webhook: str = ""  # where notices are posted
    cluster: KubernetesSettings | None = None  # where leases are pods; None is this machine
    hubs: tuple[FurtherHub, ...] = ()  # that use it beside the first


def secret_of(options: Options, hub_token: str) -> bytes:
    """Return what credentials and cookies are derived from.

    Lease pods prove themselves by tokens of the cluster's, so that there only cookies depend on it:
    the hub's token serves, and no file has to be kept.

    Raises:
        GPULeaseError: ``bad_key_file``, ``file_open_to_others``.
    """
    if options.key_file is None and options.cluster is not None:
        return hmac.new(hub_token.encode(), b"gpulease", hashlib.sha256).digest()
    return read_or_make_key(options.key_file or key_path(options.database_url))


def choose_probe(options: Options) -> Probe:
    """Return what reads the devices: the driver where there is one, else simulated ones.

    A driver that does not work stays the choice: nobody is given a simulated GPU for a real one.
    """
    if not options.simulate:
        real = NVMLProbe()
        if real.inventory() or real.installed or not options.gpus:
            return real
        log.info("no NVIDIA driver (%s): simulated GPUs are offered", real.problem)
        real.close()
    return SimulatedProbe(options.gpus, name=options.gpu_name, memory=options.gpu_memory)


def first_time_outs(given: Mapping[str, float]) -> TimeOuts:
    """Return the time-outs of a first policy.

    Raises:
        GPULeaseError: ``bad_option``: there is none of such a name.
    """
    unknown = set(given) - set(TimeOuts.__dataclass_fields__)
    if unknown:
        raise GPULeaseError(
            "bad_option",
            f"There are no time-outs named {', '.join(sorted(unknown))}.",
            next_step=f"Use some of {', '.join(sorted(TimeOuts.__dataclass_fields__))}.",
        )
    changed: dict[str, Any] = {**given}
    if "keeps" in changed:
        changed["keeps"] = int(changed["keeps"])
    return replace(TimeOuts(), **changed)


_BYTES = 32


def key_path(database_url: str) -> Path:
    """Return where the key lies when no option says it: beside a SQLite file, else here."""
    url = make_url(database_url)
    if url.get_backend_name() == "sqlite" and url.database:
        return Path(f"{url.database}.key")
    return Path("gpulease.key")


def read_or_make_key(path: Path) -> bytes:
    """Return the key; the first call makes it.

    Raises:
        GPULeaseError: ``file_open_to_others``, or ``bad_key_file``: it cannot be read or made, or
            holds something else.
    """
    try:
        make_private(path, f"{secrets.token_hex(_BYTES)}\n".encode())
        require_private(path)
        key = bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it holds no key"
        raise _bad(path, str(why)) from error
    if len(key) != _BYTES:
        raise _bad(path, "it holds no key")
    return key


def _bad(path: Path, why: str) -> GPULeaseError:
    return GPULeaseError(
        "bad_key_file",
        f"The service's key file {path} cannot be used: {why}.",
        next_step="Name a file in a folder that the service may write (GPULeaseService.key_file)."
        " Without its key, running leases end and people log in again.",
    )
