"""Reads NVIDIA GPUs through NVML.

Owns when the driver library is loaded (at first use, again after it was lost) and the rule that
each NVML error becomes a gap with its reason.  Refuses to say who may use a device.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gpulease.gpus.base import GPUInfo, Sample

log = logging.getLogger(__name__)

#: Gaps after which nobody knows what runs on the device.
LOST_GAPS = frozenset({"gpu_is_lost", "reset_required", "gpu_not_found"})
#: A process list may be forbidden or unsupported while utilisation is readable.
_PROCESS_LISTS = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")


@dataclass
class _Known:
    """A device seen once: it stays in the inventory when the driver loses it."""

    info: GPUInfo
    handle: Any
    last_sample: int = 0  # NVML's own time stamp, microseconds


class NVMLProbe:
    """The ``Probe`` of NVIDIA's driver.

    Args:
        load: returns the ``pynvml`` module; it is called at the first use, not before.
    """

    def __init__(self, load: Callable[[], Any] | None = None) -> None:
        self._load = load or _import_pynvml
        self._nvml: Any = None
        self._known: dict[str, _Known] = {}
        #: Why there is no inventory; shown on ``health``.
        self.problem = ""

    def inventory(self) -> Sequence[GPUInfo]:
        """Return every device seen so far; empty where there is no driver or no GPU."""
        nvml = self._ready()
        if nvml is not None:
            self._look(nvml)
        return [known.info for known in self._known.values()]

    def sample(self) -> Sequence[Sample]:
        """Read each known device once; every error is a gap with NVML's own reason."""
        now = datetime.now(UTC)
        nvml = self._ready()
        if nvml is None:
            return [Sample(uuid, now, None, gap=self.problem) for uuid in self._known]
        return [self._read(nvml, known, now) for known in self._known.values()]

    def close(self) -> None:
        """Give the driver library back."""
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            try:
                nvml.nvmlShutdown()
            except nvml.NVMLError as error:
                log.info("nvmlShutdown: %s", error)

    def _ready(self) -> Any | None:
        """Return the initialised module, or ``None`` with ``problem`` saying why."""
        if self._nvml is not None:
            return self._nvml
        try:
            nvml = self._load()
        except ImportError as error:
            self.problem = f"nvidia-ml-py is not installed ({error.name})"
            return None
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            self.problem = reason_of(nvml, error)
            return None
        self.problem = ""
        self._nvml = nvml
        if self._known:  # handles of an earlier initialisation are worth nothing
            self._look(nvml)
        return self._nvml

    def _look(self, nvml: Any) -> None:
        try:
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            self._failed(nvml, error)
            return
        for index in range(count):
            try:
                self._add(nvml, index)
            except nvml.NVMLError as error:
                self._failed(nvml, error)
                log.warning("GPU %d cannot be read: %s", index, reason_of(nvml, error))

    def _add(self, nvml: Any, index: int) -> None:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        info = GPUInfo(
            uuid=uuid,
            index=index,
            name=_text(nvml.nvmlDeviceGetName(handle)),
            memory=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            simulated=False,
            compute_capability=_optional(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle),
            ecc=_ecc(nvml, handle),
        )
        last = self._known[uuid].last_sample if uuid in self._known else 0
        self._known[uuid] = _Known(info, handle, last)

    def _read(self, nvml: Any, known: _Known, now: datetime) -> Sample:
        uuid = known.info.uuid
        try:
            use = self._utilisation(nvml, known)
            memory = int(nvml.nvmlDeviceGetMemoryInfo(known.handle).used)
            pids = self._pids(nvml, known.handle)
        except nvml.NVMLError as error:
            self._failed(nvml, error)
            return Sample(uuid, now, None, gap=reason_of(nvml, error))
        return Sample(uuid, now, use, memory_used=memory, pids=pids)

    def _utilisation(self, nvml: Any, known: _Known) -> float:
        """Return the peak since the last call, 0..1; the driver's own average as fall-back."""
        try:
            _, samples = nvml.nvmlDeviceGetSamples(
                known.handle, nvml.NVML_GPU_UTILIZATION_SAMPLES, known.last_sample
            )
        except nvml.NVMLError as error:
            if reason_of(nvml, error) not in {"not_supported", "not_found", "no_data"}:
                raise
            samples = []
        if not samples:
            return float(nvml.nvmlDeviceGetUtilizationRates(known.handle).gpu) / 100
        fresh = [each for each in samples if each.timeStamp > known.last_sample] or samples
        known.last_sample = max(each.timeStamp for each in fresh)
        return float(max(each.sampleValue.uiVal for each in fresh)) / 100

    def _pids(self, nvml: Any, handle: Any) -> tuple[int, ...]:
        pids: set[int] = set()
        for name in _PROCESS_LISTS:
            try:
                pids.update(int(each.pid) for each in getattr(nvml, name)(handle))
            except nvml.NVMLError as error:
                if reason_of(nvml, error) not in {"not_supported", "no_permission"}:
                    raise
        return tuple(sorted(pids))

    def _failed(self, nvml: Any, error: Exception) -> None:
        """Forget a library that lost its driver, so that the next call initialises it anew."""
        if reason_of(nvml, error) in {"uninitialized", "driver_not_loaded", "unknown"}:
            self.problem = reason_of(nvml, error)
            self._nvml = None


def reason_of(nvml: Any, error: Exception) -> str:
    """Return NVML's name of an error in lower case, such as ``gpu_is_lost``."""
    value = getattr(error, "value", None)
    for name in dir(nvml):
        if name.startswith("NVML_ERROR_") and getattr(nvml, name) == value:
            return name.removeprefix("NVML_ERROR_").lower()
    return f"nvml_error_{value}"


def _import_pynvml() -> Any:
    import pynvml

    return pynvml


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _optional(nvml: Any, read: Callable[[Any], Any], handle: Any) -> Any | None:
    try:
        return read(handle)
    except nvml.NVMLError:  # consumer cards and old drivers do not answer every question
        return None


def _ecc(nvml: Any, handle: Any) -> bool | None:
    modes = _optional(nvml, nvml.nvmlDeviceGetEccMode, handle)
    return None if modes is None else bool(modes[0])
