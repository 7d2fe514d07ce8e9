"""One running node agent: its parts, its second, and what it answers over HTTP.

The order of things in each second, and what happens when a part is away: every part is waited for
and said to be missing, none ends the agent.  What Prometheus reads at ``/metrics`` is labelled by
node, pool, class and device, never by a user or a lease; pool and class are those that the service
says the device's resource belongs to.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from gpulease.gpus import driver
from gpulease.gpus.agent import batches, pod_resources
from gpulease.gpus.agent.batches import Gathering
from gpulease.gpus.agent.cgroups import Places
from gpulease.gpus.agent.health import Health, Incidents, Listener
from gpulease.gpus.agent.ledger import Backlog, Waiting
from gpulease.gpus.agent.pod_resources import PodResources
from gpulease.gpus.agent.posting import Poster, Target
from gpulease.gpus.agent.wire import ContainerDevice
from gpulease.gpus.driver import Library
from gpulease.gpus.reading import DeviceReader, DeviceReading, Seen
from gpulease.policy.model import EvidenceLevel
from gpulease.policy.quarantine import APPLICATION_XIDS

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
        holders: Iterable[ContainerDevice],
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


log = logging.getLogger(__name__)

#: Seconds between two looks at which devices there are, and at their counters.
_LOOK_EVERY = 30.0
_CHECK_EVERY = 10.0
#: A second that takes longer than this (seconds) is a driver that hangs: its devices are gaps.
_HANGS = 5.0
#: Seconds without a finished second after which ``/healthz`` says so.
_STUCK = 30.0


@dataclass(frozen=True)
class Options:
    """Everything the agent is told; ``command`` says what each means."""

    target: Target
    node: str
    ledger: Path | None
    socket: Path = pod_resources.SOCKET
    proc: Path = Path("/proc")
    host: str = ""
    port: int = 0
    every: float = batches.EVERY
    every_held: float = batches.EVERY_HELD


class Agent:
    """The agent of one node.

    Args:
        options: what it is told.
        library: the driver library.
    """

    def __init__(self, options: Options, library: Library | None = None) -> None:
        self.options = options
        self.library = library or Library()
        self.reader = DeviceReader(self.library)
        self.kubelet = PodResources(options.socket)
        self.ledger = Backlog(options.ledger)
        self.incidents = Incidents(self.ledger.faults())
        self.metrics = Metrics(options.node)
        self.poster = Poster(options.target, self.ledger, self.metrics.posted)
        self.port = options.port
        self._health = Health(self.incidents)
        self._places = Places(options.proc)
        self._listener = Listener(self.library)
        self._gathering = Gathering(options.every, options.every_held)
        self._lock = threading.Lock()
        self._looked = self._checked = float("-inf")
        self._last_second = time.monotonic()
        self._readings: Sequence[DeviceReading] = ()
        self._holders: Sequence[ContainerDevice] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._server: HTTPServer | None = None
        # Without the node's processes in sight their numbers mean others here.
        self._alone = os.getpid() == 1
        #: Whether a call to the driver has not come back.
        self.hangs = False

    async def open(self) -> None:
        """Start to watch, to post and to answer.

        Raises:
            OSError: the port is taken.
        """
        self._listen()
        if self._alone:
            log.warning("the node's processes cannot be seen: set hostPID to tell users apart")
        self._listener.start()
        self._tasks = [
            asyncio.create_task(self._watch(), name="watch"),
            asyncio.create_task(self.poster.run(), name="post"),
        ]

    async def failed(self) -> None:
        """Return when a part ended that never should.

        Raises:
            Exception: what ended it.
        """
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def close(self) -> None:
        """End in order; what the service has not taken waits on disk."""
        self._listener.end()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            self._server.stop()
            await self._server.close_all_connections()
        if self._listener.is_alive():
            await asyncio.to_thread(self._listener.join, 5)
        self.kubelet.close()
        self.ledger.close()
        if not self.hangs:
            self.library.close()

    def state(self) -> Mapping[str, object]:
        """Return how each part is, for ``/healthz`` and the log."""
        return {
            "driver": driver.say(self.reader.problem) or "ok",
            "gaps": {each.uuid: driver.say(each.gap) for each in self._readings if each.gap},
            "kubelet": self.kubelet.problem or "ok",
            "service": self.poster.problem or "ok",
            "ledger": self.ledger.problem or "ok",
            "events": "ok" if self._listener.listening.is_set() else "not listened to",
            "devices": len(self.reader.seen),
            "watching": time.monotonic() - self._last_second < _STUCK,
        }

    @property
    def stale(self) -> bool:
        """Whether only a new container of this agent can read the driver."""
        return self.reader.problem in driver.STALE_CONTAINER

    def show(self) -> bytes:
        """Return the metrics as of now."""
        seen = dict(self.reader.seen)
        offered = {uuid: self.kubelet.offered(uuid, seen) for uuid in seen}
        holders = self._holders or ()
        self.metrics.show(self._readings, seen, holders, self.poster.resources, offered)
        self.metrics.parts(
            driver=not self._trouble,
            kubelet=not self.kubelet.problem,
            service=not self.poster.problem,
            ledger=not self.ledger.problem,
            events=self._listener.listening.is_set(),
        )
        self.metrics.ledger(self.ledger.waiting(), self.ledger.dropped)
        return self.metrics.text()

    @property
    def _trouble(self) -> str:
        """Why no device can be read though it should."""
        problem = self.reader.problem
        return "" if problem == driver.LET_GO else driver.say(problem)

    def second(self) -> bool:
        """Watch one second; return whether a batch was written.  Runs in a worker thread."""
        now, clock = datetime.now(UTC), time.monotonic()
        # An upgrade waits until nobody has the driver open; what runs is watched to its end.
        unheld = self._holders is not None and not self._holders
        self.library.let_go(wanted=self.poster.leaving and unheld)
        if clock - self._looked >= (_LOOK_EVERY if self.reader.seen else 1.0):
            self._looked = clock
            self._look()
        readings = self.reader.read(now)
        news = self._look_after(readings, now, clock)
        self.kubelet.refresh(clock, soon=batches.unaccounted(readings, self._holders))
        self._holders = self.kubelet.holders(clock, self.reader.seen)
        self._readings = readings
        return self._gather(readings, now, clock, news=news)

    def _look(self) -> None:
        before = self.reader.problem
        self.reader.look()
        if self.reader.problem and self.reader.problem != before:
            log.warning("no GPU can be read: %s Looking again each second.", self._trouble)

    def _look_after(self, readings: Sequence[DeviceReading], now: datetime, clock: float) -> bool:
        """Note what speaks against devices; return whether that is news."""
        news = False
        for reading in readings:
            if reading.gap:
                self.metrics.gap(reading.gap)
            news = self._health.saw(reading) or news
        while not self._listener.events.empty():
            event = self._listener.events.get()
            own_fault = event.xid in APPLICATION_XIDS
            self.metrics.incident("program" if own_fault else event.kind)
            news = self._health.heard(event, self.reader.seen) or news
        nvml = self.library.present
        if nvml is not None and clock - self._checked >= _CHECK_EVERY:
            self._checked = clock
            self._health.check(nvml, self.reader.seen, now)
        if self.incidents.changed:
            news = True
            self.ledger.note(self.incidents.all(now))
        return news

    def _gather(
        self, readings: Sequence[DeviceReading], now: datetime, clock: float, *, news: bool
    ) -> bool:
        seen = self.reader.seen

        def place(pid: int) -> str | None:
            return None if self._alone else self._places.place(pid, clock)

        levels = {uuid: each.level for uuid, each in seen.items()}
        seconds = [
            batches.second_of(each, levels.get(each.uuid, EvidenceLevel.CELLS), place)
            for each in readings
        ]
        with self._lock:  # a second that hung may come to its end while its gap is told
            self._gathering.add(seconds, news=news)
            if not self._gathering.due(clock, held=bool(self._holders)):
                return False
            taken = self._gathering.take(clock)
        batch = batches.batch_of(
            now,
            taken,
            seen=seen,
            holders=self._holders,
            incidents=self.incidents,
            offered=lambda uuid: self.kubelet.offered(uuid, seen),
            problem=self._trouble,
        )
        self.ledger.add(batch)
        return True

    async def _watch(self) -> None:
        """Do each second at its time; one that hangs is waited for, and its devices are gaps."""
        running: asyncio.Task[bool] | None = None
        while True:
            started = time.monotonic()
            if running is None:
                running = asyncio.create_task(asyncio.to_thread(self.second))
            done, _ = await asyncio.wait({running}, timeout=_HANGS)
            self.hangs = not done
            if done:
                written, running = running.result(), None
                self._last_second = time.monotonic()
            else:
                written = self._hung()
            if written:
                self.poster.wake()
            await asyncio.sleep(max(0.05, 1.0 - (time.monotonic() - started)))

    def _hung(self) -> bool:
        """Tell of devices that nobody can read at present: the driver does not come back."""
        log.warning("the driver does not answer")
        now = datetime.now(UTC)
        gaps = [
            DeviceReading(uuid, now, None, "driver_hangs")
            for uuid, each in list(self.reader.seen.items())
            if not each.divided
        ]
        return self._gather(gaps, now, time.monotonic(), news=False)

    def _listen(self) -> None:
        app = Application(
            [
                (r"/healthz", _Healthz, {"agent": self}),
                (r"/metrics", _Metrics, {"agent": self}),
            ],
            log_function=lambda _: None,
        )
        self._server = HTTPServer(app)
        sockets = bind_sockets(self.options.port, self.options.host or None)
        self.port = sockets[0].getsockname()[1]
        self._server.add_sockets(sockets)
        log.info("answering /healthz and /metrics on port %d", self.port)


class _Page(RequestHandler):
    def initialize(self, agent: Agent) -> None:
        self.agent = agent


class _Healthz(_Page):
    """503 where a new container helps: seconds are not watched any more, or the driver in this one
    does not fit the node's.  Other parts that are away are said.
    """

    def get(self) -> None:
        state = self.agent.state()
        self.set_status(200 if state["watching"] and not self.agent.stale else 503)
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(state))


class _Metrics(_Page):
    async def get(self) -> None:
        self.set_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.finish(await asyncio.to_thread(self.agent.show))
