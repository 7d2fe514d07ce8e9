"""The lease pod: from a lease, its class and the server's own pod to a plain manifest.

The pod as a whole: identity, placement, deadline, volumes, token.  Pure: the same input gives the
same manifest, and creating one attempt twice is a conflict by name.  The pod lives in the server's
namespace, follows its ids and its image, and carries nothing of its credentials.  Its labels and
annotations describe the lease, so that a service whose store was restored from a backup can adopt
a pod that it does not know (``pods`` reads them back).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from gpulease.errors import GPULeaseError
from gpulease.policy.model import GPUClass, Lease, TimeOuts
from gpulease.policy.pods import AskKind, Pairs, PodAsk, Sharing
from gpulease.protocol import labels
from gpulease.protocol import names as protocol
from gpulease.providers.kubernetes.manifests import new_nodes
from gpulease.providers.kubernetes.manifests.process import (
    COMMAND,
    TOKEN_DIRECTORY,
    computed,
    container_security,
    environment,
    mps_bounds,
    node_of_several,
    pod_security,
)
from gpulease.providers.kubernetes.observed.pods import granted_node
from gpulease.providers.kubernetes.observed.tokens import AUDIENCE
from gpulease.providers.kubernetes.pod_resources.ask import PodFields, ask_of, group_of, pod_fields
from gpulease.providers.kubernetes.pod_resources.nodes import Terms, both, condition, instance_terms
from gpulease.providers.kubernetes.pod_resources.volumes import MIRROR, Files

CONTAINER: Final = "companion"
#: KubeSpawner's name of the container in which the notebook server runs.
NOTEBOOK: Final = "notebook"
SERVICE_ACCOUNT: Final = "gpulease-lease"
#: Beyond the longest lease: starting up, pulling an image, saying goodbye (seconds).
_SLACK: Final = 120.0
_END_SECONDS: Final = 10.0
#: A pod may wait so long (seconds) for a queue of the cluster's or a new node before its own end
#: could come; from its start on ``activeDeadlineSeconds`` bounds it as any other.
QUEUE_MAX: Final = 30 * 86400.0
_TOKEN_VOLUME: Final = "gpulease-token"  # noqa: S105 - a name
_MIRROR_VOLUME: Final = "gpulease-mirror"
_MEMORY_VOLUME: Final = "gpulease-shm"


@dataclass(frozen=True)
class PodSettings:
    """What a site says of all its lease pods.

    Attributes:
        service_url: where lease pods reach the service, with scheme and prefix.
        instance: which installation this is.
        image: of classes that name none; "" follows the server's own.
        service_account: whose projected token the pod carries; it needs no right at all.
        priority_class: of classes that name none; "" is the cluster's default.
        runtime_class: of classes that name none.
        home: path of the student's home in the servers.
        ports: of the companion, ``LOWEST-HIGHEST``, as the network policies name them.
        start_max: seconds a pod may take to start, an image pull among them, before it is given up.
        mirror_limit: bytes that a mirror of the home may hold.
        park: directory where values that cannot go home are parked, "" for nowhere; on a mounted
            home it outlives the pod.
        shared_memory: size of ``/dev/shm``, "" for the runtime's own; it counts as memory used.
        token_seconds: how long a projected token is valid; the kubelet renews it.
        environment: further variables of every lease pod.
    """

    service_url: str
    instance: str
    image: str = ""
    service_account: str = SERVICE_ACCOUNT
    priority_class: str = ""
    runtime_class: str = ""
    home: str = "/home/jovyan"
    ports: str = "8890-8990"
    start_max: float = 600.0
    mirror_limit: int = 2 * 2**30
    park: str = ""
    shared_memory: str = "1Gi"
    token_seconds: int = 3600
    environment: Pairs = ()


@dataclass(frozen=True)
class _Making:
    """One pod in the making: what it is made from, and the longest end it could be granted."""

    lease: Lease
    gpu_class: GPUClass
    ask: PodAsk
    said: PodFields
    server: Mapping[str, Any]
    files: Files
    settings: PodSettings
    ends: datetime
    elsewhere: Terms
    rank: int


def lease_pod(
    lease: Lease,
    gpu_class: GPUClass,
    server: Mapping[str, Any],
    files: Files,
    settings: PodSettings,
    *,
    now: datetime,
    keeps_off: Sequence[str] = (),
    rank: int = 0,
) -> dict[str, Any]:
    """Return the manifest of a pod of this attempt of a lease.

    Args:
        lease: starting, with its granted slots.
        gpu_class: what it was granted as.
        server: the notebook server's pod as the API server gives it.
        files: from ``volumes.decide``.
        settings: the site's.
        now: the time of the grant.
        keeps_off: hostnames of the nodes that it is not for: it waits for a new one.
        rank: which of the lease's nodes it is.

    Raises:
        GPULeaseError: ``bad_count``, ``no_server`` where the server's pod is no pod to follow.
    """
    waits = gpu_class.queue is not None or not lease.devices
    queued = timedelta(seconds=QUEUE_MAX if waits else 0)
    making = _Making(
        lease,
        gpu_class,
        ask_of(gpu_class),
        pod_fields(
            gpu_class, lease.per_node, str(server["metadata"]["uid"]) if lease.needs else ""
        ),
        server,
        files,
        settings,
        now + queued + timedelta(seconds=settings.start_max + gpu_class.time_outs.hard_length),
        new_nodes.terms(keeps_off),
        rank,
    )
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(making, now),
        "spec": _spec(making),
    }


def deadline(outs: TimeOuts, settings: PodSettings) -> int:
    """Return ``activeDeadlineSeconds``: the longest that policy could grant, with its way home.

    It can be lowered later and never raised, so Keep, extensions and a longer wish must fit.
    """
    leaving = outs.drain_max + outs.interrupt_grace
    return math.ceil(settings.start_max + outs.hard_length + leaving + _SLACK)


def grace(outs: TimeOuts) -> int:
    """Return ``terminationGracePeriodSeconds``: an evicted pod drains by itself in this time."""
    return math.ceil(outs.drain_max + outs.interrupt_grace + _END_SECONDS)


def notebook_container(server: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the container of a server's pod in which the notebook runs.

    Raises:
        GPULeaseError: ``no_server``: it has none.
    """
    containers = server["spec"].get("containers") or []
    named = [each for each in containers if each["name"] == NOTEBOOK]
    if not containers:
        raise GPULeaseError(
            "no_server", "The server's pod has no container.", next_step="Restart the server."
        )
    return dict((named or containers)[0])


def _metadata(making: _Making, now: datetime) -> dict[str, Any]:
    lease, gpu_class, instance = making.lease, making.gpu_class, making.settings.instance
    owner = making.server["metadata"]
    described = pod_annotations(
        lease, gpu_class, instance, owner["uid"], making.files, now=now, ends=making.ends
    )
    first = labels.lease_pod_name(lease.id, lease.attempt)
    group = group_of(gpu_class.queue, first, lease.nodes)
    own = pod_labels(lease, gpu_class, instance, making.rank)
    return {
        "name": labels.lease_pod_name(lease.id, lease.attempt, making.rank),
        "namespace": owner["namespace"],
        "labels": making.said.labels | dict(group.labels) | own,
        "annotations": making.said.annotations | dict(group.annotations) | described,
        "ownerReferences": [owned_by(making.server)],
    }


def _spec(making: _Making) -> dict[str, Any]:
    own, said, settings = making.server["spec"], making.said, making.settings
    outs = making.gpu_class.time_outs
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "serviceAccountName": settings.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "activeDeadlineSeconds": deadline(outs, settings),
        "terminationGracePeriodSeconds": grace(outs),
        "securityContext": pod_security(making.server),
        "affinity": _affinity(making),
        "tolerations": said.tolerations,
        "containers": [_container(making)],
        "volumes": [*making.files.volumes, *_own_volumes(making)],
    }
    optional = {
        "nodeSelector": said.node_selector,
        "resourceClaims": said.resource_claims,
        "runtimeClassName": making.ask.runtime_class or settings.runtime_class,
        "priorityClassName": making.ask.priority_class or settings.priority_class,
        "schedulerName": said.scheduler,
        "imagePullSecrets": own.get("imagePullSecrets"),
        "dnsPolicy": own.get("dnsPolicy"),
        "dnsConfig": own.get("dnsConfig"),
    }
    return spec | {key: value for key, value in optional.items() if value}


def _container(making: _Making) -> dict[str, Any]:
    ask, said, settings = making.ask, making.said, making.settings
    notebook = notebook_container(making.server)
    image = ask.image or settings.image
    resources: dict[str, Any] = computed(notebook, ask)
    resources["limits"] |= said.limits
    resources["requests"] |= said.limits
    if said.claims:
        resources["claims"] = said.claims
    followed = notebook.get("imagePullPolicy") or "IfNotPresent"
    extra = dict(settings.environment) | mps_bounds(making.gpu_class, ask, making.lease.per_node)
    extra |= node_of_several(making.lease, making.rank)
    return {
        "name": CONTAINER,
        "image": image or notebook["image"],
        "imagePullPolicy": "IfNotPresent" if image else followed,
        "command": list(COMMAND),
        "env": environment(making.lease, notebook, ask, _told(making), extra),
        "resources": {key: value for key, value in resources.items() if value},
        "securityContext": container_security(notebook),
        "volumeMounts": [*making.files.mounts, *_own_mounts(making)],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _told(making: _Making) -> dict[str, str]:
    settings, outs = making.settings, making.gpu_class.time_outs
    return {
        "HOME": settings.home,
        protocol.ENV_SERVICE_URL: settings.service_url,
        protocol.ENV_PORTS: settings.ports,
        protocol.ENV_HARD_END: making.ends.isoformat(),
        protocol.ENV_GRACE: str(grace(outs)),
        protocol.ENV_DRAIN_MAX: f"{outs.drain_max:g}",
        protocol.ENV_MIRROR: settings.home if making.files.way == MIRROR else "",
        protocol.ENV_MIRROR_LIMIT: str(settings.mirror_limit),
        protocol.ENV_PARK: settings.park,
    }


def _affinity(making: _Making) -> dict[str, Any]:
    said, node = making.said, making.files.node
    terms = both(both(said.terms, instance_terms(making.settings.instance)), making.elsewhere)
    affinity: dict[str, Any] = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": _selector_terms(terms, node)
        }
    }
    preferred = list(said.preferred)
    granted = granted_node(making.lease, making.rank)
    if granted and not node:
        # Kubernetes decides; landing where the planner thought keeps its count exact.
        here = {"matchFields": [condition("metadata.name", "In", granted)]}
        preferred.append({"weight": 10, "preference": here})
    beside = str(making.server["spec"].get("nodeName") or "")
    if beside and beside != granted and not node:
        there = {"matchFields": [condition("metadata.name", "In", beside)]}
        preferred.append({"weight": 5, "preference": there})
    if preferred:
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    return {"nodeAffinity": affinity}


def _selector_terms(terms: Terms, node: str) -> list[dict[str, Any]]:
    pinned = {"matchFields": [condition("metadata.name", "In", node)]} if node else {}
    return [{"matchExpressions": term} | pinned for term in terms]


def _has_memory(making: _Making) -> bool:
    """Whether ``/dev/shm`` is ours to set up; under MPS the device plugin mounts its own there."""
    ask = making.ask
    by_plugin = ask.kind is AskKind.SHARED and ask.sharing is not Sharing.TIME_SLICING
    return bool(making.settings.shared_memory) and not by_plugin


def _own_volumes(making: _Making) -> list[dict[str, Any]]:
    files, settings = making.files, making.settings
    token = {
        "audience": AUDIENCE,
        "expirationSeconds": settings.token_seconds,
        "path": "token",
    }
    found: list[dict[str, Any]] = [
        {"name": _TOKEN_VOLUME, "projected": {"sources": [{"serviceAccountToken": token}]}}
    ]
    if files.way == MIRROR:
        # Twice the bound: what is brought up to date is written beside what is there.
        size = str(2 * settings.mirror_limit)
        found.append({"name": _MIRROR_VOLUME, "emptyDir": {"sizeLimit": size}})
    if _has_memory(making):
        memory = {"medium": "Memory", "sizeLimit": settings.shared_memory}
        found.append({"name": _MEMORY_VOLUME, "emptyDir": memory})
    return found


def _own_mounts(making: _Making) -> list[dict[str, Any]]:
    files, settings = making.files, making.settings
    found: list[dict[str, Any]] = [
        {"name": _TOKEN_VOLUME, "mountPath": TOKEN_DIRECTORY, "readOnly": True}
    ]
    if files.way == MIRROR:
        found.append({"name": _MIRROR_VOLUME, "mountPath": settings.home})
    if _has_memory(making):
        found.append({"name": _MEMORY_VOLUME, "mountPath": "/dev/shm"})  # noqa: S108
    return found


#: Nothing that balances or shrinks a cluster may take an active lease's pod away.
UNDISTURBED = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}


def pod_labels(lease: Lease, gpu_class: GPUClass, instance: str, rank: int) -> dict[str, str]:
    """Return the labels by which lease pods are found and network policies select them."""
    several = {labels.RANK: str(rank)} if lease.nodes > 1 else {}
    return several | {
        labels.NAME: labels.APP,
        labels.COMPONENT: labels.LEASE_COMPONENT,
        labels.MANAGED_BY: labels.APP,
        labels.INSTANCE: labels.label_value(instance),
        labels.LEASE: labels.label_value(lease.id),
        labels.ATTEMPT: str(lease.attempt),
        labels.CLASS: labels.label_value(gpu_class.name),
        labels.POOL: labels.label_value(gpu_class.pool),
    }


def pod_annotations(
    lease: Lease,
    gpu_class: GPUClass,
    instance: str,
    server_uid: str,
    files: Files,
    *,
    now: datetime,
    ends: datetime,
) -> dict[str, str]:
    """Return the annotations: exact names and all that adopting the lease needs."""
    since, number = lease.ticket
    several = {labels.NODES: str(lease.nodes)} if lease.nodes > 1 else {}
    if lease.card_parts:
        several |= {labels.CARD_PARTS: str(lease.card_parts)}
    return (
        UNDISTURBED
        | several
        | {
            labels.LEASE: lease.id,
            labels.INSTANCE: instance,
            labels.USER: lease.user,
            labels.SERVER: lease.server,
            labels.SERVER_UID: server_uid,
            labels.PROJECT: lease.project,
            labels.GPU_CLASS: lease.gpu_class,
            labels.COUNT: str(lease.count),
            labels.PRICE: repr(gpu_class.device_price),
            labels.TICKET: f"{since.isoformat()}#{number}",
            labels.CREATED: lease.created.isoformat(),
            labels.GRANTED: now.isoformat(),
            labels.ENDS: ends.isoformat(),
            labels.KERNEL: lease.kernel_id or "",
            labels.SLOTS: ",".join(lease.devices),
            labels.FILES: files.way,
            labels.FILES_WHY: files.why,
        }
    )


def owned_by(server: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reference to a server's pod, with which what bears it goes."""
    owner = server["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": owner["name"],
        "uid": owner["uid"],
        "controller": False,
        "blockOwnerDeletion": False,
    }


@dataclass(frozen=True)
class Settings:
    """What a site says of its cluster.

    Attributes:
        pod: of all lease pods.
        namespaces: patterns of the namespaces in which notebook servers run, of whichever hub.
        bind_timeout: seconds a pod may wait for its place.
        attach_timeout: seconds a volume may take to attach.
        rate: pods created a second.
        agents: namespace and service account of the node agents.
        hubs: those of ``namespaces`` that are a further hub's, by its name.
    """

    pod: PodSettings
    namespaces: tuple[str, ...]
    bind_timeout: float = 10.0
    attach_timeout: float = 20.0
    rate: float = 10.0
    agents: tuple[str, str] = ("gpulease", "gpulease-agent")
    hubs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
