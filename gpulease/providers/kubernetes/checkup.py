"""Is gpulease installed rightly on this cluster?  Looked at as the lease service itself sees it.

Owns the questions, how each is put to the API server with the service's own few rights (mostly by
dry run), and what mends what is wrong.  Changes nothing.  Refuses to know the command line.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from gpulease import labels
from gpulease.providers.kubernetes.client import (
    CLAIMS,
    NODES,
    PODS,
    Client,
    ClientError,
    Manifest,
    Resource,
)
from gpulease.providers.kubernetes.manifest import PodSettings

State = Literal["ok", "wrong", "unknown"]

_REVIEWS: Final = Resource("selfsubjectaccessreviews", "authorization.k8s.io")
#: What the service needs: verb, API group, resource, and whether in the servers' namespaces alone.
NEEDS: Final = (
    *(("get", "", "pods", True), ("create", "", "pods", True), ("delete", "", "pods", True)),
    *(("list", "", "events", True), ("watch", "", "events", True)),
    ("get", "", "persistentvolumeclaims", True),
    ("create", "resource.k8s.io", "resourceclaimtemplates", True),
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
_MANIFESTS: Final = "Apply helm-values anew: kubectl apply -k helm-values."
_SERVERS: Final = "component=singleuser-server"
_HOMES_MAX: Final = 20
_NAMES_MAX: Final = 5


@dataclass(frozen=True)
class Result:
    """One answer: which check, how it stands, in a sentence, and what to do where it is wrong."""

    check: str
    state: State
    sentence: str
    next_step: str = ""


@dataclass(frozen=True)
class Installation:
    """What is to be there.

    Attributes:
        pod: what all lease pods are.
        namespaces: of the notebook servers, by name.
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
    for namespace in wanted.namespaces:
        yield await _rights(client, namespace)
        yield await _no_more_rights(client, namespace)
        servers = (await client.list_all(PODS, labels=_SERVERS)).items
        own = [each for each in servers if each["metadata"]["namespace"] == namespace]
        body = _sample(wanted.pod, namespace, own)
        yield await _taken(client, body, namespace)
        yield await _bounded(client, body, namespace)
        yield await _homes(client, own, namespace)
    yield await _agents(client, wanted.agents)


async def _rights(client: Client, namespace: str) -> Result:
    missing = [
        f"{verb} {resource}{' in ' + namespace if inside else ''}"
        for verb, group, resource, inside in NEEDS
        if not await _may(client, verb, group, resource, namespace if inside else "")
    ]
    if missing:
        return Result("rights", "wrong", f"The service may not {', '.join(missing)}.", _MANIFESTS)
    return Result("rights", "ok", f"The service has its rights for {namespace}.")


async def _no_more_rights(client: Client, namespace: str) -> Result:
    extra = [
        f"{verb} {resource}"
        for verb, group, resource, inside in _TOO_MUCH
        if await _may(client, verb, group, resource, namespace if inside else "")
    ]
    if extra:
        return Result(
            "least_rights",
            "wrong",
            f"The service may {' and '.join(extra)} in {namespace}, which it never needs.",
            "Remove what gives this account more than helm-values/service/rights.yaml.",
        )
    return Result("least_rights", "ok", f"It can read no Secret of {namespace} and run nothing.")


async def _may(client: Client, verb: str, group: str, resource: str, namespace: str) -> bool:
    plain, _, part = resource.partition("/")
    asked = {
        "verb": verb,
        "group": group,
        "resource": plain,
        "subresource": part,
        "namespace": namespace,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in asked.items() if value}},
    }
    answer = await client.create(_REVIEWS, body)
    return bool(answer.get("status", {}).get("allowed"))


def _sample(settings: PodSettings, namespace: str, servers: Sequence[Manifest]) -> Manifest:
    """Return a pod such as a lease's, without its GPU; no image where none is known yet."""
    image = settings.image
    if not image and servers:
        image = str(servers[0]["spec"]["containers"][0]["image"])
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "serviceAccountName": settings.service_account,
        "automountServiceAccountToken": False,
        "containers": [{"name": "companion", "image": image}],
    }
    chosen = {
        "runtimeClassName": settings.runtime_class,
        "priorityClassName": settings.priority_class,
    }
    marks = {
        labels.NAME: labels.APP,
        labels.COMPONENT: labels.LEASE_COMPONENT,
        labels.INSTANCE: labels.label_value(settings.instance),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "gpulease-doctor", "namespace": namespace, "labels": marks},
        "spec": spec | {key: value for key, value in chosen.items() if value},
    }


async def _taken(client: Client, body: Manifest, namespace: str) -> Result:
    """Whether the API server takes a lease pod: account, runtime class, priority, image, quota."""
    if not body["spec"]["containers"][0]["image"]:
        sentence = f"No server runs in {namespace}, so the image of lease pods is not known."
        return Result("lease_pod", "unknown", sentence, "Start a server and look again.")
    said = await _refusal(client, body, namespace)
    if said:
        return Result(
            "lease_pod",
            "wrong",
            f"The API server takes no lease pod in {namespace}: {said}",
            "It names what is missing: the service account (helm-values/leases), a RuntimeClass or"
            " PriorityClass of the settings, a quota, or the lists at the top of the admission"
            " policy gpulease-lease-pods.",
        )
    return Result("lease_pod", "ok", f"A lease pod would be taken in {namespace}.")


async def _bounded(client: Client, body: Manifest, namespace: str) -> Result:
    """Whether the admission policy keeps the service from mounting a Secret."""
    thief = copy.deepcopy(body)
    thief["spec"]["containers"][0]["image"] = body["spec"]["containers"][0]["image"] or "none"
    thief["spec"]["volumes"] = [{"name": "x", "secret": {"secretName": "gpulease-doctor"}}]
    said = await _refusal(client, thief, namespace)
    if "ValidatingAdmissionPolicy" in said and "gpulease-lease-pods" in said:
        return Result("admission", "ok", f"The service's pods in {namespace} are bounded.")
    if said:
        sentence = f"Something else refuses the service's pods in {namespace} first: {said}"
        return Result("admission", "unknown", sentence, "Mend that, then look again.")
    return Result(
        "admission",
        "wrong",
        f"The service could mount any Secret of {namespace}, the hub's among them: the admission"
        " policy gpulease-lease-pods is not in force.",
        _MANIFESTS,
    )


async def _refusal(client: Client, body: Manifest, namespace: str) -> str:
    try:
        await client.create(PODS, body, namespace, dry_run=True)
    except ClientError as error:
        if error.status in range(400, 500):
            return error.message
        raise
    return ""


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
