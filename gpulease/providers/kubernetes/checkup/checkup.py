"""Is gpulease installed rightly on this cluster?  Looked at as the lease service itself sees it.

Owns the questions, how each is put to the API server with the service's own few rights (mostly by
dry run), and what mends what is wrong.  Changes nothing.  Refuses to know the command line.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from http import HTTPStatus
from typing import Final

from gpulease import labels
from gpulease.protocol import ENV_SERVICE_URL
from gpulease.providers.kubernetes.api import namespaces
from gpulease.providers.kubernetes.api.client import (
    CLAIMS,
    NETWORK_POLICIES,
    NODES,
    PODS,
    Client,
    ClientError,
    Manifest,
)
from gpulease.providers.kubernetes.api.rights import may
from gpulease.providers.kubernetes.checkup.findings import Result
from gpulease.providers.kubernetes.checkup.network import faults, server_path
from gpulease.providers.kubernetes.checkup.pods import examine_pods
from gpulease.providers.kubernetes.manifests import pod_network
from gpulease.providers.kubernetes.manifests.manifest import PodSettings

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


async def examine(client: Client, wanted: Installation) -> AsyncIterator[Result]:
    """Yield what is found, check by check; an API server that does not answer ends it.

    Raises:
        UnavailableError: there is no answer.
    """
    servers = (await client.list_all(PODS, labels=_SERVERS)).items
    plain = namespaces.plain(wanted.namespaces)
    found, unseen = _matching(servers, wanted)
    for namespace in [*plain, *found]:
        own = [each for each in servers if each["metadata"]["namespace"] == namespace]
        mend = _BY_THE_HUB if namespace in found else _MANIFESTS
        yield await _rights(client, namespace, mend)
        yield await _no_more_rights(client, namespace)
        async for result in examine_pods(client, wanted.pod, own, namespace, mend):
            yield result
        policies = await _policies(client, namespace)
        if policies is None:
            said = f"The network policies of {namespace} may not be read."
            yield Result("network", "unknown", said, mend)
        else:
            yield _network(policies, wanted.pod, own, namespace, mend)
            yield _server_path(policies, own, namespace)
        yield await _several_nodes(client, wanted.pod, namespace)
        yield await _homes(client, own, namespace)
    if len(wanted.namespaces) > 1 or len(plain) < len(wanted.namespaces):
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
    for pattern in filter(namespaces.is_pattern, wanted.namespaces):
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


async def _wide(client: Client) -> Result:
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


async def _rights(client: Client, namespace: str, mend: str) -> Result:
    missing = [
        f"{verb} {resource}{' in ' + namespace if inside else ''}"
        for verb, group, resource, inside in NEEDS
        if not await may(client, verb, group, resource, namespace if inside else "")
    ]
    if missing:
        return Result("rights", "wrong", f"The service may not {', '.join(missing)}.", mend)
    return Result("rights", "ok", f"The service has its rights for {namespace}.")


async def _no_more_rights(client: Client, namespace: str) -> Result:
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


async def _policies(client: Client, namespace: str) -> Sequence[Manifest] | None:
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
    mend: str,
) -> Result:
    """Whether the network policies, by their form, fit the traffic of leases."""
    marks = next((each["metadata"].get("labels") for each in servers), None)
    found = faults(policies, settings, namespace, marks)
    if found:
        said = " ".join(each.sentence for each in found)
        steps = " ".join(dict.fromkeys(each.next_step for each in found))
        return Result("network", "wrong", said, f"{steps} {mend}" if mend == _BY_THE_HUB else steps)
    return Result(
        "network",
        "ok",
        f"By the network policies of {namespace} lease pods reach the service, and servers lease"
        " pods. Whether the network enforces them and carries that traffic only a lease shows.",
    )


async def _several_nodes(client: Client, settings: PodSettings, namespace: str) -> Result:
    """Whether leases may have several pods that talk to each other, within their bounds."""
    if not await pod_network.may_make(client, namespace):
        said = f"Requests for several nodes (--nodes) are refused in {namespace}"
        return Result("several_nodes", "ok", f"{said}; {pod_network.SWITCH} allows them.")
    wrong = await pod_network.refused(client, namespace, settings.instance)
    if wrong:
        said = f"The service lets the pods of a lease talk to each other, but {wrong}."
        return Result("several_nodes", "wrong", said, f"Set {pod_network.SWITCH}.")
    return Result("several_nodes", "ok", f"The pods of one lease in {namespace} may talk.")


async def _homes(client: Client, servers: Sequence[Manifest], namespace: str) -> Result:
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


async def _agents(client: Client, namespace: str) -> Result:
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
