"""What is known of the cluster: live copies of pods, nodes, slices, claims and events.

Which collections are watched, what of each is kept, and whether they can be trusted at present; and
what a node says of itself: its state, its taints, the model of its GPUs.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from gpulease.protocol import labels
from gpulease.protocol.hub_names import split
from gpulease.providers.kubernetes.api.client import (
    EVENTS,
    NODES,
    PODS,
    QUOTAS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    WORKLOADS,
    KubernetesAPI,
    Manifest,
    hub_of,
    only,
)
from gpulease.providers.kubernetes.api.watch import Key, Watched, key_of
from gpulease.providers.kubernetes.observed import pods
from gpulease.providers.kubernetes.observed.hami import CARDS
from gpulease.providers.kubernetes.observed.index import PodIndex
from gpulease.providers.kubernetes.observed.pods import amount_of
from gpulease.providers.kubernetes.pod_resources.nodes import MEMORY, PRODUCT

#: Taints that say how the node is, which is read from its conditions.
_STATE_TAINTS = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/unschedulable",
    }
)
#: Taints by which autoscalers and clouds announce that a node is about to go.
_LEAVING_TAINTS = frozenset(
    {
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "cloud.google.com/impending-node-termination",
        "aws-node-termination-handler/spot-itn",
        "aws-node-termination-handler/rebalance-recommendation",
        "aws-node-termination-handler/scheduled-maintenance",
        "aws-node-termination-handler/asg-lifecycle-termination",
        "node.cloudprovider.kubernetes.io/shutdown",
        "node.kubernetes.io/out-of-service",
    }
)
#: The label by which NVIDIA's GPU operator says how far an upgrade of the driver is, and the steps
#: from the deletion of pods to the new driver's start.
_UPGRADE = "nvidia.com/gpu-driver-upgrade-state"
_UPGRADING = frozenset(
    {
        "wait-for-jobs-required",
        "pod-deletion-required",
        "drain-required",
        "node-maintenance-required",
        "pod-restart-required",
    }
)


def lost(node: Manifest) -> bool:
    """Whether nobody knows how a node is: its kubelet is not ready or does not answer."""
    conditions = (node.get("status") or {}).get("conditions") or []
    ready = next((each.get("status") for each in conditions if each.get("type") == "Ready"), None)
    return ready != "True"


def leaving(node: Manifest) -> bool:
    """Whether a node takes nothing new and is about to go: cordoned, or announced by a taint."""
    spec = node.get("spec") or {}
    announced = any(taint.get("key") in _LEAVING_TAINTS for taint in spec.get("taints") or [])
    deleting = bool((node.get("metadata") or {}).get("deletionTimestamp"))
    return bool(spec.get("unschedulable")) or announced or deleting


def upgrading(node: Manifest) -> bool:
    """Whether NVIDIA's GPU operator replaces the node's driver: nobody may have it open then."""
    return labels_of(node).get(_UPGRADE) in _UPGRADING


def product_of(node: Manifest) -> tuple[str, int]:
    """Return model and memory (bytes) of a node's GPUs by feature discovery, "" and 0 without."""
    marks = labels_of(node)
    return str(marks.get(PRODUCT, "")), amount_of(marks.get(MEMORY, 0)) * 2**20


def taints_of(node: Manifest) -> list[Mapping[str, str]]:
    """Return a node's taints but those that say how it is: these are read from it directly."""
    return [
        taint
        for taint in (node.get("spec") or {}).get("taints") or []
        if taint.get("key") not in _STATE_TAINTS | _LEAVING_TAINTS
    ]


def pool_name(model: str) -> str:
    """Return the name of the pool of a model that the policy does not know."""
    return re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-") or "gpu"


def labels_of(node: Manifest) -> Mapping[str, str]:
    """Return a node's labels."""
    return (node.get("metadata") or {}).get("labels") or {}


def of_another(node: Manifest, instance: str) -> bool:
    """Whether a node is marked as another installation's."""
    own = labels.label_value(instance)
    return labels_of(node).get(labels.INSTANCE, own) != own


log = logging.getLogger(__name__)

#: Seconds after which a start that still waits for its first look says so.
_SAY_AFTER = 10.0
#: Prefix of the names of lease pods: events about others are not kept.
_OURS = "gpulease-"
_ONE_HUB: Mapping[str, Sequence[str]] = {}


class Cluster:
    """Live copies of what a lease provider needs.

    Args:
        client: reaches the API server.
        instance: which installation this is.
        namespaces: patterns (``fnmatch``) of the namespaces in which servers run.
        changed: called after each change of a lease's pod, a server's pod or a node.
        hubs: those of ``namespaces`` that are a further hub's, by its name.
    """

    def __init__(
        self,
        client: KubernetesAPI,
        instance: str,
        namespaces: Sequence[str],
        changed: Callable[[Manifest | None, Manifest | None], None] = lambda *_: None,
        hubs: Mapping[str, Sequence[str]] = _ONE_HUB,
    ) -> None:
        self.instance = instance
        self._hubs = hubs
        self.version = 0
        self._namespaces = tuple(namespaces)
        self._changed = changed
        #: One namespace is watched alone; several, or patterns, need the whole cluster's events.
        where = only(self._namespaces)
        self._index = PodIndex(instance)
        self._pods = Watched(
            client, PODS, keep=self._kept_pod, changed=self._pod_changed, streamed=True
        )
        self._nodes = Watched(
            client, NODES, keep=_kept_node, changed=self._node_changed, streamed=True
        )
        self._slices = Watched(client, RESOURCE_SLICES, changed=self._bump, optional=True)
        self._claims = Watched(client, RESOURCE_CLAIMS, changed=self._bump, optional=True)
        self._events = Watched(
            client,
            EVENTS,
            where,
            fields="involvedObject.kind=Pod",
            keep=self._kept_event,
            changed=self._event_changed,
        )
        self._quotas = Watched(client, QUOTAS, where, keep=_kept_quota, changed=self._quota_changed)
        #: Kueue's, once a class says that it is there.
        self._workloads = Watched(
            client, WORKLOADS, where, keep=pods.lean, changed=self._workload_changed, optional=True
        )
        self._events_of: dict[str, dict[Key, Manifest]] = {}  # by the pod's UID
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Begin to watch; returns when pods and nodes were listed, however long that takes."""
        lists = (self._pods, self._nodes, self._slices, self._claims)
        everything = (*lists, self._events, self._quotas)
        for watched in everything:
            self._watch(watched)
        needed = asyncio.gather(self._pods.synced(), self._nodes.synced())
        while True:
            done, _ = await asyncio.wait({needed}, timeout=_SAY_AFTER)
            if done:
                return
            log.warning("the cluster is not known yet: %s", self.problem() or "listing")

    def watch_workloads(self) -> None:
        """Look at Kueue's Workloads from now on; without the right to it reasons are poorer."""
        name = _watch_name(self._workloads)
        if not any(task.get_name() == name for task in self._tasks):
            self._watch(self._workloads)

    def _watch(self, watched: Watched) -> None:
        task = asyncio.create_task(watched.run(), name=_watch_name(watched))
        task.add_done_callback(_ended)
        self._tasks.append(task)

    async def close(self) -> None:
        """Stop watching."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def problem(self, *, claims: bool = False) -> str:
        """Return why the copies cannot be trusted at present, "" when they can.

        Args:
            claims: whether devices of resource claims matter, too.
        """
        needed = [self._pods, self._nodes, *([self._slices, self._claims] if claims else [])]
        stopped = [task.get_name() for task in self._tasks if task.done()]
        return "; ".join([*(f"{each} ended" for each in stopped), *_problems(needed)])

    def warning(self) -> str:
        """Return what is missing that only makes reasons poorer, "" when nothing is."""
        return "; ".join(_problems([self._events, self._quotas]))

    @property
    def nodes(self) -> Iterable[Manifest]:
        """Every node."""
        return self._nodes.objects.values()

    @property
    def slices(self) -> Iterable[Manifest]:
        """Every ResourceSlice."""
        return self._slices.objects.values()

    @property
    def claims(self) -> Iterable[Manifest]:
        """Every ResourceClaim."""
        return self._claims.objects.values()

    @property
    def quotas(self) -> list[Manifest]:
        """Every ResourceQuota where servers run; none while they may not be watched."""
        return [each for key, each in self._quotas.objects.items() if self.is_servers(key[0])]

    def workloads(self, namespace: str) -> list[Manifest]:
        """Return Kueue's Workloads of a namespace; none while they may not be watched."""
        return [each for key, each in self._workloads.objects.items() if key[0] == namespace]

    @property
    def pods(self) -> PodIndex:
        """Every pod that counts."""
        return self._index

    def pod(self, key: Key) -> Manifest | None:
        """Return a pod by namespace and name."""
        return self._pods.objects.get(key)

    def server_pod(self, user: str, server: str) -> Manifest | None:
        """Return the newest living pod of a notebook server, in its own hub's namespaces only."""
        hub, name = split(user) if self._hubs else ("", user)
        found = [
            manifest
            for manifest in self._index.servers(name, server)
            if self._is_of(hub, key_of(manifest)[0]) and pods.runs(manifest)
        ]
        return max(found, key=lambda each: str(each["metadata"]["creationTimestamp"]), default=None)

    def node(self, name: str) -> Manifest | None:
        """Return a node by its name."""
        return self._nodes.objects.get(("", name))

    def events_of(self, pod: Manifest) -> list[Manifest]:
        """Return the events about this very pod."""
        return list(self._events_of.get(str(pod["metadata"].get("uid", "")), {}).values())

    def is_servers(self, namespace: str) -> bool:
        """Whether servers run in a namespace, and so leases: no other's pods are taken for ours."""
        return any(fnmatchcase(namespace, pattern) for pattern in self._namespaces)

    def may_hold(self, user: str, namespace: str) -> bool:
        """Whether a pod in this namespace may be a lease of this user: of its own hub's alone."""
        return self._is_of(split(user)[0] if self._hubs else "", namespace)

    def _is_of(self, hub: str, namespace: str) -> bool:
        return self.is_servers(namespace) and hub_of(namespace, self._hubs) == hub

    def _kept_pod(self, manifest: Manifest) -> Manifest | None:
        # Whoever may make pods elsewhere could give them a lease's labels: these do not count.
        if self.is_servers(key_of(manifest)[0]):
            return pods.lean(manifest)
        return pods.outline(manifest)

    def _kept_event(self, event: Manifest) -> Manifest | None:
        about = event.get("involvedObject") or {}
        return event if str(about.get("name", "")).startswith(_OURS) else None

    def _pod_changed(self, before: Manifest | None, after: Manifest | None) -> None:
        self.version += 1
        self._index.change(before, after)
        shown = after if after is not None else before
        if shown is not None and self.is_servers(key_of(shown)[0]):
            self._changed(before, after)

    def _node_changed(self, before: Manifest | None, after: Manifest | None) -> None:
        if _heartbeat_only(before, after):
            return
        self.version += 1
        self._changed(None, None)

    def _quota_changed(self, before: Manifest | None, after: Manifest | None) -> None:
        if before != after and any(
            each and self.is_servers(key_of(each)[0]) for each in (before, after)
        ):
            self._changed(None, None)  # who waits for it may start

    def _event_changed(self, before: Manifest | None, after: Manifest | None) -> None:
        if before is not None:
            there = self._events_of.get(_about(before), {})
            there.pop(key_of(before), None)
            if not there:
                self._events_of.pop(_about(before), None)
        if after is not None:
            self._events_of.setdefault(_about(after), {})[key_of(after)] = after

    def _workload_changed(self, before: Manifest | None, after: Manifest | None) -> None:
        shown = after if after is not None else before
        if shown is not None and self.is_servers(key_of(shown)[0]):
            self._changed(None, None)  # who waits there reads why

    def _bump(self, *_: Manifest | None) -> None:
        self.version += 1


def _watch_name(watched: Watched) -> str:
    return f"watch {watched.resource.plural}"


def _problems(watched: Iterable[Watched]) -> list[str]:
    return [each.problem for each in watched if each.problem]


def _about(event: Manifest) -> str:
    return str((event.get("involvedObject") or {}).get("uid", ""))


def _kept_node(manifest: Manifest) -> Manifest:
    """Return what is read of a node: there may be thousands, each with long lists."""
    meta, spec = manifest["metadata"], manifest.get("spec") or {}
    status = manifest.get("status") or {}
    kept = {k: status[k] for k in ("capacity", "allocatable") if k in status}
    conditions = [
        {"type": each.get("type"), "status": each.get("status")}
        for each in status.get("conditions") or []
    ]
    own = ("name", "uid", "labels", "deletionTimestamp")
    notes = {k: v for k, v in (meta.get("annotations") or {}).items() if k == CARDS}
    noted = {"annotations": notes} if notes else {}
    return pods.shared(
        {
            "metadata": {k: meta[k] for k in own if k in meta} | noted,
            "spec": {k: spec[k] for k in ("taints", "unschedulable") if k in spec},
            "status": kept | {"conditions": conditions},
        }
    )


def _kept_quota(quota: Manifest) -> Manifest:
    """Return a quota without what changes and says nothing, so that equal means unchanged."""
    meta, status = quota["metadata"], quota.get("status") or {}
    kept = {key: meta.get(key) for key in ("name", "namespace")}
    used = {key: status.get(key) or {} for key in ("hard", "used")}
    return {"metadata": kept, "spec": quota.get("spec") or {}, "status": used}


def _heartbeat_only(before: Manifest | None, after: Manifest | None) -> bool:
    """Whether only the times of a node's conditions changed: they do every few seconds."""
    return before is not None and before == after


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        log.error("task %s ended", task.get_name(), exc_info=task.exception())
