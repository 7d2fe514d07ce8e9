"""Simulated GPUs: what a machine without a driver offers instead.

The devices exist only as names.  Their utilisation is the companion's own CPU time, as the lease's
supervisor reports it; a leased device without a report is a gap, like a real one that does not
answer.  Every view of them says ``simulated``.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from gpulease.gpus.base import GPUInfo, Sample

#: A report older than this says nothing about now (they come once a second, batched).
_FRESH = timedelta(seconds=12)


class SimulatedProbe:
    """The ``Probe`` of N simulated devices.

    Fed by the local provider from the event loop and read in a worker thread, hence the lock.

    Args:
        count: how many devices.
        name: what they are called; of several, with commas between, each in turn.
        memory: bytes each.
    """

    def __init__(
        self, count: int, *, name: str = "Simulated GPU", memory: int = 16 * 2**30
    ) -> None:
        names = [each.strip() for each in name.split(",")]
        self._infos = [
            GPUInfo(f"SIM-{index:04d}", index, names[index % len(names)], memory, simulated=True)
            for index in range(count)
        ]
        self._lock = threading.Lock()
        self._leased: dict[str, list[Sample]] = {}

    def lease(self, uuid: str) -> None:
        """Say that a lease runs on this device from now on: its reports are awaited."""
        with self._lock:
            self._leased.setdefault(uuid, [])

    def release(self, uuid: str) -> None:
        """Say that no lease runs on this device: its utilisation is zero by construction."""
        with self._lock:
            self._leased.pop(uuid, None)

    def feed(self, uuid: str, use: float, at: datetime) -> None:
        """Take one report: ``use`` 0..1 is the peak share of a core that user code used."""
        with self._lock:
            if uuid in self._leased:
                self._leased[uuid].append(Sample(uuid, at, min(1.0, max(0.0, use))))

    def inventory(self) -> Sequence[GPUInfo]:
        """Return the devices."""
        return list(self._infos)

    def sample(self) -> Sequence[Sample]:
        """Return each leased device's reports since the last call, zero for the others.

        Reports come in batches: all of them count, for a burst in any second is use.
        """
        now = datetime.now(UTC)
        with self._lock:
            cards = [info.uuid for info in self._infos]
            names = dict.fromkeys((*cards, *self._leased))  # leased may be parts of a card
            return [each for name in names for each in self._samples(name, now)]

    problem = ""

    def limits(self) -> Sequence[str]:
        """Return nothing: that they are simulated is said everywhere."""
        return ()

    def close(self) -> None:
        """Nothing is held."""

    def _samples(self, uuid: str, now: datetime) -> list[Sample]:
        if uuid not in self._leased:
            return [Sample(uuid, now, 0.0)]
        reports = self._leased[uuid]
        if not reports or now - reports[-1].at > _FRESH:
            reports.clear()
            return [Sample(uuid, now, None, gap="no_report")]
        self._leased[uuid] = reports[-1:]  # stays until the next one comes
        return reports
