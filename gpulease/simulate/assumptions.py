"""What a replay takes for granted where the trace does not tell."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Assumptions:
    """What the trace does not tell (seconds, but ``think``).

    ``think`` multiplies everybody's time to think, ``resolution`` is how finely time passes.
    ``claim`` is a start in a pod that stood ready; ``unneeded`` is how long an added node stays
    that nobody uses.
    """

    start: float = 5.0
    claim: float = 1.0
    drain: float = 2.0
    release: float = 2.0
    unneeded: float = 600.0
    think: float = 1.0
    resolution: float = 1.0
