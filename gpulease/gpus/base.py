"""The probe port: a device's inventory and its utilisation samples.

An error is a gap, never a zero.  Verdicts are made in ``policy.idleness``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from gpulease.policy.model import EvidenceLevel

#: What *Health* says of a device that cannot measure its use.
UNMEASURED = (
    "The driver does not measure the use of this device, as of MIG devices before Hopper. A lease"
    " of it is idle when no GPU cell runs, whatever else uses the GPU."
)


@dataclass(frozen=True)
class GPUInfo:
    """A device as its driver (or the simulation) describes it.  ``memory`` in bytes, 0: unknown."""

    uuid: str
    index: int
    name: str
    memory: int
    simulated: bool
    compute_capability: tuple[int, int] | None = None
    ecc: bool | None = None


@dataclass(frozen=True)
class Tenancy:
    """What a lease holds of a card that it shares with others, and what is left of it (bytes)."""

    card: str
    used: int
    left: int


@dataclass(frozen=True)
class Sample:
    """Device use at one instant.  ``utilisation`` 0..1, or ``None``: a gap, with its reason.

    ``level`` says how finely this very sample could be attributed, ``None``: as the pool declares.
    ``memory_used``: bytes that its holder has of the device's memory, where they can be told.
    ``pids``: the processes on it, ``None`` where the driver does not tell.
    ``tenancy``: of a shared card, where its memory can be told apart.
    """

    uuid: str
    at: datetime
    utilisation: float | None
    memory_used: int | None = None
    pids: tuple[int, ...] | None = ()
    gap: str = ""
    level: EvidenceLevel | None = None
    tenancy: Tenancy | None = None


class Probe(Protocol):
    """Reads devices.  Called by the local provider in a worker thread, never on the event loop."""

    def inventory(self) -> Sequence[GPUInfo]:
        """Called at start and each minute.  An empty list where there is no GPU or no driver."""

    def sample(self) -> Sequence[Sample]:
        """Called once a second: one sample a device, a gap where the driver gave an error."""

    @property
    def problem(self) -> str:
        """Why there is no device, as a reason of the driver's; "" while there are some."""

    def limits(self) -> Sequence[str]:
        """Called by ``health``: what an admin should know of devices that cannot be measured."""

    def close(self) -> None:
        """Called at shutdown."""
