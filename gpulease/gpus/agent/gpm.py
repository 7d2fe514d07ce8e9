"""Utilisation by GPM (Hopper and newer): the one measure that NVML has for a MIG device.

Owns the pair of samples that a figure is made from.  Refuses to know when it is read.
"""

from __future__ import annotations

from typing import Any

from gpulease.gpus.driver import UNABLE, reason_of

#: NVML's ``NVML_GPM_METRIC_GRAPHICS_UTIL``: share of time in which anything ran.
_GRAPHICS_UTIL = 1


class Meter:
    """The use of one MIG device, from one reading to the next.

    Args:
        nvml: the driver library.
    """

    def __init__(self, nvml: Any) -> None:
        self._samples = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
        self._whole = False  # whether both samples were taken
        self._card: Any = None
        self._instance = 0

    @staticmethod
    def possible(nvml: Any, card: Any) -> bool:
        """Tell whether a GPU has GPM."""
        try:
            return bool(nvml.nvmlGpmQueryDeviceSupport(card).isSupportedDevice)
        except nvml.NVMLError as error:
            if reason_of(nvml, error) not in UNABLE:
                raise
            return False

    def aim(self, card: Any, instance: int) -> None:
        """Say which GPU instance of which GPU to read from now on."""
        self._card, self._instance = card, instance

    def read(self, nvml: Any) -> float | None:
        """Return the use since the last call (0..1), ``None`` at the first.

        Raises:
            NVMLError: the device cannot be read.
        """
        before, now = self._samples
        nvml.nvmlGpmMigSampleGet(self._card, self._instance, now)
        self._samples = [now, before]
        if not self._whole:
            self._whole = True
            return None
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version = nvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = 1
        asked.sample1, asked.sample2 = before, now
        asked.metrics[0].metricId = _GRAPHICS_UTIL
        nvml.nvmlGpmMetricsGet(asked)
        metric = asked.metrics[0]
        if metric.nvmlReturn != 0:
            raise nvml.NVMLError(metric.nvmlReturn)
        return min(1.0, max(0.0, float(metric.value) / 100))
