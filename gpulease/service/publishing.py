"""What readers of events and metrics receive: each change as it is recorded, and each plan."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from gpulease.policy import budgets
from gpulease.policy.model import Lease, Snapshot
from gpulease.service.leases import views
from gpulease.service.leases.views import newest
from gpulease.store import Change

if TYPE_CHECKING:
    from gpulease.service.context import Services

log = logging.getLogger(__name__)

#: So many leases are told without a pause: a few milliseconds.
_AT_ONCE = 200


def moved(services: Services, changes: Sequence[Change], now: datetime) -> None:
    """Log and count each recorded change, and tell the readers at once."""
    services.usage.recorded(changes)
    for change in changes:
        _note(services, change.before, change.after, now)
    leases = [change.after for change in changes]
    views = services.views.leases(leases, services.loop.shown())
    for lease, view in zip(leases, views, strict=True):
        services.events.publish(lease, view)


def _note(services: Services, before: Lease | None, after: Lease, now: datetime) -> None:
    source = before.state.value if before else "asked"
    log.info(
        "%s -> %s",
        source,
        after.state.value,
        extra={
            "lease": after.id,
            "user": after.user,
            "server": f"{after.user}/{after.server}",
            "reason": after.reason,
            "attempt": after.attempt,
        },
    )
    if before is not None:
        services.metrics.moved(before, after, now)


async def publish(services: Services, snapshot: Snapshot) -> None:
    """Tell what follows from a plan's snapshot, and forget what nobody asks about any more.

    Of thousands of leases some are told at once, and requests are answered between; what changed
    meanwhile was told as it changed.
    """
    services.usage.tell_of(snapshot, budgets.spent)
    leases = [each for each in snapshot.leases if not services.events.is_final(each)]
    for begin in range(0, len(leases), _AT_ONCE):
        some = leases[begin : begin + _AT_ONCE]
        now = [each for each in some if services.ledger.leases.get(each.id) is each]
        for lease, view in zip(now, services.views.leases(now, snapshot), strict=True):
            services.events.publish(newest(lease, snapshot.observed), view)
        await asyncio.sleep(0)
    services.events.publish_classes(services.views.classes(snapshot))
    live = services.ledger.live()  # with those that came meanwhile
    services.metrics.show(
        live,
        {each.name: each.pool for each in snapshot.policy.classes},
    )
    services.metrics.show_devices(services.views.uses(snapshot))
    services.metrics.show_standing(
        views.silences(snapshot),
        views.overdue(snapshot),
        [
            *(alert.reason for alert in services.loop.alerts),
            *(["policy_file"] if services.policies.problem else []),
        ],
    )
    services.ledger.forget(snapshot.now, services.loop.observed_state.observed)
    services.events.forget(set(services.ledger.leases))
    services.views.forget(services.ledger.leases)
    services.links.forget({each.id for each in live})
