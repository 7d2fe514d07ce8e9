"""Would the API server take what it must and refuse what it must not?  Asked by dry run.

Owns the pods that are offered in one namespace of servers: a lease's, one that mounts a Secret, one
that asks for a GPU as a notebook server must not.  Nothing comes to be.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpulease import labels
from gpulease.providers.kubernetes.api.client import PODS, Client, ClientError, Manifest
from gpulease.providers.kubernetes.checkup.findings import Result
from gpulease.providers.kubernetes.manifests.manifest import PodSettings
from gpulease.providers.kubernetes.manifests.process import container_security, pod_security


async def examine_pods(
    client: Client,
    settings: PodSettings,
    servers: Sequence[Manifest],
    namespace: str,
    mend: str,
) -> AsyncIterator[Result]:
    """Yield what the API server says to each.

    Args:
        client: with the service's rights.
        settings: of lease pods.
        servers: the pods of servers in this namespace.
        namespace: where they would stand.
        mend: how what gpulease brings into such a namespace comes there.

    Raises:
        UnavailableError: there is no answer.
    """
    body = sample(settings, namespace, servers)
    taken = await _taken(client, body, namespace, mend)
    yield taken
    yield await _bounded(client, body, namespace, mend)
    yield await _kept_out(client, body, namespace, taken)


def sample(settings: PodSettings, namespace: str, servers: Sequence[Manifest]) -> Manifest:
    """Return a pod such as a lease's, without its GPU; no image where none is known yet."""
    image = settings.image
    if not image and servers:
        image = str(servers[0]["spec"]["containers"][0]["image"])
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "serviceAccountName": settings.service_account,
        "automountServiceAccountToken": False,
        "securityContext": pod_security({"spec": {}}),
        "containers": [
            {"name": "companion", "image": image, "securityContext": container_security({})}
        ],
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


async def _taken(client: Client, body: Manifest, namespace: str, mend: str) -> Result:
    """Whether the API server takes a lease pod: account, runtime class, priority, image, quota."""
    if not body["spec"]["containers"][0]["image"]:
        sentence = f"No server runs in {namespace}, so the image of lease pods is not known."
        return Result("lease_pod", "unknown", sentence, "Start a server and look again.")
    said = await refusal(client, body, namespace)
    if said:
        return Result(
            "lease_pod",
            "wrong",
            f"The API server takes no lease pod in {namespace}: {said}",
            "It names what is missing: the service account, a RuntimeClass or PriorityClass of the"
            " settings, a quota, or a name that the admission policy gpulease-lease-pods has to"
            f" know (leases of gpulease's chart). {mend}",
        )
    return Result("lease_pod", "ok", f"A lease pod would be taken in {namespace}.")


@dataclass(frozen=True)
class _Door:
    """What an admission policy must keep shut.

    Attributes:
        check: the finding's name.
        policy: the ValidatingAdmissionPolicy.
        pods: whose pods are tried, in words.
        shut: the sentence where the policy refused.
        open: the sentence where nobody did.
        mend: what to do then.
    """

    check: str
    policy: str
    pods: str
    shut: str
    open: str
    mend: str


async def _bounded(client: Client, body: Manifest, namespace: str, mend: str) -> Result:
    """Whether the admission policy keeps the service from mounting a Secret."""
    thief = copy.deepcopy(body)
    thief["spec"]["containers"][0]["image"] = body["spec"]["containers"][0]["image"] or "none"
    thief["spec"]["volumes"] = [{"name": "x", "secret": {"secretName": "gpulease-doctor"}}]
    door = _Door(
        "admission",
        "gpulease-lease-pods",
        f"the service's pods in {namespace}",
        f"The service's pods in {namespace} are bounded.",
        f"The service could mount any Secret of {namespace}, the hub's among them: the admission"
        " policy gpulease-lease-pods is not in force.",
        mend,
    )
    return _verdict(door, await refusal(client, thief, namespace))


async def _kept_out(client: Client, body: Manifest, namespace: str, taken: Result) -> Result:
    """Whether the second policy keeps GPUs from everybody else's pods here."""
    if taken.state != "ok":
        sentence = f"Whether servers in {namespace} are kept from GPUs was not tried."
        return Result("servers", "unknown", sentence, "Mend `lease_pod` first, then look again.")
    asking = copy.deepcopy(body)
    asking["metadata"]["labels"][labels.PROBE] = "servers"
    asking["spec"]["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    container = asking["spec"]["containers"][0]
    container["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    container["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    door = _Door(
        "servers",
        "gpulease-no-gpu",
        f"a pod with a GPU in {namespace}",
        f"Pods with a GPU are refused in {namespace}.",
        f"A server in {namespace} could have a GPU that the hub's guard did not see: the admission"
        " policy gpulease-no-gpu is not in force there.",
        f"Name {namespace} as hub.namespace of gpulease's chart; where the hub makes namespaces for"
        f" users: kubectl label namespace {namespace} {labels.INSTANCE}="
        f"{body['metadata']['labels'][labels.INSTANCE]}",
    )
    return _verdict(door, await refusal(client, asking, namespace))


def _verdict(door: _Door, said: str) -> Result:
    """Judge by who refused: this policy, something else, or ("" was said) nobody.

    A quota is the last to be asked, so what it refuses the policy has let through.
    """
    if "ValidatingAdmissionPolicy" in said and door.policy in said:
        return Result(door.check, "ok", door.shut)
    if said and "exceeded quota" not in said:
        sentence = f"Something else refuses {door.pods} first: {said}"
        return Result(door.check, "unknown", sentence, "Mend that, then look again.")
    return Result(door.check, "wrong", door.open, door.mend)


async def refusal(client: Client, body: Manifest, namespace: str) -> str:
    """Return why the API server would not take a pod, "" where it would.

    Raises:
        ClientError: there is no answer that counts.
    """
    try:
        await client.create(PODS, body, namespace, dry_run=True)
    except ClientError as error:
        if error.status in range(400, 500):
            return error.message
        raise
    return ""
