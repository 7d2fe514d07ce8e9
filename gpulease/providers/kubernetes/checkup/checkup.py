"""Is gpulease installed rightly on this cluster?  Looked at as the lease service itself sees it.

Each question is put to the API server with the service's own few rights, mostly by dry run, and
comes with what to do.  Nothing is changed.  Of the NetworkPolicies of a namespace of servers their
form is read: which connections they must let through, and which they must not.
"""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

from gpulease.protocol import labels
from gpulease.protocol.names import ENV_SERVICE_URL
from gpulease.providers.kubernetes.api import client
from gpulease.providers.kubernetes.api.client import (
    CLAIMS,
    NETWORK_POLICIES,
    NODES,
    PODS,
    ClientError,
    KubernetesAPI,
    Manifest,
    may,
    plain,
)
from gpulease.providers.kubernetes.checkup.pods import Result, examine_pods
from gpulease.providers.kubernetes.manifests import pod_network
from gpulease.providers.kubernetes.manifests.manifest import PodSettings
from gpulease.providers.kubernetes.manifests.pod_network import End, lets, selecting

_LEASES: Final = "Run helm upgrade gpulease."
_EGRESS: Final = (
    "Set singleuser.networkPolicy.egress as in the hub's values that gpulease's chart prints."
)
_SERVER_LABELS: Final = {"component": "singleuser-server"}
_METADATA: Final = End(address="169.254.169.254")
_DNS: Final = End("kube-system", {"k8s-app": "kube-dns"})


@dataclass(frozen=True)
class Fault:
    """What the policies do wrong, and what to do about it."""

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


#: What is watched in the servers' namespace, or in the whole cluster where there are several.
WIDE: Final = ("events", "resourcequotas")
#: What the service needs: verb, API group, resource, and whether in the servers' namespaces alone.
NEEDS: Final = (
    *(("get", "", "pods", True), ("create", "", "pods", True), ("delete", "", "pods", True)),
    *((verb, "", kind, True) for kind in WIDE for verb in ("list", "watch")),
    ("get", "", "persistentvolumeclaims", True),
    ("create", "resource.k8s.io", "resourceclaimtemplates", True),
    ("list", "networking.k8s.io", "networkpolicies", True),
    *((verb, "", kind, False) for kind in ("nodes", "pods") for verb in ("list", "watch")),
    ("get", "", "persistentvolumes", False),
    *(
        (verb, "resource.k8s.io", kind, False)
        for kind in ("resourceslices", "resourceclaims")
        for verb in ("list", "watch")
    ),
    ("create", "authentication.k8s.io", "tokenreviews", False),
)
#: What it must not have: then the namespace's Secrets, the hub's among them, would be open to it.
_TOO_MUCH: Final = (("get", "", "secrets", True), ("create", "", "pods/exec", True))
_MANIFESTS: Final = "Install it again: helm upgrade gpulease."
_BY_THE_HUB: Final = (
    "The hub puts it there when a server starts: set userNamespaces.enabled in gpulease's chart,"
    " start the server again, and look into the hub's log."
)
_SERVERS: Final = "component=singleuser-server"
_HOMES_MAX: Final = 20
_NAMES_MAX: Final = 5
#: Namespaces of a pattern that are looked at, each with some twenty questions.
_NAMESPACES_MAX: Final = 10


@dataclass(frozen=True)
class Installation:
    """What is to be there.

    Attributes:
        pod: what all lease pods are.
        namespaces: of the notebook servers, by name or pattern.
        agents: namespace of the node agents.
    """

    pod: PodSettings
    namespaces: Sequence[str]
    agents: str


async def examine(client: KubernetesAPI, wanted: Installation) -> AsyncIterator[Result]:
    """Yield what is found, check by check; an API server that does not answer ends it.

    Raises:
        UnavailableError: there is no answer.
    """
    servers = (await client.list_all(PODS, labels=_SERVERS)).items
    names = plain(wanted.namespaces)
    found, unseen = _matching(servers, wanted)
    for namespace in [*names, *found]:
        own = [each for each in servers if each["metadata"]["namespace"] == namespace]
        next_step = _BY_THE_HUB if namespace in found else _MANIFESTS
        yield await _rights(client, namespace, next_step)
        yield await _no_more_rights(client, namespace)
        async for result in examine_pods(client, wanted.pod, own, namespace, next_step):
            yield result
        policies = await _policies(client, namespace)
        if policies is None:
            said = f"The network policies of {namespace} may not be read."
            yield Result("network", "unknown", said, next_step)
        else:
            yield _network(policies, wanted.pod, own, namespace, next_step)
            yield _server_path(policies, own, namespace)
        yield await _several_nodes(client, wanted.pod, namespace)
        yield await _homes(client, own, namespace)
    if len(wanted.namespaces) > 1 or len(names) < len(wanted.namespaces):
        yield await _wide(client)
    for result in unseen:
        yield result
    yield await _agents(client, wanted.agents)


def _matching(servers: Sequence[Manifest], wanted: Installation) -> tuple[list[str], list[Result]]:
    """Return the namespaces of patterns in which servers run, and what could not be looked at."""
    instance = labels.label_value(wanted.pod.instance)
    inhabited = {
        str(each["metadata"]["namespace"])
        for each in servers
        if (each["metadata"].get("labels") or {}).get(labels.INSTANCE) == instance
    }
    found, unseen = set[str](), []
    for pattern in filter(client.is_pattern, wanted.namespaces):
        mine = {each for each in inhabited if fnmatchcase(each, pattern)}
        found |= mine
        if not mine:
            said = f"No server runs in a namespace {pattern}, so none was looked at."
            unseen.append(Result("namespaces", "unknown", said, "Start a server and look again."))
    looked = sorted(found - set(wanted.namespaces))[:_NAMESPACES_MAX]
    if len(found) > len(looked):
        said = f"{len(looked)} of {len(found)} namespaces with servers were looked at."
        unseen.append(Result("namespaces", "ok", said))
    return looked, unseen


async def _wide(client: KubernetesAPI) -> Result:
    """Whether the service may watch the whole cluster's events and quotas."""
    missing = [
        f"{verb} {kind}"
        for kind in WIDE
        for verb in ("list", "watch")
        if not await may(client, verb, "", kind, "")
    ]
    if missing:
        sentence = f"With several namespaces the service must, and may not, {', '.join(missing)}."
        step = "Set userNamespaces.enabled, or furtherHubs, in gpulease's chart."
        return Result("namespaces", "wrong", sentence, step)
    return Result("namespaces", "ok", "The service may watch events and quotas everywhere.")


async def _rights(client: KubernetesAPI, namespace: str, next_step: str) -> Result:
    missing = [
        f"{verb} {resource}{' in ' + namespace if inside else ''}"
        for verb, group, resource, inside in NEEDS
        if not await may(client, verb, group, resource, namespace if inside else "")
    ]
    if missing:
        return Result("rights", "wrong", f"The service may not {', '.join(missing)}.", next_step)
    return Result("rights", "ok", f"The service has its rights for {namespace}.")


async def _no_more_rights(client: KubernetesAPI, namespace: str) -> Result:
    extra = [
        f"{verb} {resource}"
        for verb, group, resource, inside in _TOO_MUCH
        if await may(client, verb, group, resource, namespace if inside else "")
    ]
    if extra:
        return Result(
            "least_rights",
            "wrong",
            f"The service may {' and '.join(extra)} in {namespace}, which it never needs.",
            "Remove what gives this account more rights than gpulease's chart does.",
        )
    return Result("least_rights", "ok", f"It can read no Secret of {namespace} and run nothing.")


async def _policies(client: KubernetesAPI, namespace: str) -> Sequence[Manifest] | None:
    """Return the namespace's network policies; ``None`` where they may not be read."""
    try:
        return (await client.list_all(NETWORK_POLICIES, namespace)).items
    except ClientError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return None


def _server_path(
    policies: Sequence[Manifest], servers: Sequence[Manifest], namespace: str
) -> Result:
    """How a server that runs now reaches the service, and whether it may."""
    for each in servers:
        for entry in each["spec"]["containers"][0].get("env") or ():
            if entry["name"] == ENV_SERVICE_URL and entry.get("value"):
                marks = each["metadata"].get("labels") or {}
                found = server_path(policies, entry["value"], marks, namespace)
                if isinstance(found, str):
                    return Result("server_path", "ok", found)
                return Result("server_path", "wrong", found.sentence, found.next_step)
    said = f"No server in {namespace} was told where the service is."
    return Result("server_path", "unknown", said, "Start a server and look again.")


def _network(
    policies: Sequence[Manifest],
    settings: PodSettings,
    servers: Sequence[Manifest],
    namespace: str,
    next_step: str,
) -> Result:
    """Whether the network policies, by their form, fit the traffic of leases."""
    marks = next((each["metadata"].get("labels") for each in servers), None)
    found = faults(policies, settings, namespace, marks)
    if found:
        said = " ".join(each.sentence for each in found)
        steps = " ".join(dict.fromkeys(each.next_step for each in found))
        return Result(
            "network", "wrong", said, f"{steps} {next_step}" if next_step == _BY_THE_HUB else steps
        )
    return Result(
        "network",
        "ok",
        f"By the network policies of {namespace} lease pods reach the service, and servers lease"
        " pods. Whether the network enforces them and carries that traffic only a lease shows.",
    )


async def _several_nodes(client: KubernetesAPI, settings: PodSettings, namespace: str) -> Result:
    """Whether leases may have several pods that talk to each other, within their bounds."""
    if not await pod_network.may_make(client, namespace):
        said = f"Requests for several nodes (--nodes) are refused in {namespace}"
        return Result("several_nodes", "ok", f"{said}; {pod_network.SWITCH} allows them.")
    wrong = await pod_network.refused(client, namespace, settings.instance)
    if wrong:
        said = f"The service lets the pods of a lease talk to each other, but {wrong}."
        return Result("several_nodes", "wrong", said, f"Set {pod_network.SWITCH}.")
    return Result("several_nodes", "ok", f"The pods of one lease in {namespace} may talk.")


async def _homes(client: KubernetesAPI, servers: Sequence[Manifest], namespace: str) -> Result:
    """How many of the homes in use could be mounted beside their server."""
    names = {
        source["persistentVolumeClaim"]["claimName"]
        for server in servers
        for source in server["spec"].get("volumes") or ()
        if "persistentVolumeClaim" in source
    }
    once = []
    for name in sorted(names)[:_HOMES_MAX]:
        try:
            claim = await client.get(CLAIMS, name, namespace)
        except ClientError as error:
            return Result("volumes", "unknown", f"Claim {name}: {error.message}")
        if "ReadWriteMany" not in (claim["spec"].get("accessModes") or ()):
            once.append(name)
    if not names:
        return Result("volumes", "unknown", f"No server in {namespace} has a claim.")
    if once:
        return Result(
            "volumes",
            "ok",
            f"{len(once)} of {min(len(names), _HOMES_MAX)} claims in {namespace} are for one node:"
            " such a home is mirrored unless its node has the GPU.",
        )
    return Result("volumes", "ok", f"The homes in {namespace} can be mounted by lease pods.")


async def _agents(client: KubernetesAPI, namespace: str) -> Result:
    nodes = {
        str(node["metadata"]["name"])
        for node in (await client.list_all(NODES)).items
        if _has_gpus(node)
    }
    selector = f"{labels.NAME}={labels.APP},{labels.COMPONENT}={labels.AGENT_COMPONENT}"
    pods = (await client.list_all(PODS, labels=selector)).items
    watched = {
        str(pod["spec"].get("nodeName", ""))
        for pod in pods
        if pod["metadata"]["namespace"] == namespace and pod["status"].get("phase") == "Running"
    }
    if not nodes:
        sentence = "No node offers a GPU."
        return Result("agents", "wrong", sentence, "Install the device plugin of your GPUs.")
    if missing := sorted(nodes - watched):
        named = ", ".join(missing[:_NAMES_MAX])
        more = f" and {len(missing) - _NAMES_MAX} more" if len(missing) > _NAMES_MAX else ""
        return Result(
            "agents",
            "wrong",
            f"No agent runs on {named}{more}: leases there are never idle.",
            f"kubectl --namespace {namespace} describe daemonset gpulease-agent",
        )
    return Result("agents", "ok", f"An agent runs on each of {len(nodes)} nodes with GPUs.")


def _has_gpus(node: Manifest) -> bool:
    offered = node["status"].get("allocatable") or {}
    marked = (node["metadata"].get("labels") or {}).get("nvidia.com/gpu.present") == "true"
    return marked or any(
        "/" in name and ("gpu" in name or "mig-" in name) and str(amount) != "0"
        for name, amount in offered.items()
    )
