"""Reads each device of the node once a second: GPUs and their MIG devices.

Owns what NVML is asked, how finely use can be told (``EvidenceLevel``) and what is read instead
where a device cannot answer.  Every error is a gap with NVML's own reason, never a zero; only
"nothing is newer" means unused.  Refuses to know pods.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gpulease.gpus import driver
from gpulease.gpus.agent.gpm import Meter
from gpulease.gpus.base import GPUInfo
from gpulease.gpus.driver import NOTHING_NEW, UNABLE, Library, reason_of
from gpulease.gpus.nvml import describe
from gpulease.policy.model import EvidenceLevel

log = logging.getLogger(__name__)

_PROCESS_USE = "nvmlDeviceGetProcessUtilization"


@dataclass(frozen=True)
class DeviceReading:
    """One device in one second.  ``use`` 0..1, or ``None`` with ``gap`` saying why.

    ``by_pid`` is the use of each process (0..1), ``memory_by_pid`` the bytes that each holds,
    ``None`` where the driver does not tell.
    """

    uuid: str
    at: datetime
    use: float | None
    gap: str = ""
    memory: int | None = None
    power: float | None = None  # watts
    by_pid: Mapping[int, float] | None = None
    memory_by_pid: Mapping[int, int] | None = None


@dataclass
class Seen:
    """A device that the driver showed; it stays when the driver loses it."""

    info: GPUInfo
    handle: Any
    parent: str = ""  # the GPU of a MIG device
    instance: int = 0  # a MIG device's GPU instance
    divided: bool = False  # a GPU in MIG mode: its devices are read instead of it
    level: EvidenceLevel = EvidenceLevel.PROCESS
    meter: Meter | None = None
    last_sample: int = 0  # NVML's own time stamps, microseconds
    last_process: int = 0
    unable: set[str] = field(default_factory=set)  # what it said that it cannot answer


class Reader:
    """The devices of this node.

    Args:
        library: the driver library.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._generation = 0
        self.seen: dict[str, Seen] = {}

    @property
    def problem(self) -> str:
        """Why there is no device, "" when there are some."""
        return self._library.problem or ("" if self.seen else "the driver shows no GPU")

    def look(self) -> None:
        """Find out which devices there are; called at start, each minute and after a failure."""
        nvml = self._library.ready()
        if nvml is None:
            return
        self._generation = self._library.generation
        try:
            for index in range(nvml.nvmlDeviceGetCount()):
                self._look_at(nvml, index)
        except nvml.NVMLError as error:
            log.warning("the GPUs cannot be listed: %s", self._library.failed(nvml, error))

    def read(self, now: datetime) -> Sequence[DeviceReading]:
        """Read each device once."""
        nvml = self._library.ready()
        if nvml is not None and self._generation != self._library.generation:
            self.look()
        whole = [seen for seen in self.seen.values() if not seen.divided]
        if nvml is None:
            gap = self._library.problem[:64]
            return [DeviceReading(seen.info.uuid, now, None, gap) for seen in whole]
        return [self._read(nvml, seen, now) for seen in whole]

    def _look_at(self, nvml: Any, index: int) -> None:
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            info = describe(nvml, handle, index)
        except nvml.NVMLError as error:
            log.warning("GPU %d cannot be read: %s", index, self._library.failed(nvml, error))
            return
        mode = driver.optional(nvml, nvml.nvmlDeviceGetMigMode, handle)
        card = self._put(Seen(info, handle, divided=bool(mode and mode[0])))
        found = set(self._look_inside(nvml, card)) if card.divided else set()
        # Unlike a GPU that is lost, a MIG device that is not listed any more was taken apart.
        for uuid in [each for each, seen in self.seen.items() if seen.parent == info.uuid]:
            if uuid not in found:
                del self.seen[uuid]

    def _look_inside(self, nvml: Any, card: Seen) -> list[str]:
        found = []
        for index in range(
            driver.optional(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, card.handle) or 0
        ):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(card.handle, index)
                info = describe(nvml, handle, index)
                instance = nvml.nvmlDeviceGetGpuInstanceId(handle)
            except nvml.NVMLError as error:
                if reason_of(nvml, error) not in NOTHING_NEW | UNABLE | {"invalid_argument"}:
                    log.warning("a MIG device cannot be read: %s", reason_of(nvml, error))
                continue
            seen = self._put(Seen(info, handle, parent=card.info.uuid, instance=instance))
            if seen.meter is None and Meter.possible(nvml, card.handle):
                seen.meter = Meter(nvml)
            if seen.meter is not None:
                seen.meter.aim(card.handle, instance)
            seen.level = EvidenceLevel.DEVICE if seen.meter else EvidenceLevel.CELLS
            found.append(info.uuid)
        return found

    def _put(self, seen: Seen) -> Seen:
        """Keep a device; what was read of it before stands, with its new handle."""
        known = self.seen.get(seen.info.uuid)
        if known is None:
            self.seen[seen.info.uuid] = seen
            return seen
        known.info, known.handle, known.divided = seen.info, seen.handle, seen.divided
        known.unable.clear()
        return known

    def _read(self, nvml: Any, seen: Seen, now: datetime) -> DeviceReading:
        uuid = seen.info.uuid
        try:
            use = self._use(nvml, seen)
            by_pid = self._by_pid(nvml, seen)
            # A MIG device's memory is its holder's alone: nobody need be told apart there.
            by_memory = None if seen.parent else driver.memory_by_pid(nvml, seen.handle)
            memory = self._ask(nvml, seen, "nvmlDeviceGetMemoryInfo")
            power = self._ask(nvml, seen, "nvmlDeviceGetPowerUsage")
        except nvml.NVMLError as error:
            return DeviceReading(uuid, now, None, self._library.failed(nvml, error))
        seen.level = self._level(seen, use)
        return DeviceReading(
            uuid,
            now,
            use,
            "" if use is not None else "no_utilisation",
            None if memory is None else int(memory.used),
            None if power is None else power / 1000,
            by_pid,
            by_memory,
        )

    def _use(self, nvml: Any, seen: Seen) -> float | None:
        """Return the device's use; ``None`` where nothing on it can measure that."""
        if seen.meter is not None:
            try:
                return seen.meter.read(nvml)
            except nvml.NVMLError as error:
                if reason_of(nvml, error) not in UNABLE:
                    raise
                seen.meter = None  # the card has GPM, this driver not for its parts
        if "use" not in seen.unable and not seen.parent:
            try:
                use, seen.last_sample = driver.peak_use(nvml, seen.handle, seen.last_sample)
            except nvml.NVMLError as error:
                if reason_of(nvml, error) not in UNABLE:
                    raise
                seen.unable.add("use")
            else:
                return use
        # A device that no process has is unused, whatever it cannot measure.
        return 0.0 if driver.pids_of(nvml, seen.handle) == () else None

    def _by_pid(self, nvml: Any, seen: Seen) -> Mapping[int, float] | None:
        """Return the use of each process since the last look, the peak of each."""
        if seen.parent or _PROCESS_USE in seen.unable:
            return None
        try:
            rows = nvml.nvmlDeviceGetProcessUtilization(seen.handle, seen.last_process)
        except nvml.NVMLError as error:
            reason = reason_of(nvml, error)
            if reason in NOTHING_NEW:
                return {}
            if reason not in UNABLE:
                raise
            seen.unable.add(_PROCESS_USE)
            return None
        found: dict[int, float] = {}
        for row in rows:
            if row.timeStamp > seen.last_process:
                use = min(1.0, max(row.smUtil, row.encUtil, row.decUtil) / 100)
                found[row.pid] = max(use, found.get(row.pid, 0.0))
        seen.last_process = max([seen.last_process, *(row.timeStamp for row in rows)])
        return found

    def _ask(self, nvml: Any, seen: Seen, name: str) -> Any | None:
        if name in seen.unable:
            return None
        ask: Callable[[Any], Any] = getattr(nvml, name)
        try:
            return ask(seen.handle)
        except nvml.NVMLError as error:
            if reason_of(nvml, error) not in UNABLE:
                raise
            seen.unable.add(name)
            return None

    @staticmethod
    def _level(seen: Seen, use: float | None) -> EvidenceLevel:
        if seen.parent:
            return EvidenceLevel.DEVICE if seen.meter else EvidenceLevel.CELLS
        if use is None or "use" in seen.unable:
            return EvidenceLevel.CELLS
        return EvidenceLevel.DEVICE if _PROCESS_USE in seen.unable else EvidenceLevel.PROCESS
