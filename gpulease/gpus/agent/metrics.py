"""What Prometheus reads of a node agent at ``/metrics``.

Owns names, units and labels: node, pool, class and device, never a user or a lease.  Pool and class
are those that the service says the device's resource belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from gpulease.gpus.agent.ledger import Waiting
from gpulease.gpus.agent.wire import Held
from gpulease.gpus.reading import DeviceReading, Seen

_DEVICE = ("node", "pool", "gpu_class", "device")


class Metrics:
    """The agent's figures.

    Args:
        node: what the node is called.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self.registry = CollectorRegistry()
        self.labels: dict[str, tuple[str, ...]] = {}  # of each metric, by its name
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._use = self._gauge("utilisation", "Peak use of the last second, 0 to 1.")
        self._memory = self._gauge("memory_used_bytes", "Memory in use.")
        self._total = self._gauge("memory_bytes", "Memory of the device.")
        self._power = self._gauge("power_watts", "Power drawn.")
        self._held = self._gauge("held", "1 while a pod holds the device or a share of it.")
        self._offered = self._gauge("offered", "1 while the kubelet gives the device out.")
        self._gaps = self._counter("gaps_total", "Seconds without a word, by reason.", "reason")
        self._faults = self._counter("incidents_total", "What the driver called out.", "kind")
        self._posts = self._counter("posts_total", "Posts to the service, by outcome.", "outcome")
        self._up = self._gauge("up", "1 while this part answers.", "node", "part")
        self._waiting = self._gauge(
            "waiting_batches", "Batches that the service has not taken yet.", "node"
        )
        self._dropped = self._gauge(
            "dropped_batches",
            "Batches given up since the start: too old, too many, or never to be taken.",
            "node",
        )

    def show(
        self,
        readings: Iterable[DeviceReading],
        seen: Mapping[str, Seen],
        holders: Iterable[Held],
        resources: Mapping[str, Mapping[str, str]],
        offered: Mapping[str, bool],
    ) -> None:
        """Set the gauges of all devices; those of devices that left are taken away."""
        held = {each.device.partition("::")[0]: each.resource for each in holders}
        every = (self._use, self._memory, self._total, self._power, self._held, self._offered)
        for gauge in every:
            gauge.clear()
        for reading in readings:
            uuid = reading.uuid
            told = resources.get(held.get(uuid, ""), {})
            label = (self._node, told.get("pool", ""), told.get("gpu_class", ""), uuid)
            if reading.use is not None:
                self._use.labels(*label).set(reading.use)
            if reading.memory is not None:
                self._memory.labels(*label).set(reading.memory)
            if reading.power is not None:
                self._power.labels(*label).set(reading.power)
            if uuid in seen and seen[uuid].info.memory:
                self._total.labels(*label).set(seen[uuid].info.memory)
            self._held.labels(*label).set(uuid in held)
            self._offered.labels(*label).set(offered.get(uuid, True))

    def gap(self, reason: str) -> None:
        """Count a second of a device without a word."""
        self._gaps.labels(self._node, reason).inc()

    def incident(self, kind: str) -> None:
        """Count what the driver called out."""
        self._faults.labels(self._node, kind).inc()

    def posted(self, outcome: str) -> None:
        """Count a post: ``taken``, ``failed`` or ``refused``."""
        self._posts.labels(self._node, outcome).inc()

    def parts(self, **up: bool) -> None:
        """Say which parts answer: driver, its events, kubelet, service, ledger."""
        for part, answers in up.items():
            self._up.labels(self._node, part).set(answers)

    def ledger(self, waiting: Waiting, dropped: int) -> None:
        """Say what waits, and what was given up."""
        self._waiting.labels(self._node).set(waiting.batches)
        self._dropped.labels(self._node).set(dropped)

    def text(self) -> bytes:
        """Return Prometheus's text format."""
        return generate_latest(self.registry)

    def _gauge(self, name: str, words: str, *labels: str) -> Gauge:
        return Gauge(*self._named(name, words, labels or _DEVICE), registry=self.registry)

    def _counter(self, name: str, words: str, label: str) -> Counter:
        return Counter(*self._named(name, words, ("node", label)), registry=self.registry)

    def _named(
        self, name: str, words: str, labels: tuple[str, ...]
    ) -> tuple[str, str, tuple[str, ...]]:
        full = f"gpulease_agent_{name}"
        self.labels[full] = labels
        return full, words, labels
