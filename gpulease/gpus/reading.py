"""Reads each device of this machine once a second: GPUs, and MIG devices instead of their GPU.

What NVML is asked, how finely use can be told (``EvidenceLevel``) and what is read instead where a
device cannot answer.  For a MIG device NVML has one measure of utilisation, GPM (Hopper and
newer): a figure is made from a pair of samples, one of each reading.  Only a device's identity is
needed; every other reading may be missing.  Every error of use is a gap with NVML's own reason,
never a zero; only "nothing is newer" is unused.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from gpulease.gpus import driver
from gpulease.gpus.base import GPUInfo
from gpulease.gpus.driver import (
    IMPLAUSIBLE,
    NOTHING_NEW,
    UNABLE,
    Library,
    RefusedError,
    ask,
    optional,
    reason_of,
    share,
)
from gpulease.policy.model import EvidenceLevel

#: NVML's ``NVML_GPM_METRIC_GRAPHICS_UTIL``: share of time in which anything ran.
_GRAPHICS_UTIL = 1


class Meter:
    """The use of one MIG device, from one reading to the next.

    Args:
        nvml: the driver library.
    """

    def __init__(self, nvml: Any) -> None:
        self._samples = [ask(nvml, "nvmlGpmSampleAlloc"), ask(nvml, "nvmlGpmSampleAlloc")]
        self._whole = False  # whether both samples were taken
        self._card: Any = None
        self._instance = 0

    @staticmethod
    def possible(nvml: Any, card: Any) -> bool:
        """Tell whether a GPU has GPM."""
        support = optional(nvml, "nvmlGpmQueryDeviceSupport", card)
        return support is not None and bool(support.isSupportedDevice)

    def aim(self, card: Any, instance: int) -> None:
        """Say which GPU instance of which GPU to read from now on."""
        self._card, self._instance = card, instance

    def read(self, nvml: Any) -> float | None:
        """Return the use since the last call (0..1), ``None`` at the first.

        Raises:
            RefusedError: the device cannot be read.
        """
        before, now = self._samples
        ask(nvml, "nvmlGpmMigSampleGet", self._card, self._instance, now)
        self._samples = [now, before]
        if not self._whole:
            self._whole = True
            return None
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version = nvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = 1
        asked.sample1, asked.sample2 = before, now
        asked.metrics[0].metricId = _GRAPHICS_UTIL
        ask(nvml, "nvmlGpmMetricsGet", asked)
        metric = asked.metrics[0]
        if metric.nvmlReturn != 0:
            raise RefusedError(reason_of(nvml, nvml.NVMLError(metric.nvmlReturn)))
        use = share(round(float(metric.value), 3))
        if use is None:
            raise RefusedError(IMPLAUSIBLE)
        return use


log = logging.getLogger(__name__)

#: No machine has more GPUs, and no GPU more MIG devices.
GPUS_MAX: Final = 256
_MIG_MAX: Final = 64
_UUID_MAX: Final = 96
_PROCESS_USE: Final = "nvmlDeviceGetProcessUtilization"
#: The gap of a device that cannot measure its use.
NO_UTILISATION: Final = "no_utilisation"


@dataclass(frozen=True)
class DeviceReading:
    """One device in one second.  ``use`` 0..1, or ``None`` with ``gap`` saying why.

    ``by_pid`` is the use of each process (0..1), ``memory_by_pid`` the bytes that each holds,
    ``pids`` who is there: ``None`` where the driver does not tell.
    """

    uuid: str
    at: datetime
    use: float | None
    gap: str = ""
    memory: int | None = None
    power: float | None = None  # watts
    by_pid: Mapping[int, float] | None = None
    memory_by_pid: Mapping[int, int] | None = None
    pids: tuple[int, ...] | None = None


@dataclass
class Seen:
    """A device that the driver showed; it stays when the driver loses it."""

    info: GPUInfo
    handle: Any
    parent: str = ""  # the GPU of a MIG device
    instance: int | None = None  # a MIG device's GPU instance
    divided: bool = False  # a GPU in MIG mode: its devices are read instead of it
    level: EvidenceLevel = EvidenceLevel.PROCESS
    meter: Meter | None = None
    last_sample: int = 0  # NVML's own time stamps, microseconds
    last_process: int = 0
    unable: set[str] = field(default_factory=set)  # what it said that it cannot answer


class DeviceReader:
    """The devices of this machine.

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
            count = ask(nvml, "nvmlDeviceGetCount")
        except RefusedError as error:
            log.warning("the GPUs cannot be listed: %s", self._library.failed(error.reason))
            return
        for index in range(min(count, GPUS_MAX)):
            try:
                self._look_at(nvml, index)
            except RefusedError as error:
                reason = self._library.failed(error.reason)
                log.warning("GPU %d cannot be read: %s", index, driver.say(reason))

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
        handle = ask(nvml, "nvmlDeviceGetHandleByIndex", index)
        info = describe(nvml, handle, index)
        mode = optional(nvml, "nvmlDeviceGetMigMode", handle)
        card = self._put(Seen(info, handle, divided=bool(mode and mode[0] == 1)))
        found = set(self._look_inside(nvml, card)) if card.divided else set()
        # Unlike a GPU that is lost, a MIG device that is not listed any more was taken apart.
        for uuid in [each for each, seen in self.seen.items() if seen.parent == info.uuid]:
            if uuid not in found:
                del self.seen[uuid]

    def _look_inside(self, nvml: Any, card: Seen) -> list[str]:
        found = []
        most = optional(nvml, "nvmlDeviceGetMaxMigDeviceCount", card.handle) or 0
        for index in range(min(most, _MIG_MAX)):
            try:
                handle = ask(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", card.handle, index)
                info = describe(nvml, handle, index)
            except RefusedError as error:
                if error.reason not in NOTHING_NEW | UNABLE | {"invalid_argument"}:
                    log.warning("a MIG device cannot be read: %s", error.reason)
                continue
            instance = optional(nvml, "nvmlDeviceGetGpuInstanceId", handle)
            seen = self._put(Seen(info, handle, parent=card.info.uuid, instance=instance))
            self._measure(nvml, card, seen)
            found.append(info.uuid)
        return found

    @staticmethod
    def _measure(nvml: Any, card: Seen, seen: Seen) -> None:
        """Let GPM measure a MIG device where the card has it."""
        if seen.instance is not None and Meter.possible(nvml, card.handle):
            seen.meter = seen.meter or Meter(nvml)
            seen.meter.aim(card.handle, seen.instance)
        seen.level = EvidenceLevel.DEVICE if seen.meter else EvidenceLevel.CELLS

    def _put(self, seen: Seen) -> Seen:
        """Keep a device; what was read of it before stands, with its new handle."""
        known = self.seen.get(seen.info.uuid)
        if known is None:
            self.seen[seen.info.uuid] = seen
            return seen
        known.info, known.handle, known.divided = seen.info, seen.handle, seen.divided
        known.instance = seen.instance
        known.unable.clear()
        return known

    def _read(self, nvml: Any, seen: Seen, now: datetime) -> DeviceReading:
        uuid, gap = seen.info.uuid, ""
        try:
            use = self._use(nvml, seen)
            held = self._held(nvml, seen, needed=use is None)
        except RefusedError as error:
            return DeviceReading(uuid, now, None, self._library.failed(error.reason))
        by_pid = self._by_pid(nvml, seen)
        seen.level = self._level(seen, use)
        if use is None:
            # A device that no process has is unused, whatever it cannot measure.
            use, gap = (0.0, "") if held == {} else (None, NO_UTILISATION)
        memory = self._ask(nvml, seen, "nvmlDeviceGetMemoryInfo")
        # A MIG device's memory is its holder's alone: nobody need be told apart there.
        told = held is not None and not seen.parent
        sizes = (held or {}).items()
        return DeviceReading(
            uuid,
            now,
            use,
            gap,
            # Of an unknown whole no part says anything.
            driver.size(memory.used, seen.info.memory) if memory and seen.info.memory else None,
            driver.watts(self._ask(nvml, seen, "nvmlDeviceGetPowerUsage")),
            by_pid,
            {pid: size for pid, size in sizes if size is not None} if told else None,
            None if held is None else tuple(sorted(held)),
        )

    def _use(self, nvml: Any, seen: Seen) -> float | None:
        """Return the device's use; ``None`` where nothing on it can measure that."""
        if seen.meter is not None:
            try:
                return seen.meter.read(nvml)
            except RefusedError as error:
                if error.reason not in UNABLE:
                    raise
                seen.meter = None  # the card has GPM, this driver not for its parts
        if "use" not in seen.unable and not seen.parent:
            try:
                use, seen.last_sample = driver.peak_use(nvml, seen.handle, seen.last_sample)
            except RefusedError as error:
                if error.reason not in UNABLE:
                    raise
                seen.unable.add("use")
            else:
                return use
        return None

    @staticmethod
    def _held(nvml: Any, seen: Seen, *, needed: bool) -> Mapping[int, int | None] | None:
        """Return the device's processes; ``needed``: nothing else tells whether it is there."""
        try:
            return driver.processes(nvml, seen.handle)
        except RefusedError:
            if needed:
                raise
            return None

    @staticmethod
    def _by_pid(nvml: Any, seen: Seen) -> Mapping[int, float] | None:
        """Return the use of each process since the last look, the peak of each."""
        if seen.parent or _PROCESS_USE in seen.unable:
            return None
        try:
            found, seen.last_process = driver.use_by_pid(nvml, seen.handle, seen.last_process)
        except RefusedError as error:
            if error.reason in UNABLE:
                seen.unable.add(_PROCESS_USE)
            return None
        return found

    @staticmethod
    def _ask(nvml: Any, seen: Seen, name: str) -> Any | None:
        if name in seen.unable:
            return None
        try:
            return ask(nvml, name, seen.handle)
        except RefusedError as error:
            if error.reason in UNABLE:
                seen.unable.add(name)
            return None

    @staticmethod
    def _level(seen: Seen, use: float | None) -> EvidenceLevel:
        if seen.parent:
            return EvidenceLevel.DEVICE if seen.meter else EvidenceLevel.CELLS
        if use is None or "use" in seen.unable:
            return EvidenceLevel.CELLS
        return EvidenceLevel.DEVICE if _PROCESS_USE in seen.unable else EvidenceLevel.PROCESS


def describe(nvml: Any, handle: Any, index: int) -> GPUInfo:
    """Return a device as its driver describes it.

    Raises:
        RefusedError: it does not even say which one it is.
    """
    uuid = driver.text_of(ask(nvml, "nvmlDeviceGetUUID", handle))
    if not 0 < len(uuid) <= _UUID_MAX or not uuid.isascii() or not uuid.isprintable():
        raise RefusedError(driver.IMPLAUSIBLE)
    name = driver.text_of(optional(nvml, "nvmlDeviceGetName", handle) or "")
    memory = optional(nvml, "nvmlDeviceGetMemoryInfo", handle)
    ecc = optional(nvml, "nvmlDeviceGetEccMode", handle)
    return GPUInfo(
        uuid=uuid,
        index=index,
        name="".join(filter(str.isprintable, name))[:128] or "NVIDIA GPU",
        memory=driver.size(memory and memory.total) or 0,
        simulated=False,
        compute_capability=optional(nvml, "nvmlDeviceGetCudaComputeCapability", handle),
        ecc=None if ecc is None else bool(ecc[0]),
    )
