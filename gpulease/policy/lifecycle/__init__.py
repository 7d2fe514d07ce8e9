"""The one table of a lease's life, and the pure functions that move a lease through it.

``table`` says which state may follow which and for which reasons.  ``transitions`` has what each
step of the planner, and what people and servers change in the record.

Every function returns a new ``Lease`` whose ``version`` is one higher; a step that the table does
not allow raises ``GPULeaseError`` with reason ``not_possible_now`` and status 409.
"""

from __future__ import annotations

from gpulease.policy.lifecycle.table import (
    HOLDING,
    OTHERS_FAILURES,
    OWN_FAILURES,
    STAGES,
    START_FAILURES,
    TRANSITIONS,
    Transition,
    allowed,
    end,
)
from gpulease.policy.lifecycle.transitions import (
    apply,
    asked_again,
    claim,
    force_end,
    give_back,
    keep,
    keep_refusal,
    left_behind,
    regroup,
    reshape,
    server_gone,
    server_ready,
    time_outs_of,
)

__all__ = [
    "HOLDING",
    "OTHERS_FAILURES",
    "OWN_FAILURES",
    "STAGES",
    "START_FAILURES",
    "TRANSITIONS",
    "Transition",
    "allowed",
    "apply",
    "asked_again",
    "claim",
    "end",
    "force_end",
    "give_back",
    "keep",
    "keep_refusal",
    "left_behind",
    "regroup",
    "reshape",
    "server_gone",
    "server_ready",
    "time_outs_of",
]
