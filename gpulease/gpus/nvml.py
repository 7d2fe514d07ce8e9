"""NVIDIA's GPUs of this machine as the service's ``Probe``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from gpulease.gpus import driver
from gpulease.gpus.base import UNMEASURED, GPUInfo, Sample
from gpulease.gpus.driver import Library
from gpulease.gpus.reading import DeviceReader, DeviceReading
from gpulease.policy.model import EvidenceLevel


class NVMLProbe:
    """The ``Probe`` of NVIDIA's driver.

    Args:
        load: returns the ``pynvml`` module; it is called at the first use, not before.
    """

    def __init__(self, load: Callable[[], Any] | None = None) -> None:
        self._library = Library(load)
        self._reader = DeviceReader(self._library)

    @property
    def problem(self) -> str:
        """Why there is no inventory; shown on ``health``."""
        return self._reader.problem

    @property
    def installed(self) -> bool:
        """Whether this machine has an NVIDIA driver, be it one that does not work now."""
        return self.problem not in driver.NO_DRIVER or driver.KERNEL_MODULE.exists()

    def limits(self) -> Sequence[str]:
        """Return what an admin should know of devices that cannot be measured or used as a whole.

        Each with its identifier, before anybody has leased it.
        """
        seen = self._reader.seen
        parents = {each.parent for each in seen.values()}
        empty = [uuid for uuid, each in seen.items() if each.divided and uuid not in parents]
        return [
            *(f"{uuid}: {driver.say('no_mig_devices')}" for uuid in empty),
            *(
                f"{uuid} ({each.info.name}): {UNMEASURED}"
                for uuid, each in seen.items()
                if each.level is EvidenceLevel.CELLS and not each.divided
            ),
        ]

    def inventory(self) -> Sequence[GPUInfo]:
        """Return every device seen so far; empty where there is no driver or no GPU.

        Where a GPU is divided these are its MIG devices: itself it can run nothing.
        """
        self._reader.look()
        return [seen.info for seen in self._reader.seen.values() if not seen.divided]

    def sample(self) -> Sequence[Sample]:
        """Read each known device once; every error is a gap with NVML's own reason."""
        return [self._sample(each) for each in self._reader.read(datetime.now(UTC))]

    def close(self) -> None:
        """Give the driver library back."""
        self._library.close()

    def _sample(self, reading: DeviceReading) -> Sample:
        seen = self._reader.seen.get(reading.uuid)
        coarse = seen is not None and seen.level is EvidenceLevel.CELLS
        level = EvidenceLevel.CELLS if coarse else None
        return Sample(
            reading.uuid,
            reading.at,
            reading.use,
            memory_used=reading.memory,
            pids=reading.pids,
            gap=reading.gap,
            level=level,
        )
