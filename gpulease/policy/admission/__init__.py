"""Who of the waiting gets what is free: what is held for whom, then the queue in its order."""

from __future__ import annotations

from gpulease.policy.admission.admit import admit
from gpulease.policy.admission.holds import holds
from gpulease.policy.admission.lacking import Unmet
from gpulease.policy.admission.outcome import Admission
from gpulease.policy.admission.reclaimed import came_free

__all__ = ["Admission", "Unmet", "admit", "came_free", "holds"]
