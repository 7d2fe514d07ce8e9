"""Where a home kernel stands with its GPU."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """Where this kernel stands with its GPU."""

    NONE = "none"
    WAITING = "waiting"
    ATTACHED = "attached"
    DRAINING = "draining"
    GONE = "gone"
