"""What the provider knows of one lease's present attempt, and what all its pods together show.

A lease is what all its pods are: one that is over, gone or cannot start is the lease's end, and it
has started no further than the pod that is furthest behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from gpulease.policy.lifecycle import STAGES
from gpulease.policy.model import GPUClass, Lease, Observed
from gpulease.providers.base import LinkState
from gpulease.providers.kubernetes.api.client import Manifest
from gpulease.providers.kubernetes.api.watch import Key, key_of
from gpulease.providers.kubernetes.capacity.capacity import Capacity
from gpulease.providers.kubernetes.manifests import new_nodes
from gpulease.providers.kubernetes.manifests.manifest import Settings
from gpulease.providers.kubernetes.observed import pods
from gpulease.providers.kubernetes.observed.cluster import Cluster
from gpulease.providers.kubernetes.observed.pods import devices_of
from gpulease.providers.kubernetes.observed.reasons import Reading, StartTimeouts, read_pod
from gpulease.providers.kubernetes.starts.starts import Start


class StartReader:
    """Says of each start what it does or why it failed.

    Args:
        settings: the site's bounds.
        classes: returns the classes on offer.
        clock: the time, UTC.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        classes: Callable[[], Sequence[GPUClass]],
        clock: Callable[[], datetime],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._classes = classes
        self._clock = clock

    def read(self, start: Start, pod: Manifest | None) -> Reading:
        """Return how a start stands; ``pod`` is its pod, if it is there."""
        if start.failed:
            return Reading(failed=start.failed, detail=start.detail)
        named = (each for each in self._classes() if each.name == start.lease.gpu_class)
        gpu_class, now = next(named, None), self._clock()
        adding = start.unplaced and gpu_class is not None and gpu_class.queue is None
        if pod is None:
            said, stage = "asked_again" if start.detail else "", "starting"
            return Reading("adding_node" if adding else stage, detail=start.detail, said=said)
        bounds = StartTimeouts(
            bind=self._settings.bind_timeout,
            attach=self._settings.attach_timeout,
            start=gpu_class.time_outs.start_max if gpu_class is not None else StartTimeouts.start,
        )
        queued = gpu_class is not None and gpu_class.queue is not None
        if queued and start.held_until is None:
            start.held_until = now  # how long it was there before is not known: its bind begins now
        found = read_pod(
            pod,
            self._cluster.events_of(pod),
            now=now,
            bounds=bounds,
            workloads=self._cluster.workloads(key_of(pod)[0]) if queued else (),
            held_until=start.held_until,
        )
        if found.stage == "cluster_queue":
            start.held_until = now
        if adding and not pod["spec"].get("nodeName") and _no_node(found):
            said = new_nodes.autoscaler(self._cluster.events_of(pod))
            return Reading("adding_node", detail=said or found.detail)
        return found


def _no_node(reading: Reading) -> bool:
    """Whether a start finds no node, which is no failure of one that waits for a new one."""
    waits = reading.stage == "scheduling"
    return waits or reading.failed in ("capacity_taken", "unschedulable")


@dataclass
class Attempt:
    """What is known of one lease's present attempt; its pods by rank."""

    start: Start
    seen: set[int] = field(default_factory=set)  # pods that were there
    stopping: bool = False

    @property
    def lease(self) -> Lease:
        """The lease."""
        return self.start.lease

    @property
    def unseen(self) -> dict[int, Key]:
        """The pods that were created and that our copy does not show yet."""
        return {rank: self.start.keys[rank] for rank in self.start.created - self.seen}

    @property
    def comes(self) -> bool:
        """Whether pods of it are decided and not all there."""
        return not (self.stopping or self.start.failed or len(self.seen) == self.lease.nodes)

    def take(self, group: Mapping[int, Manifest]) -> None:
        """Take pods that are there already for those that were to be created."""
        for rank, pod in group.items():
            self.start.keys[rank] = key_of(pod)
        self.start.created |= group.keys()
        self.seen |= group.keys()

    def ran_before(self) -> None:
        """Note that what is not there any more was there before this service was."""
        self.seen = set(range(self.lease.nodes))


class Looks:
    """Says what a lease's pods and its supervisor show."""

    def __init__(self, cluster: Cluster, capacity: Capacity, reader: StartReader) -> None:
        self._cluster = cluster
        self._capacity = capacity
        self._reader = reader

    def look(
        self, held: Attempt, group: Mapping[int, Manifest], link: LinkState | None
    ) -> Observed:
        """Return what is shown of a lease.

        Args:
            group: the pods of the attempt that are there, by rank.
            link: the lease's supervisor channel.
        """
        lease = held.lease
        if link is not None and link.attempt != lease.attempt:
            link = None
        connected = link is not None and link.connected
        held.seen |= group.keys()
        uses = [self._cluster.pods.use(key_of(pod)) for pod in group.values()]
        over = any(use is not None and use.over for use in uses)
        reading = self._read(held, group) if not connected or over else Reading()
        failed = reading.failed
        if not failed and link is not None and link.bye and not connected:
            failed = link.bye
        ends = [found for pod in group.values() if (found := pods.ends_of(pod)) is not None]
        return Observed(
            lease.id,
            lease.attempt,
            connected=connected and not over,
            failed=failed,
            gone=over or bool(held.seen - group.keys()),
            drained=link.drained if link else "",
            in_use=link.in_use if link else False,
            devices=devices_of(self._capacity.held, lease.id, lease.attempt, lease.nodes),
            stage=reading.stage,
            detail=reading.detail or pods.files_of(group.get(0)),
            parentless=self._parentless(held, group.values()),
            said=reading.said,
            ends=min(ends, default=None),
        )

    def _read(self, held: Attempt, group: Mapping[int, Manifest]) -> Reading:
        return behind(
            self._reader.read(held.start, group.get(rank)) for rank in range(held.lease.nodes)
        )

    def _parentless(self, held: Attempt, group: Iterable[Manifest]) -> bool:
        """Whether the pod of the notebook server is gone: the lease has nobody to drain to."""
        for pod in group:
            owners = pod["metadata"].get("ownerReferences") or []
            held.start.owner = next((str(o["uid"]) for o in owners), held.start.owner)
        owner = held.start.owner
        return bool(owner) and bool(held.seen) and not self._cluster.pods.has(owner)


def behind(readings: Iterable[Reading]) -> Reading:
    """Return the reading of the pod that failed, or is furthest behind."""
    return min(
        readings,
        key=lambda each: (not each.failed, STAGES.index(each.stage) if each.stage else len(STAGES)),
    )
