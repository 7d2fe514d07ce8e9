"""What is read of a start: its stage, or why it failed; and how long each step may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Bounds:
    """How long (seconds) each step may take before it counts as failed."""

    bind: float = 10.0
    attach: float = 20.0
    start: float = 60.0


@dataclass(frozen=True)
class Reading:
    """One reading of a start.

    ``stage`` is what it does now, "" once it is over; ``failed`` why it failed, "" while it has
    not.  ``detail`` is for admins, ``said`` a code of ``reasons.PROGRESS`` for the lease's
    holder; ``numbers`` are JSON values.
    """

    stage: str = ""
    failed: str = ""
    detail: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    said: str = ""
