"""When samples are posted, and in which form.

Seconds are gathered into batches.  A batch is due at the usual time, and at once when a device or a
pod turns busy or idle or a fault is found.  Pure: time is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from gpulease.gpus.agent.cgroups import NODE
from gpulease.gpus.agent.health import Incidents
from gpulease.gpus.agent.wire import ContainerDevice
from gpulease.gpus.reading import DeviceReading, Seen
from gpulease.policy.idleness import USE
from gpulease.policy.model import EvidenceLevel
from gpulease.protocol.agents import AgentBatch, AgentDevice, AgentHolder, AgentSecond

#: Seconds between two batches: of a node whose devices nobody holds, and of any other.  A sample
#: speaks for 10 seconds, so evidence of a lease must come more often than that.
EVERY = 10.0
EVERY_HELD = 5.0
#: Seconds that a change waits if another one was told just before: use that flickers is no news.
CALM = 2.5


@dataclass
class Gathering:
    """The seconds since the last batch.

    Args:
        every: seconds between two batches while nobody holds a device.
        every_held: the same while somebody does.
    """

    every: float = EVERY
    every_held: float = EVERY_HELD
    _seconds: list[AgentSecond] = field(default_factory=list)
    _busy: frozenset[str] = frozenset()
    _changed: bool = False
    _last: float = float("-inf")

    def add(self, seconds: Iterable[AgentSecond], *, news: bool = False) -> None:
        """Take one second of every device; ``news``: a fault began or ended."""
        new = list(seconds)
        self._seconds += new
        busy = _busy(new, self._busy)
        self._changed = self._changed or news or busy != self._busy
        self._busy = busy

    def due(self, now: float, *, held: bool) -> bool:
        """Whether to post now (a monotonic clock, seconds); ``held``: somebody holds a device."""
        since = now - self._last
        # Half a second early is in time: the next look is a whole second away.
        usual = (self.every_held if held else self.every) - 0.5
        return since >= usual or (self._changed and since >= CALM)

    def take(self, now: float) -> list[AgentSecond]:
        """Return the seconds gathered, and start again."""
        found, self._seconds = self._seconds, []
        self._last, self._changed = now, False
        return found


def second_of(
    reading: DeviceReading, level: EvidenceLevel, place: Callable[[int], str | None]
) -> AgentSecond:
    """Return a reading as it is posted.

    Args:
        reading: one device in one second.
        level: how finely the device's use is told apart.
        place: the pod of a process, ``NODE`` for none, ``None`` when nobody can say.
    """
    found: AgentSecond = {
        "at": reading.at.isoformat(timespec="milliseconds"),
        "device": reading.uuid,
        "use": None if reading.use is None else round(reading.use, 3),
    }
    if reading.gap:
        found["gap"] = reading.gap[:64]
    if reading.memory is not None:
        found["memory"] = reading.memory
    if reading.power is not None:
        found["power"] = round(reading.power, 1)
    if level is EvidenceLevel.PROCESS and reading.by_pid:
        _attribute(found, reading.by_pid, place)
    memories: dict[str, int] = {}
    for pid, held in (reading.memory_by_pid or {}).items():
        if pod := place(pid):  # NODE is no pod
            memories[pod] = memories.get(pod, 0) + held
    if memories:
        found["memories"] = memories
    return found


def batch_of(
    at: datetime,
    seconds: Sequence[AgentSecond],
    *,
    seen: Mapping[str, Seen],
    holders: Sequence[ContainerDevice] | None,
    incidents: Incidents,
    offered: Callable[[str], bool],
    problem: str,
) -> AgentBatch:
    """Return a batch; the ledger numbers it."""
    devices: list[AgentDevice] = [
        {
            "uuid": uuid,
            "parent": each.parent,
            "index": each.info.index,
            "name": each.info.name[:128],
            "memory": each.info.memory,
            "level": each.level.value,
            "offered": offered(uuid),
            "incidents": incidents.of(uuid),
        }
        for uuid, each in seen.items()
    ]
    return {
        "sequence": 0,
        "at": at.isoformat(timespec="milliseconds"),
        "devices": devices,
        "holders": None if holders is None else [_holder(each) for each in holders],
        "seconds": list(seconds),
        "problem": problem[:500],
    }


def unaccounted(
    readings: Iterable[DeviceReading], holders: Collection[ContainerDevice] | None
) -> bool:
    """Whether something is used that nobody holds, as far as is known: time to ask the kubelet."""
    held = {each.device.partition("::")[0] for each in holders or ()}
    return any((each.use or 0.0) > USE and each.uuid not in held for each in readings)


def _attribute(
    second: AgentSecond, by_pid: Mapping[int, float], place: Callable[[int], str | None]
) -> None:
    """Sum the processes' use up by pod."""
    pods: dict[str, float] = {}
    others = unplaced = 0.0
    for pid, use in by_pid.items():
        pod = place(pid)
        if pod is None:
            unplaced += use
        elif pod == NODE:
            others += use
        else:
            pods[pod] = pods.get(pod, 0.0) + use
    if pods:
        second["pods"] = {pod: _share(use) for pod, use in pods.items()}
    if others:
        second["others"] = _share(others)
    if unplaced:
        second["unplaced"] = _share(unplaced)


def _busy(seconds: Iterable[AgentSecond], before: frozenset[str]) -> frozenset[str]:
    """Return what is busy now: devices, and pods on them.  A gap changes nothing."""
    found = set()
    for second in seconds:
        device, use = second["device"], second["use"]
        if use is None:
            found |= {each for each in before if each.partition(" ")[0] == device}
        elif use > USE:
            found.add(device)
        for pod, share in second.get("pods", {}).items():
            if share > USE:
                found.add(f"{device} {pod}")
    return frozenset(found)


def _share(use: float) -> float:
    return round(min(1.0, use), 3)


def _holder(held: ContainerDevice) -> AgentHolder:
    found: AgentHolder = {
        "namespace": held.namespace,
        "pod": held.pod,
        "container": held.container,
        "resource": held.resource,
        "device": held.device,
    }
    if held.driver:
        found["driver"], found["pool"] = held.driver, held.pool
    return found
