"""Reads how a start stands, from what the watches show and what is remembered of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from gpulease.policy.model import GPUClass
from gpulease.providers.kubernetes.api.client import Manifest
from gpulease.providers.kubernetes.api.watch import key_of
from gpulease.providers.kubernetes.manifests import new_nodes
from gpulease.providers.kubernetes.manifests.settings import Settings
from gpulease.providers.kubernetes.observed.cluster import Cluster
from gpulease.providers.kubernetes.observed.reading import Bounds, Reading
from gpulease.providers.kubernetes.observed.reasons import read_pod
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
        bounds = Bounds(
            bind=self._settings.bind_timeout,
            attach=self._settings.attach_timeout,
            start=gpu_class.time_outs.start_max if gpu_class is not None else Bounds.start,
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
