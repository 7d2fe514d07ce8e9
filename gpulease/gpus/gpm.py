"""Utilisation by GPM (Hopper and newer): the one measure that NVML has for a MIG device.

A figure is made from a pair of samples, one of each reading.
"""

from __future__ import annotations

from typing import Any

from gpulease.gpus.driver import IMPLAUSIBLE, RefusedError, ask, optional, reason_of, share

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
