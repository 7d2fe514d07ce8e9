"""Who of the waiting gets what is free: what is held for whom, then the queue in its order."""

from __future__ import annotations

from gpulease.policy.admission.admit import admit
from gpulease.policy.admission.holds import came_free, holds
from gpulease.policy.admission.remaining_capacity import Unmet
from gpulease.policy.admission.wait_reasons import Admission

__all__ = ["Admission", "Unmet", "admit", "came_free", "holds"]
