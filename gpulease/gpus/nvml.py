"""Reads NVIDIA GPUs through NVML.

Owns which devices were seen, and the rule that each NVML error becomes a gap with its reason.
Refuses to say who may use a device.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gpulease.gpus import driver
from gpulease.gpus.base import GPUInfo, Sample
from gpulease.gpus.driver import LOST_GAPS, Library, reason_of

__all__ = ["LOST_GAPS", "NVMLProbe", "describe", "reason_of"]

log = logging.getLogger(__name__)


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
        self._library = Library(load)
        self._generation = 0
        self._known: dict[str, _Known] = {}

    @property
    def problem(self) -> str:
        """Why there is no inventory; shown on ``health``."""
        return self._library.problem

    def inventory(self) -> Sequence[GPUInfo]:
        """Return every device seen so far; empty where there is no driver or no GPU."""
        nvml = self._library.ready()
        if nvml is not None:
            self._look(nvml)
        return [known.info for known in self._known.values()]

    def sample(self) -> Sequence[Sample]:
        """Read each known device once; every error is a gap with NVML's own reason."""
        now = datetime.now(UTC)
        nvml = self._library.ready()
        if nvml is not None and self._known and self._generation != self._library.generation:
            self._look(nvml)
        if nvml is None:
            return [Sample(uuid, now, None, gap=self.problem) for uuid in self._known]
        return [self._read(nvml, known, now) for known in self._known.values()]

    def close(self) -> None:
        """Give the driver library back."""
        self._library.close()

    def _look(self, nvml: Any) -> None:
        self._generation = self._library.generation
        try:
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            self._library.failed(nvml, error)
            return
        for index in range(count):
            try:
                self._add(nvml, index)
            except nvml.NVMLError as error:
                reason = self._library.failed(nvml, error)
                log.warning("GPU %d cannot be read: %s", index, reason)

    def _add(self, nvml: Any, index: int) -> None:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        info = describe(nvml, handle, index)
        last = self._known[info.uuid].last_sample if info.uuid in self._known else 0
        self._known[info.uuid] = _Known(info, handle, last)

    def _read(self, nvml: Any, known: _Known, now: datetime) -> Sample:
        uuid = known.info.uuid
        try:
            use, known.last_sample = driver.peak_use(nvml, known.handle, known.last_sample)
            memory = int(nvml.nvmlDeviceGetMemoryInfo(known.handle).used)
            pids = driver.pids_of(nvml, known.handle) or ()
        except nvml.NVMLError as error:
            return Sample(uuid, now, None, gap=self._library.failed(nvml, error))
        return Sample(uuid, now, use, memory_used=memory, pids=pids)


def describe(nvml: Any, handle: Any, index: int) -> GPUInfo:
    """Return a device as its driver describes it.

    Raises:
        NVMLError: it does not even give its name.
    """
    return GPUInfo(
        uuid=driver.text_of(nvml.nvmlDeviceGetUUID(handle)),
        index=index,
        name=driver.text_of(nvml.nvmlDeviceGetName(handle)),
        memory=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        simulated=False,
        compute_capability=driver.optional(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle),
        ecc=_ecc(nvml, handle),
    )


def _ecc(nvml: Any, handle: Any) -> bool | None:
    modes = driver.optional(nvml, nvml.nvmlDeviceGetEccMode, handle)
    return None if modes is None else bool(modes[0])
