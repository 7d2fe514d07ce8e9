"""Who of the waiting gets what is free: what is held for whom, then the queue in its order."""

from __future__ import annotations

from gpulease.policy.admission.admit import admit
from gpulease.policy.admission.holds import came_free, holds
from gpulease.policy.admission.remaining_capacity import Admission, Unmet

__all__ = ["Admission", "Unmet", "admit", "came_free", "holds"]
