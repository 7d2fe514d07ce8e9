"""What a recorded change of a lease asks of the world.

Owns the table from a change of state to what the provider and the supervisor are told, whoever
changed it: the planner, the holder or an admin.  Performing is idempotent, so it may be repeated.
"""

from __future__ import annotations

from gpulease.policy.lifecycle import HOLDING
from gpulease.policy.model import Lease, LeaseState
from gpulease.protocol import SupervisorMessage
from gpulease.providers.base import Provider
from gpulease.service.links import Links, lease_word

_OVER = frozenset({LeaseState.QUEUED, LeaseState.ENDED})


async def perform(before: Lease | None, after: Lease, provider: Provider, links: Links) -> None:
    """Do in the world what the change from ``before`` to ``after`` says."""
    if before is None:
        return
    if after.state is LeaseState.STARTING and after.attempt != before.attempt:
        await provider.start(after)
    elif after.state in HOLDING and after.devices != before.devices:
        await provider.start(after)  # where it really runs is in the record now
    elif after.state in _OVER and before.state in HOLDING:
        await provider.stop(before if after.state is LeaseState.QUEUED else after)
    else:
        if before.hard_end != after.hard_end:
            links.send(after.id, lease_word(after))
        message = _told(before, after, links)
        if message is not None:
            links.send(after.id, message)


def _told(before: Lease, after: Lease, links: Links) -> SupervisorMessage | None:
    if before.state is after.state and (before.warned_until, before.drain_until, before.park) == (
        after.warned_until,
        after.drain_until,
        after.park,
    ):
        return None
    if after.state is not LeaseState.ACTIVE:
        return links.standing(after)
    if before.state is LeaseState.WARNED:
        return {"type": "clear"}
    return {"type": "resume"} if before.state is LeaseState.DRAINING else None
