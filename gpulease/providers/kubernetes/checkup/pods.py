"""Would the API server take what it must and refuse what it must not?  Asked by dry run.

``gpulease doctor`` offers pods in one namespace of servers: a lease's, one that mounts a Secret,
one that asks for a GPU as a notebook server must not.  The running service offers a pod of each
class, so that *Health* names a missing RuntimeClass before the first person asks for a GPU.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gpulease.policy.model import GPUClass
from gpulease.protocol import labels
from gpulease.providers.kubernetes.api.client import (
    PODS,
    ClientError,
    KubernetesAPI,
    Manifest,
    plain,
)
from gpulease.providers.kubernetes.api.watch import key_of
from gpulease.providers.kubernetes.manifests.manifest import PodSettings
from gpulease.providers.kubernetes.manifests.process import container_security, pod_security
from gpulease.providers.kubernetes.observed.cluster import Cluster
from gpulease.providers.kubernetes.pod_resources.ask import ask_of
from gpulease.system.background import keep_polling

State = Literal["ok", "warning", "wrong", "unknown"]


@dataclass(frozen=True)
class Result:
    """One answer: which check, how it stands, in a sentence, and what to do where it is wrong."""

    check: str
    state: State
    sentence: str
    next_step: str = ""


async def examine_pods(
    client: KubernetesAPI,
    settings: PodSettings,
    servers: Sequence[Manifest],
    namespace: str,
    next_step: str,
) -> AsyncIterator[Result]:
    """Yield what the API server says to each.

    Args:
        client: with the service's rights.
        settings: of lease pods.
        servers: the pods of servers in this namespace.
        namespace: where they would stand.
        next_step: how what gpulease brings into such a namespace comes there.

    Raises:
        UnavailableError: there is no answer.
    """
    body = sample(settings, namespace, servers)
    taken = await _taken(client, body, namespace, next_step)
    yield taken
    yield await _bounded(client, body, namespace, next_step)
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


async def _taken(client: KubernetesAPI, body: Manifest, namespace: str, next_step: str) -> Result:
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
            f" know (leases of gpulease's chart). {next_step}",
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
        next_step: what to do then.
    """

    check: str
    policy: str
    pods: str
    shut: str
    open: str
    next_step: str


async def _bounded(client: KubernetesAPI, body: Manifest, namespace: str, next_step: str) -> Result:
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
        next_step,
    )
    return _verdict(door, await refusal(client, thief, namespace))


async def _kept_out(client: KubernetesAPI, body: Manifest, namespace: str, taken: Result) -> Result:
    """Whether the second policy keeps GPUs from everybody else's pods here."""
    if taken.state != "ok":
        sentence = f"Whether servers in {namespace} are kept from GPUs was not tried."
        return Result("servers", "unknown", sentence, "Fix `lease_pod` first, then look again.")
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
        return Result(door.check, "unknown", sentence, "Fix that, then look again.")
    return Result(door.check, "wrong", door.open, door.next_step)


async def refusal(client: KubernetesAPI, body: Manifest, namespace: str) -> str:
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


log = logging.getLogger(__name__)

#: Seconds between two looks: as a rule, and while something is wrong that may be put right soon.
_EVERY, _SOON = 300.0, 15.0
#: What the API server misses before it looks at a pod's image, and what to do about it.
_MISSING = (
    (re.compile("RuntimeClass"), "Make that RuntimeClass (the GPU operator does), or change"
     " `runtime_class` of the class or KubernetesSettings.runtime_class."),
    (re.compile("PriorityClass"), "Run helm upgrade gpulease, or change `priority_class` of the"
     " class or KubernetesSettings.priority_class."),
    (re.compile("service ?account", re.IGNORECASE), "Run helm upgrade gpulease."),
)  # fmt: skip
_ELSE = "`gpulease doctor` says more."


class ClassCheck:
    """Asks again and again; ``problems`` is what it found last, a sentence for each reason.

    Args:
        namespaces: of notebook servers, by name or pattern.
        classes: returns the classes on offer.
        images: returns the images that courses have of their own.
    """

    def __init__(
        self,
        client: KubernetesAPI,
        cluster: Cluster,
        settings: PodSettings,
        namespaces: Sequence[str],
        *,
        classes: Callable[[], Sequence[GPUClass]],
        images: Callable[[], Sequence[str]],
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._settings = settings
        self._plain = plain(namespaces)
        self._classes = classes
        self._images = images
        self._seen: tuple[GPUClass, ...] = ()
        self._seen_images: tuple[str, ...] = ()
        self._changed = asyncio.Event()
        self.problems: tuple[str, ...] = ()

    def offered(self, classes: Sequence[GPUClass]) -> None:
        """Look soon where other classes or images are on offer than at the last look."""
        if (tuple(classes), tuple(self._images())) != (self._seen, self._seen_images):
            self._changed.set()

    async def run(self) -> None:
        """Look, until cancelled."""
        await keep_polling(
            self.look,
            self._changed,
            every=lambda: _SOON if self.problems else _EVERY,
            log=log,
            failed="whether classes' pods would be taken is not known",
            away=(ClientError,),
        )

    async def look(self) -> None:
        """Offer a pod of each class and of each image of a course; ``problems`` is what is wrong.

        Raises:
            ClientError: the API server does not answer.
        """
        self._seen, self._seen_images = tuple(self._classes()), tuple(self._images())
        servers = list(self._cluster.pods.all_servers())
        where = next((key_of(each)[0] for each in servers), next(iter(self._plain), ""))
        kinds: dict[PodSettings, list[str]] = {}
        for each in self._seen:
            kinds.setdefault(self._settings_of(each), []).append(f"class {each.name}")
        for image in self._seen_images:
            kinds.setdefault(replace(self._settings, image=image), []).append(f"image {image}")
        found = []
        for settings, names in kinds.items() if where else ():
            body = sample(settings, where, [each for each in servers if key_of(each)[0] == where])
            said = await refusal(self._client, body, where)
            step = next((step for pattern, step in _MISSING if pattern.search(said)), "")
            # Without any server the image is not known yet, and a full quota is no fault.
            known = bool(body["spec"]["containers"][0]["image"]) and "exceeded quota" not in said
            if said and (step or known):
                what = ", ".join(names)
                found.append(f"the cluster takes no pod of {what}: {said}. {step or _ELSE}")
        self.problems = tuple(found)

    def _settings_of(self, gpu_class: GPUClass) -> PodSettings:
        ask = ask_of(gpu_class)
        return replace(
            self._settings,
            image=ask.image or self._settings.image,
            runtime_class=ask.runtime_class or self._settings.runtime_class,
            priority_class=ask.priority_class or self._settings.priority_class,
        )
