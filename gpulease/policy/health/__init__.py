"""What happened to leases by themselves; the first step of a plan."""

from __future__ import annotations

from gpulease.policy.health.checks import (
    ADDING_LEAST,
    ADDING_TIMES,
    BACK_OFF,
    MAX_BACK_OFF,
    MAX_FAILURES,
    PULL_MAX,
    observed_of,
)
from gpulease.policy.health.reactions import reactions
from gpulease.policy.health.stuck import stuck

__all__ = [
    "ADDING_LEAST",
    "ADDING_TIMES",
    "BACK_OFF",
    "MAX_BACK_OFF",
    "MAX_FAILURES",
    "PULL_MAX",
    "observed_of",
    "reactions",
    "stuck",
]
