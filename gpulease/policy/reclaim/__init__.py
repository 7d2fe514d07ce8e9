"""Who gives a device back, when and for whom; the last steps of a plan."""

from __future__ import annotations

from gpulease.policy.reclaim.doubts import TAKEN_HOLD, Doubts, contended_pools
from gpulease.policy.reclaim.leaving import decide
from gpulease.policy.reclaim.nominations import Taken, nominations

__all__ = ["TAKEN_HOLD", "Doubts", "Taken", "contended_pools", "decide", "nominations"]
