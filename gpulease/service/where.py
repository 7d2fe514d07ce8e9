"""Where leases run: the local provider or the Kubernetes one, made from the service's options.

Owns the choice and what a provider is built from.  Refuses to start anything else and to read
options from anywhere: ``app`` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from gpulease import labels
from gpulease.errors import GPULeaseError
from gpulease.providers.base import Provider, SupervisorLink
from gpulease.service.policies import Policies

LOCAL = "local"
KUBERNETES = "kubernetes"


@dataclass(frozen=True)
class ClusterOptions:
    """What the service is told of its cluster; ``app`` says what each means."""

    kubeconfig: str = ""
    context: str = ""
    namespaces: tuple[str, ...] = ()
    instance: str = labels.APP
    lease_url: str = ""
    image: str = ""
    priority_class: str = ""
    runtime_class: str = ""
    home: str = "/home/jovyan"
    ports: str = "8890-8990"
    park: str = ""
    mirror_limit: int = 2 * 2**30  # bytes
    bind_timeout: float = 10.0
    attach_timeout: float = 20.0
    rate: float = 10.0
    agents: str = "gpulease/gpulease-agent"


async def open_kubernetes(
    options: ClusterOptions, link: SupervisorLink, policies: Policies, wake: Callable[[], None]
) -> Provider:
    """Return the Kubernetes provider once its nodes and pods are known.

    Raises:
        GPULeaseError: ``bad_option`` where an option is missing or cannot be read.
    """
    from gpulease.providers.kubernetes.manifest import PodSettings
    from gpulease.providers.kubernetes.official import OfficialClient
    from gpulease.providers.kubernetes.provider import KubernetesProvider, Settings

    _check(options)
    namespace, _, account = options.agents.partition("/")
    settings = Settings(
        pod=PodSettings(
            service_url=options.lease_url,
            instance=options.instance,
            image=options.image,
            priority_class=options.priority_class,
            runtime_class=options.runtime_class,
            home=options.home,
            ports=options.ports,
            park=options.park,
            mirror_limit=options.mirror_limit,
        ),
        namespaces=options.namespaces,
        bind_timeout=options.bind_timeout,
        attach_timeout=options.attach_timeout,
        rate=options.rate,
        agents=(namespace, account),
    )
    client = OfficialClient(options.kubeconfig, options.context)
    provider = KubernetesProvider(
        client, link, settings, classes=lambda: policies.classes, wake=wake
    )
    await provider.open()
    return provider


def _check(options: ClusterOptions) -> None:
    parts = urlsplit(options.lease_url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise _bad(
            "lease_url",
            options.lease_url,
            "the service's address as pods reach it, such as"
            " http://gpulease.gpulease:9980/services/gpulease/",
        )
    if not options.namespaces:
        raise _bad("namespaces", "empty", "the namespaces in which notebook servers run")
    if "/" not in options.agents:
        raise _bad("agents", options.agents, "NAMESPACE/SERVICEACCOUNT of the node agents")


def _bad(name: str, given: str, wanted: str) -> GPULeaseError:
    return GPULeaseError(
        "bad_option",
        f"{name} is {given!r}.",
        next_step=f"Give {wanted}.",
        numbers={"option": name},
    )
