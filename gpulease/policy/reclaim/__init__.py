"""Who gives a device back, when and for whom; the last steps of a plan.

It is told in this order: ``reclaim_requests``, who may ask for something back;
``reclaim_candidates``, what each holder would lose; ``over_quota`` and ``preemption_targets``, who
is chosen; ``leaving``, what is told.  ``reclaim_safeguards`` says when nothing is taken, because
what is seen is not trusted.
"""

from __future__ import annotations

from gpulease.policy.reclaim.leaving import decide
from gpulease.policy.reclaim.preemption_targets import Taken, nominations
from gpulease.policy.reclaim.reclaim_safeguards import TAKEN_HOLD, Doubts, contended_pools

__all__ = ["TAKEN_HOLD", "Doubts", "Taken", "contended_pools", "decide", "nominations"]
