"""What happened to leases by themselves; the first step of a plan."""

from __future__ import annotations

from gpulease.policy.health.checks import (
    BACK_OFF,
    MAX_BACK_OFF,
    MAX_FAILURES,
    PULL_MAX,
    adding_max,
    observed_of,
)
from gpulease.policy.health.reactions import reactions, reshaped_too_late, stuck, unoffered

__all__ = [
    "BACK_OFF",
    "MAX_BACK_OFF",
    "MAX_FAILURES",
    "PULL_MAX",
    "adding_max",
    "observed_of",
    "reactions",
    "reshaped_too_late",
    "stuck",
    "unoffered",
]
