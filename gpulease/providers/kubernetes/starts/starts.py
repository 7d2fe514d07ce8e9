"""Creates lease pods, in the background, no faster than the limiter allows.

One attempt's way from a stored intent to its pods: the server's pod is found, the nodes on which
the lease pod could run and the way of the files are decided, the manifests made, the pods created.
A refusal is kept as the reason of a failed start; a server that does not answer is asked again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from gpulease.channel.timing import BackOff
from gpulease.errors import GPULeaseError
from gpulease.policy.model import GPUClass, Lease
from gpulease.policy.pods import AskKind, PodAsk, resource_of
from gpulease.protocol import labels
from gpulease.providers.kubernetes.api.client import (
    CLAIM_TEMPLATES,
    CLAIMS,
    PODS,
    VOLUMES,
    ClientError,
    ConflictError,
    ForbiddenError,
    KubernetesAPI,
    Limiter,
    Manifest,
    NotFoundError,
    Resource,
    UnavailableError,
)
from gpulease.providers.kubernetes.api.watch import Deletes, Key, key_of
from gpulease.providers.kubernetes.manifests import new_nodes
from gpulease.providers.kubernetes.manifests.manifest import (
    PodSettings,
    lease_pod,
    notebook_container,
    owned_by,
)
from gpulease.providers.kubernetes.manifests.pod_network import PodNetwork
from gpulease.providers.kubernetes.observed.cluster import Cluster, labels_of, lost, taints_of
from gpulease.providers.kubernetes.observed.pods import amount_of, granted_node
from gpulease.providers.kubernetes.observed.reasons import read_refusal
from gpulease.providers.kubernetes.pod_resources.ask import ask_of
from gpulease.providers.kubernetes.pod_resources.claims import claim_template
from gpulease.providers.kubernetes.pod_resources.nodes import bearing, fitting, narrowed
from gpulease.providers.kubernetes.pod_resources.volumes import (
    MIRROR,
    Files,
    KnownNode,
    Situation,
    decide,
)
from gpulease.providers.kubernetes.warm.warm import WarmPods

#: So many classes' asks are remembered; those that people narrow are without number.
_ASKS = 64


class Candidates:
    """Answers for one installation, and looks at a node again only once it has changed.

    Each start asks, of thousands of nodes.

    Args:
        instance: whose nodes count.
    """

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self._known: dict[PodAsk, dict[str, tuple[Manifest, _Verdict]]] = {}

    def of(self, nodes: Iterable[Manifest], ask: PodAsk, granted: str) -> list[KnownNode]:
        """Return the nodes that have the ask's resource and whose labels and taints let its pod in.

        Args:
            nodes: all nodes of the cluster.
            ask: the class's.
            granted: the node of the granted devices; of a claim's nodes only this one is known.
        """
        before = self._known.pop(ask, {})
        judged = _judging(ask, self._instance)
        after: dict[str, tuple[Manifest, _Verdict]] = {}
        for node in nodes:
            name = node["metadata"]["name"]
            known = before.get(name)
            after[name] = known if known is not None and known[0] is node else (node, judged(node))
        if len(self._known) >= _ASKS:
            self._known.pop(next(iter(self._known)))
        self._known[ask] = after  # the last that was asked for stands last
        return [
            verdict.place
            for name, (_, verdict) in after.items()
            if verdict.lets_in and (verdict.has or name == granted)
        ]


@dataclass(frozen=True, slots=True)
class _Verdict:
    place: KnownNode
    lets_in: bool
    has: bool  # the resource


def _judging(ask: PodAsk, instance: str) -> Callable[[Manifest], _Verdict]:
    resource, fits, bears = resource_of(ask), fitting(ask, instance), bearing(ask)

    def judged(node: Manifest) -> _Verdict:
        lets_in = not lost(node) and fits(labels_of(node)) and bears(taints_of(node))
        return _Verdict(place(node), lets_in, _amount(node, resource) > 0)

    return judged


def place(node: Manifest) -> KnownNode:
    """Return a node's name and labels."""
    return KnownNode(str(node["metadata"]["name"]), dict(labels_of(node)))


def _amount(node: Manifest, resource: str) -> int:
    there = (node.get("status") or {}).get("allocatable") or {}
    return amount_of(there.get(resource, "0"))


log = logging.getLogger(__name__)

#: First and longest wait (seconds) between two tries while the API server does not answer.
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 8.0
#: Seconds for which a server's pod is looked for, and between two looks.
_SERVER_SECONDS, _SERVER_POLL = 3.0, 0.1
#: Seconds for which homes of a user are mirrored after one would not attach.
MIRROR_SECONDS = 86400.0
#: Pods that may be on their way to the API server at once.
_AT_ONCE = 16


@dataclass
class Start:
    """One attempt on its way to its pods: one for each node, by the rank."""

    lease: Lease
    unplaced: bool = False  # granted no device: a cluster's queue or a new node gives it one
    failed: str = ""
    detail: str = ""
    owner: str = ""  # UID of the server's pod
    held_until: datetime | None = None  # when a queue of the cluster's held it back last
    keys: dict[int, Key] = field(default_factory=dict)  # of pods that were asked for
    created: set[int] = field(default_factory=set)
    unwanted: bool = False
    task: asyncio.Task[None] | None = None

    @property
    def complete(self) -> bool:
        """Whether every pod was created."""
        return len(self.created) == self.lease.nodes

    def lost(self, rank: int) -> None:
        """Note that a pod came and went before it was shown."""
        self.created.discard(rank)


class Starts:
    """Makes pods come.

    Args:
        classes: returns the classes on offer, by name.
        settings: what the site says of all lease pods.
        wake: called when a start failed.
        warm: the pods that stand ready, which are taken first.
        network: lets the pods of one lease talk to each other.
    """

    def __init__(
        self,
        client: KubernetesAPI,
        cluster: Cluster,
        limiter: Limiter,
        deletes: Deletes,
        *,
        classes: Callable[[], Mapping[str, GPUClass]],
        settings: PodSettings,
        wake: Callable[[], None],
        network: PodNetwork,
        warm: WarmPods | None = None,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._limiter = limiter
        self._deletes = deletes
        self._classes = classes
        self._settings = settings
        self._wake = wake
        self._warm = warm
        self._network = network
        self._line = asyncio.Lock()  # who waits for the limiter, first come first
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._mirrored: dict[str, tuple[str, datetime]] = {}
        self._candidates = Candidates(settings.instance)

    def begin(self, start: Start) -> None:
        """Begin to create an attempt's pod."""
        start.task = asyncio.create_task(self._run(start), name=f"start {start.lease.id}")

    def mirror(self, user: str, why: str, at: datetime) -> None:
        """Mirror this user's homes for a day from ``at``: one would not attach."""
        memory = timedelta(seconds=MIRROR_SECONDS)
        self._mirrored = {
            each: known for each, known in self._mirrored.items() if at - known[1] < memory
        }
        self._mirrored[user] = (why, at)

    def mirrored(self, user: str, now: datetime) -> str:
        """Return why this user's homes are mirrored whatever their claims say, else ""."""
        why, at = self._mirrored.get(user, ("", now))
        return why if now - at < timedelta(seconds=MIRROR_SECONDS) else ""

    async def close(self, starts: list[Start]) -> None:
        """Let go: what was not created yet is created by the next service."""
        tasks = [start.task for start in starts if start.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, start: Start) -> None:
        try:
            await self._until_answered(start)
        except GPULeaseError as error:
            self._fail(start, error.reason, error.sentence)
        except ClientError as error:
            found = read_refusal(error.status, error.reason, error.message)
            self._fail(start, found.failed, found.detail)
        except Exception as error:
            log.exception("a pod could not be made", extra={"lease": start.lease.id})
            self._fail(start, "supervisor_failed", type(error).__name__)
        for key in start.keys.values() if start.unwanted else ():
            pod = self._cluster.pod(key)
            if pod is not None:
                self._deletes.begin(pod)

    async def _until_answered(self, start: Start) -> None:
        pauses = BackOff(_FIRST_WAIT, _LONGEST_WAIT)
        while not start.unwanted:
            try:
                if await self._turn(start):
                    await self._create(start)
            except UnavailableError as error:
                log.warning("a pod waits for the API server: %s", error.message)
                start.detail = error.message
                await asyncio.sleep(max(pauses.pause(), error.retry_after))
            else:
                return

    async def _turn(self, start: Start) -> bool:
        """Wait for this pod's turn, if it is wanted then: whose pod is not takes nobody's."""
        async with self._line:
            if not start.unwanted:
                await self._limiter.wait()
        return not start.unwanted

    async def _create(self, start: Start) -> None:
        lease = start.lease
        server = await self._server_pod(start)
        if server is None:
            self._fail(start, "server_pod_missing", f"no pod of server {lease.user}/{lease.server}")
            return
        gpu_class = self._class_for(lease)
        if gpu_class is None:
            self._fail(start, "unschedulable", f"class {lease.gpu_class} is not on offer any more")
            return
        start.owner = str(server["metadata"]["uid"])
        taken = await self._warm.take(lease, gpu_class, server) if self._warm is not None else None
        if taken is not None:
            start.keys[0], start.detail = taken, ""
            start.created.add(0)
            log.info("a pod that stood ready is the lease's", extra={"lease": lease.id})
            return
        adding = start.unplaced and gpu_class.queue is None
        async with self._slots:
            files = await self._files(lease, gpu_class, server, adding=adding)
            # Read last: whatever is there by now is not for it.
            keeps_off = self._there(gpu_class) if adding else ()
            if ask_of(gpu_class).kind is AskKind.DRA:
                # What one request needs beyond its class goes with its server; else the namespace
                # would fill with the templates of all that was ever asked for.
                owner = owned_by(server) if lease.needs else None
                await self._template(gpu_class, lease.per_node, key_of(server)[0], owner)
            missing = sorted(set(range(lease.nodes)) - start.created)
            for rank in missing:
                body = lease_pod(
                    lease, gpu_class, server, files, self._settings,
                    now=datetime.now(UTC), keeps_off=keeps_off, rank=rank,
                )  # fmt: skip
                if start.keys.keys() - {rank}:  # the first one had its turn
                    await self._turn(start)
                if start.unwanted:
                    return
                if rank and rank == max(1, missing[0]):  # the first one is there, and no other
                    await self._network.open(lease, key_of(body)[0])
                start.keys[rank] = key_of(body)
                await self._put(body)
                start.created.add(rank)
        start.detail = ""
        log.info("lease pod created, files: %s (%s)", files.way, files.code,
                 extra={"lease": lease.id, "attempt": lease.attempt})  # fmt: skip

    def _class_for(self, lease: Lease) -> GPUClass | None:
        """Return the class on offer with what this lease asks beyond it, None without a class."""
        gpu_class = self._classes().get(lease.gpu_class)
        if gpu_class is not None and lease.needs:
            gpu_class = replace(gpu_class, pod=narrowed(ask_of(gpu_class), lease.needs))
        if gpu_class is not None and lease.image:
            gpu_class = replace(gpu_class, pod=replace(ask_of(gpu_class), image=lease.image))
        return gpu_class

    async def _put(self, body: Manifest) -> None:
        try:
            await self._client.create(PODS, body, key_of(body)[0])
        except ConflictError as error:
            if error.reason not in ("", "AlreadyExists"):
                # As where many creates count on one quota: nothing was made, try again.
                raise UnavailableError(error.message, status=error.status) from error
            await self._known(body)

    async def _server_pod(self, start: Start) -> Manifest | None:
        """Return the server's pod; one that has only just begun may not be shown yet."""
        lease, patience = start.lease, _SERVER_SECONDS
        while True:
            found = self._cluster.server_pod(lease.user, lease.server)
            if found is not None or patience <= 0 or start.unwanted:
                return found
            patience -= _SERVER_POLL
            await asyncio.sleep(_SERVER_POLL)

    async def _known(self, body: Manifest) -> None:
        """Take a pod that is there already for ours, if it is: a create whose answer was lost."""
        there = await self._client.get(PODS, body["metadata"]["name"], key_of(body)[0])
        marks, own = there["metadata"].get("labels") or {}, body["metadata"]["labels"]
        names = (labels.LEASE, labels.ATTEMPT, labels.INSTANCE)
        if any(marks.get(name) != own[name] for name in names):
            raise GPULeaseError(
                "admission_refused", f"Another pod has the name {body['metadata']['name']}."
            )

    async def _template(
        self, gpu_class: GPUClass, count: int, namespace: str, owner: Manifest | None
    ) -> None:
        body = claim_template(
            gpu_class.name,
            ask_of(gpu_class),
            count,
            namespace=namespace,
            instance=self._settings.instance,
            owner=owner,
        )
        try:
            await self._client.create(CLAIM_TEMPLATES, body, namespace)
        except ConflictError:
            return  # its name is made from what it says: it is the same one

    def _there(self, gpu_class: GPUClass) -> tuple[str, ...]:
        return new_nodes.there(self._cluster.nodes, ask_of(gpu_class), self._settings.instance)

    async def _files(
        self, lease: Lease, gpu_class: GPUClass, server: Manifest, *, adding: bool
    ) -> Files:
        namespace = key_of(server)[0]
        names = {
            source["persistentVolumeClaim"]["claimName"]
            for source in server["spec"].get("volumes") or []
            if "persistentVolumeClaim" in source
        }
        claims = {
            name: claim
            for name in sorted(names)
            if (claim := await self._read(CLAIMS, name, namespace)) is not None
        }
        bound = {str(claim["spec"].get("volumeName") or "") for claim in claims.values()} - {""}
        volumes = {
            name: volume
            for name in sorted(bound)
            if (volume := await self._read(VOLUMES, name)) is not None
        }
        home = self._cluster.node(str(server["spec"].get("nodeName", "")))
        # Of a node that is not there yet no more is known than what the class asks of it.
        new = [KnownNode("", dict(ask_of(gpu_class).node_selector))]
        found = []
        for granted in sorted({granted_node(lease, rank) for rank in range(lease.nodes)}):
            seen = Situation(
                claims=claims,
                volumes=volumes,
                server=place(home) if home is not None else None,
                candidates=new
                if adding
                else self._candidates.of(self._cluster.nodes, ask_of(gpu_class), granted),
                granted=granted,
                home=self._settings.home,
                mirror_because=self.mirrored(lease.user, datetime.now(UTC)),
            )
            found.append(decide(server, notebook_container(server), seen))
        # The files of all its nodes are the same: mounted on each of them or on none.
        files = next((each for each in found if each.way == MIRROR), found[0])
        if files.way == MIRROR:
            log.info("the home is mirrored: %s", files.why, extra={"lease": lease.id})
        return files

    async def _read(self, resource: Resource, name: str, namespace: str = "") -> Manifest | None:
        try:
            return await self._client.get(resource, name, namespace)
        except NotFoundError:
            return None
        except ForbiddenError as error:
            log.info("%s %s may not be read: %s", resource.plural, name, error.message)
            return None

    def _fail(self, start: Start, reason: str, detail: str) -> None:
        start.failed, start.detail = reason, detail
        log.warning(
            "the pod was not created: %s",
            detail,
            extra={"lease": start.lease.id, "reason": reason, "attempt": start.lease.attempt},
        )
        self._wake()
