"""The one table of a lease's life, and the pure functions that move a lease through it.

``table`` says which state may follow which and for which reasons.  ``transitions`` has what each
step of the planner, and what people and servers change in the record.

Every function returns a new ``Lease`` whose ``version`` is one higher; a step that the table does
not allow raises ``GPULeaseError`` with reason ``not_possible_now`` and status 409.
"""

from gpulease.policy.lifecycle.table import HOLDING as HOLDING
from gpulease.policy.lifecycle.table import OTHERS_FAILURES as OTHERS_FAILURES
from gpulease.policy.lifecycle.table import OWN_FAILURES as OWN_FAILURES
from gpulease.policy.lifecycle.table import STAGES as STAGES
from gpulease.policy.lifecycle.table import START_FAILURES as START_FAILURES
from gpulease.policy.lifecycle.table import TRANSITIONS as TRANSITIONS
from gpulease.policy.lifecycle.table import Transition as Transition
from gpulease.policy.lifecycle.table import allowed as allowed
from gpulease.policy.lifecycle.table import end as end
from gpulease.policy.lifecycle.transitions import apply as apply
from gpulease.policy.lifecycle.transitions import asked_again as asked_again
from gpulease.policy.lifecycle.transitions import claim as claim
from gpulease.policy.lifecycle.transitions import force_end as force_end
from gpulease.policy.lifecycle.transitions import give_back as give_back
from gpulease.policy.lifecycle.transitions import keep as keep
from gpulease.policy.lifecycle.transitions import keep_refusal as keep_refusal
from gpulease.policy.lifecycle.transitions import left_behind as left_behind
from gpulease.policy.lifecycle.transitions import regroup as regroup
from gpulease.policy.lifecycle.transitions import reshape as reshape
from gpulease.policy.lifecycle.transitions import server_gone as server_gone
from gpulease.policy.lifecycle.transitions import server_ready as server_ready
from gpulease.policy.lifecycle.transitions import time_outs_of as time_outs_of
