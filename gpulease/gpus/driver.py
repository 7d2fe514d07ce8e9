"""NVIDIA's driver library: when it is loaded, what its errors are called, how use is read.

Owns the one ``pynvml`` of a process (loaded at the first use, initialised again after it was lost)
and the two readings that every reader of a GPU needs.  Refuses to know devices and to judge.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

log = logging.getLogger(__name__)

#: Gaps after which nobody knows what runs on the device.
LOST_GAPS = frozenset({"gpu_is_lost", "reset_required", "gpu_not_found"})
#: The driver will not say, now or later: no fault.
UNABLE = frozenset({"not_supported", "no_permission", "function_not_found"})
#: Nothing is newer than what was read last: no fault.
NOTHING_NEW = frozenset({"not_found", "no_data", "success"})
#: The library itself is of no use any more, not only one device.
_LIBRARY_LOST = frozenset({"uninitialized", "driver_not_loaded", "unknown"})


class Library:
    """The driver library of this process.

    Args:
        load: returns the ``pynvml`` module; it is called at the first use, not before.
    """

    def __init__(self, load: Callable[[], Any] | None = None) -> None:
        self._load = load or _import_pynvml
        self._nvml: Any = None
        #: Why there is no driver, "" while there is one.
        self.problem = ""
        #: Grows with each initialisation: handles of an earlier one are worth nothing.
        self.generation = 0

    @property
    def present(self) -> Any | None:
        """The module if it is initialised now; nothing is tried."""
        return self._nvml

    def ready(self) -> Any | None:
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
        self.generation += 1
        return nvml

    def failed(self, nvml: Any, error: Exception) -> str:
        """Return the reason of an error; a library that is lost is initialised anew next time."""
        reason = reason_of(nvml, error)
        if reason in _LIBRARY_LOST:
            self.problem = reason
            self._nvml = None
        return reason

    def close(self) -> None:
        """Give the driver library back."""
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            try:
                nvml.nvmlShutdown()
            except nvml.NVMLError as error:
                log.info("nvmlShutdown: %s", error)


def reason_of(nvml: Any, error: Exception) -> str:
    """Return NVML's name of an error in lower case, such as ``gpu_is_lost``."""
    value = int(getattr(error, "value", -1))
    return _names(nvml).get(value, f"nvml_error_{value}")


def peak_use(nvml: Any, handle: Any, last: int) -> tuple[float, int]:
    """Return the peak use since NVML's time ``last`` (0..1), and the time to go on from.

    Read from the driver's own buffer of samples, so that a burst between two looks is seen; where
    there is none, the average of the driver's last period.

    Raises:
        NVMLError: the device cannot be read.
    """
    try:
        _, samples = nvml.nvmlDeviceGetSamples(handle, nvml.NVML_GPU_UTILIZATION_SAMPLES, last)
    except nvml.NVMLError as error:
        if reason_of(nvml, error) not in UNABLE | NOTHING_NEW:
            raise
        samples = []
    if not samples:
        return float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100, last
    fresh = [each for each in samples if each.timeStamp > last] or samples
    newest = max(each.timeStamp for each in fresh)
    return min(1.0, max(each.sampleValue.uiVal for each in fresh) / 100), newest


def pids_of(nvml: Any, handle: Any) -> tuple[int, ...] | None:
    """Return the processes on a device, by the node's own process numbers.

    ``None`` where the driver does not tell: that nobody is seen does not mean that nobody is there.

    Raises:
        NVMLError: the device cannot be read.
    """
    computing = _processes(nvml, "nvmlDeviceGetComputeRunningProcesses", handle)
    drawing = _processes(nvml, "nvmlDeviceGetGraphicsRunningProcesses", handle)
    return None if computing is None else tuple(sorted(computing | (drawing or set())))


def memory_by_pid(nvml: Any, handle: Any) -> dict[int, int] | None:
    """Return the bytes that each process holds on a device, where the driver tells.

    Raises:
        NVMLError: the device cannot be read.
    """
    found: dict[int, int] = {}
    for kind in ("Compute", "Graphics"):
        rows = _rows(nvml, f"nvmlDeviceGet{kind}RunningProcesses", handle)
        if rows is None and kind == "Compute":
            return None
        for row in rows or ():
            if row.usedGpuMemory is not None:  # one process may stand in both lists
                found[int(row.pid)] = max(int(row.usedGpuMemory), found.get(int(row.pid), 0))
    return found


def _processes(nvml: Any, name: str, handle: Any) -> set[int] | None:
    rows = _rows(nvml, name, handle)
    return None if rows is None else {int(each.pid) for each in rows}


def _rows(nvml: Any, name: str, handle: Any) -> list[Any] | None:
    # A list may be forbidden or unsupported while utilisation is readable, and for a library that
    # is older than its binding pynvml raises an error that is no NVMLError.
    try:
        return list(getattr(nvml, name)(handle))
    except nvml.NVMLLibraryMismatchError:
        return None
    except nvml.NVMLError as error:
        if reason_of(nvml, error) not in UNABLE:
            raise
        return None


def text_of(value: str | bytes) -> str:
    """Return a name as text; older versions of ``pynvml`` give bytes."""
    return value.decode() if isinstance(value, bytes) else value


def optional(nvml: Any, read: Callable[[Any], Any], handle: Any) -> Any | None:
    """Return what a device says, or ``None`` where it does not answer this question."""
    try:
        return read(handle)
    except nvml.NVMLError:  # consumer cards and old drivers do not answer every question
        return None


@cache
def _names(nvml: Any) -> dict[int, str]:
    """Return the names of all error codes; NVML also raises its "success" for an empty list."""
    found = {
        int(getattr(nvml, name)): name.removeprefix("NVML_ERROR_").lower()
        for name in dir(nvml)
        if name.startswith("NVML_ERROR_")
    }
    return {**found, 0: "success"}


def _import_pynvml() -> Any:
    import pynvml

    return pynvml
