"""Windows in time as people mean them: wall clock, zone, repetition.

A window is kept as local wall time with an IANA zone, never as UTC: a lab at 14:00 stays at 14:00
when the clocks change.  Pure; instants come out as UTC.
"""

from __future__ import annotations

from gpulease.policy.calendar.local_time import instant, wall_clock, wall_text, zone_of
from gpulease.policy.calendar.occurrences import (
    Calendar,
    Changed,
    Closure,
    Expanded,
    Occurrence,
    closure_of,
    expand,
)
from gpulease.policy.calendar.repetition import MAX_MONTHS, MAX_OCCURRENCES, repetition

__all__ = [
    "MAX_MONTHS",
    "MAX_OCCURRENCES",
    "Calendar",
    "Changed",
    "Closure",
    "Expanded",
    "Occurrence",
    "closure_of",
    "expand",
    "instant",
    "repetition",
    "wall_clock",
    "wall_text",
    "zone_of",
]
