"""NVIDIA's driver library: when it is loaded, how it is asked, and which of its answers are taken.

One ``pynvml`` of a process, loaded at the first use and initialised again after it was lost.
Every question goes through ``ask``, and every figure is checked: drivers were seen to answer with
2^32-1, with stamps in the future, for process 0, and with text that cannot be decoded.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

log = logging.getLogger(__name__)

#: Gaps after which nobody knows what runs on the device.
LOST_GAPS = frozenset({"gpu_is_lost", "reset_required", "gpu_not_found"})
#: The driver will not say, now or later: no fault.
UNABLE = frozenset({"not_supported", "no_permission", "function_not_found"})
#: Nothing is newer than what was read last: no fault.
NOTHING_NEW = frozenset({"not_found", "no_data", "success"})
#: The library itself is of no use any more, not only one device.
_LIBRARY_LOST = frozenset({"uninitialized", "driver_not_loaded", "unknown"})
#: There is no driver on this machine at all.
NO_DRIVER = frozenset({"library_not_found", "no_binding"})
#: Is there while the driver's kernel module is loaded, in containers too.
KERNEL_MODULE = Path("/proc/driver/nvidia/version")
#: The library in this container does not fit the node any more: a new container has one that does.
STALE_CONTAINER = frozenset({"lib_rm_version_mismatch", "unknown"})
#: The driver was given back on purpose.
LET_GO = "let_go"
#: A figure was given that cannot be true.
IMPLAUSIBLE = "implausible"

#: Reason -> what it means and what an admin can do.
WORDS: Final[Mapping[str, str]] = {
    "no_binding": "nvidia-ml-py is not installed. Install it beside gpulease to read NVIDIA GPUs.",
    "library_not_found": "There is no NVIDIA driver library here. Install the driver; in a"
    " container, use the runtime class of the GPUs.",
    "driver_not_loaded": "The driver's kernel module is not loaded. Look at `nvidia-smi` and"
    " `dmesg` on the machine, load the module or reboot.",
    "lib_rm_version_mismatch": "The driver was updated and its old kernel module still runs."
    " Drain and reboot the machine; after an update of the node's driver, restart this container.",
    "unknown": "The devices cannot be opened any more, as happens to containers when systemd or"
    " the container runtime is reloaded. Restart the pod; on a machine without containers, look at"
    " `dmesg`.",
    "no_permission": "The devices may not be opened. Check the rights of /dev/nvidia* and the"
    " runtime class.",
    "gpu_is_lost": "The GPU fell off the bus (Xid 79). Drain and reboot the machine. If it happens"
    " again, have the card, its power and its cooling checked.",
    "gpu_not_found": "The GPU is not there any more. Drain and reboot the machine.",
    "reset_required": "The GPU must be reset. Drain the machine, then run `nvidia-smi --gpu-reset`"
    " or reboot.",
    "insufficient_power": "The GPU's power cables are not attached properly. Check them.",
    "irq_issue": "The kernel has a problem with the GPU's interrupts. Look at `dmesg`, reboot.",
    "corrupted_inforom": "The GPU's own configuration is damaged. The card must be exchanged.",
    "no_mig_devices": "The GPU is in MIG mode and has no MIG devices, so nothing runs on it. Create"
    " some with `nvidia-smi mig`, or turn MIG off.",
    LET_GO: "The node is cordoned and no pod has a GPU: the driver is released, for its upgrade.",
    IMPLAUSIBLE: "The driver gives figures that cannot be true. Compare with `nvidia-smi`, and"
    " update the driver if it lasts.",
}

#: The biggest process number of Linux (``PID_MAX_LIMIT``).
_PID_MAX: Final = 2**22
#: More memory (bytes) or power (milliwatts) than this has no device.
_BYTES_MAX: Final = 2**46
_POWER_MAX: Final = 10**8
#: A driver's stamp may be ahead of this machine's clock by this much (microseconds).
_AHEAD: Final = 5_000_000
#: NVML's ``NVML_VALUE_TYPE_UNSIGNED_INT``.
_UNSIGNED: Final = 1


class RefusedError(Exception):
    """The driver did not answer.  ``reason`` is NVML's name of its error in lower case."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def say(reason: str) -> str:
    """Return a reason with what it means and what to do, "" for no reason."""
    return f"{reason}: {WORDS[reason]}" if reason in WORDS else reason


class Library:
    """The driver library of this process.

    Args:
        load: returns the ``pynvml`` module; it is called at the first use, not before.
    """

    def __init__(self, load: Callable[[], Any] | None = None) -> None:
        self._load = load or _import_pynvml
        self._nvml: Any = None
        self._open: list[Any] = []  # once for each time that NVML counts
        self._let_go = False
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
        if self._nvml is not None or self._let_go:
            return self._nvml
        try:
            nvml = self._load()
        except ImportError:
            self.problem = "no_binding"
            return None
        try:
            ask(nvml, "nvmlInit")
        except RefusedError as error:
            self.problem = error.reason
            return None
        self.problem = ""
        self._nvml = nvml
        self._open.append(nvml)
        self.generation += 1
        return nvml

    def failed(self, reason: str) -> str:
        """Take note of an error; a library that is lost is initialised again next time."""
        if reason in _LIBRARY_LOST:
            self.problem = reason
            self._nvml = None
        return reason

    def let_go(self, *, wanted: bool) -> None:
        """Close the driver and keep it closed while ``wanted``: its module can be unloaded then."""
        if wanted and not self._let_go:
            self.close()
            self.problem = LET_GO
            log.info("the driver is released")
        elif self._let_go and not wanted:
            self.problem = ""
            log.info("the driver is opened again")
        self._let_go = wanted

    def close(self) -> None:
        """Give the driver library back."""
        self._nvml = None
        while self._open:
            try:
                ask(self._open.pop(), "nvmlShutdown")
            except RefusedError as error:
                log.info("nvmlShutdown: %s", error)


def ask(nvml: Any, name: str, *arguments: Any) -> Any:
    """Ask the driver.

    Raises:
        RefusedError: it does not answer, or not in the form that its interface says.
    """
    try:
        return getattr(nvml, name)(*arguments)
    except nvml.NVMLError as error:
        raise RefusedError(reason_of(nvml, error)) from error
    # A library or a binding that is older than the other; pynvml's own error is no NVMLError.
    except (nvml.NVMLLibraryMismatchError, AttributeError) as error:
        raise RefusedError("function_not_found") from error
    except UnicodeDecodeError as error:
        raise RefusedError(IMPLAUSIBLE) from error


def optional(nvml: Any, name: str, *arguments: Any) -> Any | None:
    """Return what the driver says, or ``None`` where it does not answer this question."""
    try:
        return ask(nvml, name, *arguments)
    except RefusedError:
        return None


def reason_of(nvml: Any, error: Exception) -> str:
    """Return NVML's name of an error in lower case, such as ``gpu_is_lost``."""
    value = int(getattr(error, "value", -1))
    return _names(nvml).get(value, f"nvml_error_{value}")


def peak_use(nvml: Any, handle: Any, last: int) -> tuple[float, int]:
    """Return the peak use since NVML's time ``last`` (0..1), and the time to go on from.

    Read from the driver's own buffer of samples, so that a burst between two looks is seen; where
    there is none, the average of the driver's last period.

    Raises:
        RefusedError: the device cannot be read.
    """
    kind, fresh = nvml.NVML_GPU_UTILIZATION_SAMPLES, Fresh(last)
    try:
        form, samples = ask(nvml, "nvmlDeviceGetSamples", handle, kind, fresh.newest)
    except RefusedError as error:
        if error.reason not in UNABLE | NOTHING_NEW:
            raise
        form, samples = _UNSIGNED, []
    uses = [
        use
        for each in (samples if form == _UNSIGNED else ())
        if (use := share(each.sampleValue.uiVal)) is not None and fresh.takes(each.timeStamp)
    ]
    if uses:
        return max(uses), fresh.newest
    use = share(ask(nvml, "nvmlDeviceGetUtilizationRates", handle).gpu)
    if use is None:
        raise RefusedError(IMPLAUSIBLE)
    return use, fresh.newest


def use_by_pid(nvml: Any, handle: Any, last: int) -> tuple[dict[int, float] | None, int]:
    """Return the peak use of each process since NVML's time ``last``, and the time to go on from.

    ``None`` where rows came and not one of them can be true.

    Raises:
        RefusedError: the driver does not tell.
    """
    fresh, found, some = Fresh(last), dict[int, float](), False
    try:
        rows = ask(nvml, "nvmlDeviceGetProcessUtilization", handle, fresh.newest)
    except RefusedError as error:
        if error.reason not in NOTHING_NEW:
            raise
        return {}, fresh.newest
    for row in rows:
        uses = [use for each in (row.smUtil, row.encUtil, row.decUtil) if (use := share(each))]
        readable = uses or share(row.smUtil) is not None
        if readable and is_pid(row.pid) and fresh.possible(row.timeStamp):
            some = True
            if fresh.takes(row.timeStamp):
                found[row.pid] = max([found.get(row.pid, 0.0), *uses])
    return (found if some or not rows else None), fresh.newest


def processes(nvml: Any, handle: Any) -> dict[int, int | None] | None:
    """Return the processes on a device by the node's own numbers, and the bytes that each holds.

    ``None`` where the driver does not tell who is there: that nobody is seen does not mean that
    nobody is.

    Raises:
        RefusedError: the device cannot be read.
    """
    found: dict[int, int | None] = {}
    strange = False
    for kind in ("Compute", "Graphics"):
        try:
            rows = ask(nvml, f"nvmlDeviceGet{kind}RunningProcesses", handle)
        except RefusedError as error:
            # A list may be forbidden or unsupported while utilisation is readable.
            if error.reason not in UNABLE:
                raise
            if kind == "Compute":
                return None
            continue
        for row in rows:
            strange = strange or not is_pid(row.pid)
            if is_pid(row.pid):  # one process may stand in both lists
                sizes = [size(row.usedGpuMemory), found.get(row.pid)]
                found[row.pid] = max((each for each in sizes if each is not None), default=None)
    return found if found or not strange else None


class Fresh:
    """Which of a driver's time stamps are new and possible.

    A stamp in the future is dropped, and the time to go on from is never later than now: neither
    garbage nor a clock that was set back makes later samples look old.
    """

    def __init__(self, last: int) -> None:
        self._now = time.time_ns() // 1000
        self._last = self.newest = min(last, self._now)

    def possible(self, stamp: int) -> bool:
        """Whether a stamp can be true."""
        return 0 < stamp <= self._now + _AHEAD

    def takes(self, stamp: int) -> bool:
        """Whether a sample of this stamp is new."""
        new = self.possible(stamp) and stamp > self._last
        if new:
            self.newest = max(self.newest, min(stamp, self._now))
        return new


def share(percent: float) -> float | None:
    """Return a percentage as 0..1, ``None`` where it is none (NaN too)."""
    return percent / 100 if 0 <= percent <= 100 else None


def is_pid(number: int) -> bool:
    """Whether a process can have this number."""
    return 0 < number <= _PID_MAX


def size(number: int | None, most: int | None = None) -> int | None:
    """Return a number of bytes that a device can have (``most``: its whole memory, 0 unknown)."""
    return number if number is not None and 0 <= number <= (most or _BYTES_MAX) else None


def watts(milliwatts: int | None) -> float | None:
    """Return a power in watts, ``None`` where no device draws that much."""
    return milliwatts / 1000 if milliwatts is not None and 0 <= milliwatts <= _POWER_MAX else None


def text_of(value: str | bytes) -> str:
    """Return a name as text; older versions of ``pynvml`` give bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


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
