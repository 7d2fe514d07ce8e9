"""Who gives a device back, when and for whom; the last steps of a plan."""

from __future__ import annotations

from gpulease.policy.reclaim.leaving import decide
from gpulease.policy.reclaim.preemption_targets import Taken, nominations
from gpulease.policy.reclaim.reclaim_safeguards import TAKEN_HOLD, Doubts, contended_pools

__all__ = ["TAKEN_HOLD", "Doubts", "Taken", "contended_pools", "decide", "nominations"]
