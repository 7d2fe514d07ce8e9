"""Do the NetworkPolicies fit gpulease's traffic?  Their form alone, of one namespace of servers.

Owns which connections there must be and which there must not, and what mends each.  Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from gpulease import labels
from gpulease.providers.kubernetes.manifests.manifest import PodSettings
from gpulease.providers.kubernetes.manifests.network_form import End, lets, selecting

_LEASES: Final = "Run helm upgrade gpulease."
_EGRESS: Final = (
    "Set singleuser.networkPolicy.egress as in the hub's values that gpulease's chart prints."
)
_SERVER_LABELS: Final = {"component": "singleuser-server"}
_METADATA: Final = End(address="169.254.169.254")
_DNS: Final = End("kube-system", {"k8s-app": "kube-dns"})


@dataclass(frozen=True)
class Fault:
    """What the policies do wrong, and what mends it."""

    sentence: str
    next_step: str


def service_end(url: str) -> tuple[End | None, int]:
    """Return the service as lease pods reach it, and its port; ``None`` for a public name."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = parts.hostname or ""
    try:
        return End(address=str(ipaddress.ip_address(host))), port
    except ValueError:
        name = host.split(".")
    if len(name) < 2 or (len(name) > 2 and name[2] != "svc"):
        return None, port
    marks = {labels.NAME: labels.APP, labels.COMPONENT: labels.SERVICE_COMPONENT}
    return End(name[1], marks), port


def faults(
    policies: Sequence[Mapping[str, Any]],
    settings: PodSettings,
    namespace: str,
    server: Mapping[str, str] | None = None,
) -> list[Fault]:
    """Return what is wrong with the policies of a namespace.

    Args:
        policies: all of them.
        settings: of lease pods.
        namespace: in which servers and lease pods run.
        server: labels of a server's pod, where one is known.
    """
    marks = {
        labels.NAME: labels.APP,
        labels.COMPONENT: labels.LEASE_COMPONENT,
        labels.INSTANCE: labels.label_value(settings.instance),
    }
    lease = End(namespace, marks)
    home = End(namespace, server or _SERVER_LABELS)
    lowest, _, highest = settings.ports.partition("-")
    ports = (int(lowest), int(highest or lowest))
    found = []
    for direction, words in (("Egress", "reach"), ("Ingress", "be reached by")):
        if not selecting(policies, lease, direction):  # type: ignore[arg-type]
            said = f"No network policy of {namespace} bounds what lease pods may {words}."
            found.append(Fault(said, _LEASES))
    found += _to_the_service(policies, lease, settings.service_url)
    if not all(lets(policies, lease, "Ingress", home, (port, "TCP")) for port in ports):
        said = f"Lease pods of {namespace} take nothing from servers on ports {settings.ports}."
        found.append(Fault(said, f"{_LEASES} Its ports are those of KubernetesSettings.ports."))
    if not all(lets(policies, home, "Egress", lease, (port, "TCP")) for port in ports):
        names = ", ".join(
            str(each["metadata"]["name"]) for each in selecting(policies, home, "Egress")
        )
        said = f"Servers of {namespace} may not reach lease pods on ports {settings.ports}: {names}"
        step = _EGRESS
        found.append(Fault(f"{said}.", step))
    if selecting(policies, lease, "Egress") and lets(
        policies, lease, "Egress", _METADATA, (80, "TCP")
    ):
        said = f"Lease pods of {namespace} may reach the metadata service {_METADATA.address}."
        found.append(Fault(said, f"Except 169.254.0.0/16 wherever they may go. {_LEASES}"))
    return found


def server_path(
    policies: Sequence[Mapping[str, Any]], url: str, marks: Mapping[str, str], namespace: str
) -> Fault | str:
    """Return how servers reach the service, as a sentence, or what keeps them from it.

    Args:
        policies: of the servers' namespace.
        url: of the service as a server was told it.
        marks: the labels of that server's pod.
        namespace: in which it runs.
    """
    service, port = service_end(url)
    if service is None:
        how = "by a name outside the cluster or by the hub's proxy"
        if urlsplit(url).scheme == "https":
            return f"Servers of {namespace} reach the service {how}, at {url}."
        said = f"Servers of {namespace} are told {url}, {how}, which sends http to https."
        step = "Leave server_service_url out of setup_gpulease: by default it is the service's own."
        return Fault(said, step)
    if lets(policies, End(namespace, marks), "Egress", service, (port, "TCP")):
        return f"Servers of {namespace} reach the service directly, at {url}."
    said = f"The network policies of {namespace} let no server reach the service at {url}."
    return Fault(said, _EGRESS)


def _to_the_service(policies: Sequence[Mapping[str, Any]], lease: End, url: str) -> list[Fault]:
    service, port = service_end(url)
    found = []
    if service is not None and not lets(policies, lease, "Egress", service, (port, "TCP")):
        said = f"Lease pods of {lease.namespace} may not reach the service at {url}."
        found.append(Fault(said, f"Let them out to it on port {port}. {_LEASES}"))
    named = service is None or bool(service.namespace)
    if named and not lets(policies, lease, "Egress", _DNS, (53, "UDP")):
        said = f"Lease pods of {lease.namespace} may not reach DNS, and the service has a name."
        found.append(Fault(said, f"Let them out to your cluster's DNS on port 53. {_LEASES}"))
    return found
