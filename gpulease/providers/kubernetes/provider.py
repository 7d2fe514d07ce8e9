"""Leases as pods: the Provider port over a Kubernetes cluster.

The provider decides which attempt of which lease should have a pod, what is shown of each, and
which token proves which lease.  Kubernetes is the authority on capacity and placement: a grant is a
hint until the pod is bound, and capacity is free if no pod object holds it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from gpulease.errors import GPULeaseError
from gpulease.gpus.base import GPUInfo, Sample
from gpulease.policy.model import Bound, Device, GPUClass, Lease, LeaseState, Observed
from gpulease.policy.pods import AskKind
from gpulease.protocol.agents import AgentBatch
from gpulease.providers.base import SupervisorLink
from gpulease.providers.kubernetes.api.client import ClientError, KubernetesAPI, Limiter, Manifest
from gpulease.providers.kubernetes.api.watch import Deletes, key_of
from gpulease.providers.kubernetes.capacity.capacity import Capacity
from gpulease.providers.kubernetes.capacity.usage import AgentUsage
from gpulease.providers.kubernetes.checkup.pods import ClassCheck
from gpulease.providers.kubernetes.manifests import new_nodes, server_limits
from gpulease.providers.kubernetes.manifests.manifest import Settings
from gpulease.providers.kubernetes.manifests.pod_network import PodNetwork
from gpulease.providers.kubernetes.manifests.server_limits import Homes
from gpulease.providers.kubernetes.observed import pods
from gpulease.providers.kubernetes.observed.cluster import Cluster, leaving, upgrading
from gpulease.providers.kubernetes.observed.pods import Granted, Part, slots_of
from gpulease.providers.kubernetes.observed.tokens import Tokens
from gpulease.providers.kubernetes.pod_resources.ask import ask_of
from gpulease.providers.kubernetes.starts.held import Attempt, Looks, StartReader
from gpulease.providers.kubernetes.starts.starts import MIRROR_SECONDS, Start, Starts
from gpulease.providers.kubernetes.warm.warm import WarmPods
from gpulease.system.background import BackgroundTasks

log = logging.getLogger(__name__)


class KubernetesProvider:
    """Runs each lease in a pod beside the pod of its notebook server.

    Args:
        client: reaches the API server; closed with the provider.
        link: the supervisor channels.
        settings: what the site says.
        classes: returns the classes on offer; none while the policy is not read yet.
        images: returns the images that courses have of their own.
        elastic: returns whether a pool grows, so that it is no fault where there is no GPU yet.
        wake: called when something changed that a plan reads.
        clock: the time, UTC.
    """

    name = "kubernetes"
    home_memory = MIRROR_SECONDS
    grows = True

    def __init__(
        self,
        client: KubernetesAPI,
        link: SupervisorLink,
        settings: Settings,
        *,
        classes: Callable[[], Sequence[GPUClass]],
        images: Callable[[], Sequence[str]] = tuple,
        elastic: Callable[[], bool] = lambda: False,
        wake: Callable[[], None] = lambda: None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        instance = settings.pod.instance
        self._client = client
        self._link = link
        self._settings = settings
        self._classes, self._elastic = classes, elastic
        self._wake = wake
        self._clock = clock
        self._cluster = Cluster(client, instance, settings.namespaces, self._changed, settings.hubs)
        self._deletes, limiter = Deletes(client), Limiter(settings.rate)
        self._tokens = Tokens(client, self._cluster, settings.pod.service_account, settings.agents)
        self._warm = WarmPods(
            client, self._cluster, self._deletes, self._tokens, settings,
            limiter=limiter, classes=classes, wake=wake, clock=clock,
        )  # fmt: skip
        self._network = PodNetwork(client, settings.namespaces)
        self._starts = Starts(
            client,
            self._cluster,
            limiter,
            self._deletes,
            classes=lambda: {each.name: each for each in classes()},
            settings=settings.pod,
            wake=wake,
            network=self._network,
            warm=self._warm,
        )
        self._reader = StartReader(self._cluster, settings, classes, clock)
        self._usage = AgentUsage()
        self._capacity = Capacity(self._cluster, self._usage)
        self._looks = Looks(self._cluster, self._capacity, self._reader)
        self._homes = Homes(client, self._cluster.pods, settings.pod.home)
        self._check = ClassCheck(
            client, self._cluster, settings.pod, settings.namespaces, classes=classes, images=images
        )
        self._beside = BackgroundTasks(log, "what the cluster lets us do is not looked at any more")
        self._held: dict[str, Attempt] = {}

    async def open(self) -> None:
        """Watch the cluster; returns when nodes and pods are known, however long that takes."""
        await self._cluster.open()
        self._beside.keep(self._check.run())
        self._beside.keep(self._network.run())

    async def close(self) -> None:
        """Let the cluster go; leases are left running."""
        self._beside.cancel()
        self._warm.close()
        await self._homes.close()
        await self._starts.close([held.start for held in self._held.values()])
        await self._deletes.close()
        await self._cluster.close()
        await self._client.close()

    @property
    def server_started(self) -> None:
        """Nothing: the service itself starts the pod."""

    @property
    def several_nodes(self) -> bool:
        """Whether the service may let the pods of a lease talk to each other."""
        return self._network.possible

    @property
    def warm_pods(self) -> WarmPods:
        """The pods that stand ready."""
        return self._warm

    @property
    def agent_reports(self) -> KubernetesProvider:
        """The provider itself: the node agents tell which pod uses which device."""
        return self

    def recall_home(self, user: str, why: str, at: datetime) -> None:
        """Mirror this user's homes for as long as if it had happened here."""
        self._starts.mirror(user, why, at)

    def problem(self) -> str:
        """Say what is missing: a right, the API server, GPUs, or some of them that fail."""
        claims = any(ask_of(each).kind is AskKind.DRA for each in self._classes())
        found = [self._cluster.problem(claims=claims), self._cluster.warning()]
        found += self._usage.warnings(self._clock())
        if not any(found) and not self._capacity.devices and not self._elastic():
            found.append("no node of the cluster offers a GPU")
        found += [*self._check.problems, self._warm.problem]
        return "; ".join(each for each in found if each)

    def limits(self) -> Sequence[str]:
        """Say on which nodes devices cannot be measured."""
        return self._usage.limits()

    async def devices(self) -> Sequence[Device]:
        """Return every slot with what occupies it.

        Raises:
            UnavailableError: pods or nodes are not known at present.
        """
        if any(each.queue is not None for each in self._classes()):
            self._cluster.watch_workloads()
        self._check.offered(self._classes())
        found = self._capacity.look(self._classes(), self._granted(), self._clock())
        self._homes.offered(frozenset(device.node for device in found))
        return found

    def bounds(self, requests: Sequence[Lease]) -> Sequence[Bound]:
        """Return what the quotas of the servers' namespaces leave for those who wait."""
        if not self._cluster.quotas:
            return ()
        coming = [
            held.lease
            for held in self._held.values()
            if held.lease.state is LeaseState.STARTING and held.comes
        ]
        ahead = server_limits.Ahead(requests, coming, self._classes(), self._cluster.server_pod)
        return server_limits.bounds(self._cluster.quotas, ahead, self._settings.pod)

    def preferred_node(self, lease: Lease) -> str:
        """Return the node of the request's server where the home can be mounted only there."""
        if self._starts.mirrored(lease.user, self._clock()):
            return ""
        return self._homes.preferred_node(self._cluster.server_pod(lease.user, lease.server))

    def image(self, gpu_class: GPUClass, course: str) -> str:
        """Return the image of the pods, "" where they follow the server's."""
        return course or ask_of(gpu_class).image or self._settings.pod.image

    async def start(self, lease: Lease) -> None:
        """Make the pods of this attempt be there, if they are not and it has not begun yet."""
        held = self._held.get(lease.id)
        if held is None or held.lease.attempt != lease.attempt:
            held = Attempt(Start(lease, unplaced=not lease.devices))
            self._held[lease.id] = held
            there = self._cluster.pods.leases.get(lease.id, {})
            held.take(there.get(lease.attempt, {}))
            if 0 in held.seen:
                server = self._cluster.server_pod(lease.user, lease.server)
                self._warm.resume(lease, there[lease.attempt][0], server)
            if held.start.complete:
                pass  # all of them are there
            elif max(there, default=0) > lease.attempt:
                log.warning(
                    "a later attempt runs than the store knows of", extra={"lease": lease.id}
                )
            elif lease.state is LeaseState.STARTING:
                self._starts.begin(held.start)
            else:
                held.ran_before()
        held.start.lease = lease

    async def stop(self, lease: Lease) -> None:
        """Delete the lease's pods, with time to end; what was not created yet never will be."""
        held = self._held.get(lease.id)
        if held is None:
            held = self._held[lease.id] = Attempt(Start(lease))
            held.ran_before()
        if not held.stopping:
            held.stopping = held.start.unwanted = True
            self._link.send(lease.id, {"type": "end", "reason": lease.end_reason or lease.reason})
        self._note_volume(held)
        for group in self._cluster.pods.leases.get(lease.id, {}).values():
            self._delete(group)
        for rank, key in held.unseen.items():
            self._deletes.begin_unseen(key, partial(held.start.lost, rank))
        self._forget(lease.id)

    async def observe(self) -> Sequence[Observed]:
        """Show every lease that is held or has a pod, known or not."""
        shown = []
        found = self._cluster.pods.leases
        for lease_id in sorted(self._held.keys() | found.keys()):
            there = found.get(lease_id, {})
            held = self._held.get(lease_id)
            if held is None or max(there, default=0) > held.lease.attempt:
                newest = max(there)
                link, slots = self._link.state(lease_id), self._capacity.held
                found_there = pods.stranger(there[newest], newest, link, slots)
                shown.append(self._believed(found_there, there[newest]))
                continue
            for attempt, group in there.items():
                if attempt < held.lease.attempt:
                    self._delete(group)  # of an attempt that was given up
            if not self._forget(lease_id):
                group, link = there.get(held.lease.attempt, {}), self._link.state(lease_id)
                shown.append(self._looks.look(held, group, link))
        return shown

    async def rank_of(self, lease: Lease, token: str) -> int | None:
        """Ask the API server whose token it is, and compare with the pod of this very attempt.

        Raises:
            GPULeaseError: ``cannot_prove`` (503) while it does not answer.
        """
        try:
            return await self._tokens.rank_of(lease, token)
        except ClientError as error:
            raise GPULeaseError(
                "cannot_prove",
                "The cluster does not say at present whose token this is.",
                next_step="Try again in a moment.",
            ) from error

    async def agent_node(self, token: str) -> str | None:
        """Return the node that an agent's token is bound to, by itself or by its pod.

        Raises:
            UnavailableError: the API server does not answer.
        """
        return await self._tokens.node_of(token)

    def agent_batch(self, node: str, batch: AgentBatch) -> None:
        """Take what a node's agent saw."""
        self._usage.hear(node, batch, self._clock())
        self._usage.forget(str(each["metadata"]["name"]) for each in self._cluster.nodes)

    def node_leaves(self, node: str) -> bool:
        """Whether a node is cordoned, about to go, or waits for an upgrade of its driver."""
        return any(
            leaving(each) or upgrading(each)
            for each in self._cluster.nodes
            if each["metadata"]["name"] == node
        )

    async def inventory(self) -> Sequence[GPUInfo]:
        """Return every slot as a device."""
        return [
            GPUInfo(device.uuid, number, device.name, device.memory, simulated=False)
            for number, device in enumerate(self._capacity.devices)
        ]

    async def sample(self) -> Sequence[Sample]:
        """Return what the agents saw of each lease's slots since the last call."""
        return self._usage.samples(
            self._capacity.lease_pods(), self._clock(), self._capacity.claimed()
        )

    # --- looking

    def _granted(self) -> Granted:
        found: dict[Part, tuple[str, ...]] = {}
        for held in self._held.values():
            found |= slots_of(held.lease)
        return {**found, **self._landings(found)}

    def _landings(self, granted: Granted) -> Granted:
        """Return the slots of new nodes that are meant for pods which wait for one."""
        waiting = {}
        for part in (part for part, slots in granted.items() if not slots):
            held = self._held[part.lease]
            group = self._cluster.pods.leases.get(part.lease, {}).get(part.attempt, {})
            pod = group.get(part.rank)
            if pod is None or held.stopping or pod["spec"].get("nodeName"):
                continue
            off = new_nodes.avoided(pod)
            waiting[part] = (held.lease.gpu_class, held.lease.per_node, off)
        return new_nodes.landings(waiting, self._capacity.devices, self._cluster.nodes)

    # --- changing

    def _delete(self, group: Mapping[int, Manifest]) -> None:
        for pod in group.values():
            if not pod["metadata"].get("deletionTimestamp"):
                self._deletes.begin(pod)

    def _believed(self, seen: Observed, group: Mapping[int, Manifest]) -> Observed:
        """Return what is seen without what its pods say of themselves in another hub's name."""
        record = seen.record
        where = {key_of(each)[0] for each in group.values()}
        if record is None or all(self._cluster.may_hold(record.user, each) for each in where):
            return seen
        return replace(seen, record=None)

    def _forget(self, lease_id: str) -> bool:
        """Drop a stopped lease once nothing of it is left; say whether it was dropped."""
        held = self._held.get(lease_id)
        if held is None or not held.stopping or lease_id in self._cluster.pods.leases:
            return False
        task = held.start.task
        if task is not None and not task.done():
            return False  # its create may be under way
        if held.unseen:
            return False  # they are there although our copy does not show them yet
        del self._held[lease_id]
        return True

    def _note_volume(self, held: Attempt) -> None:
        """Mirror a user's home from now on when its volume would not attach."""
        if self._starts.mirrored(held.lease.user, self._clock()):
            return
        shown = [self._cluster.pod(key) for key in held.start.keys.values()]
        read = [self._reader.read(held.start, pod) for pod in shown if pod is not None]
        for reading in (each for each in read if each.failed == "volume_failed"):
            self._starts.mirror(held.lease.user, reading.detail, self._clock())
            log.warning("the home of %s is mirrored for a day: %s", held.lease.user, reading.detail,
                        extra={"lease": held.lease.id, "reason": "volume_failed"})  # fmt: skip

    def _changed(self, before: Manifest | None, after: Manifest | None) -> None:
        shown = after if after is not None else before
        if shown is not None:
            use = pods.use_of(shown, self._cluster.instance)
            held = self._held.get(use.lease)
            if held is not None and held.lease.attempt == use.attempt:
                held.seen.add(use.rank)
            if pods.server_of(shown, self._cluster.instance) is not None:
                self._homes.changed(before, after)
        self._wake()
