"""What the service does beside its requests: it tells of each change and plan, and forgets.

Readers of events and metrics hear of each change as it is recorded; old history leaves the store
while the service serves, in small batches with pauses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from gpulease.errors import GPULeaseError
from gpulease.policy import budgets
from gpulease.policy.model import Lease, Snapshot
from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.leases import views
from gpulease.service.leases.views import newest
from gpulease.service.reservations.commands import Reservations
from gpulease.store import Ages, Change

if TYPE_CHECKING:
    from gpulease.service.context import Services

log = logging.getLogger(__name__)

#: So many leases are told without a pause: a few milliseconds.
_AT_ONCE = 200
#: Seconds between two looks for what is old.
EVERY = 60.0
#: Of the time, batches take this share at most while there is much to do: others write, too.
_SHARE = 0.2


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


class Retention:
    """Looks once a minute, and continues while something is left."""

    def __init__(
        self,
        ledger: Ledger,
        reservations: Reservations,
        ages: Ages,
        *,
        every: float = EVERY,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._ledger = ledger
        self._reservations = reservations
        self._ages = ages
        self._every = every
        self._clock = clock

    async def run(self) -> None:
        """Run until cancelled; while the store is away, wait."""
        while True:
            try:
                gone = await self.once()
                if gone:
                    log.info("%d rows of old history are gone", gone)
            except GPULeaseError as error:
                log.warning("old history stays: %s", error.sentence, extra={"reason": error.reason})
            await asyncio.sleep(self._every)

    async def once(self) -> int:
        """Take away what is old now, all of it; return how many rows.

        Raises:
            GPULeaseError: the store cannot be used.
        """
        loop, gone = asyncio.get_running_loop(), 0
        while True:
            began = loop.time()
            batch = await self._batch(self._clock())
            if not batch:
                return gone
            gone += batch
            await asyncio.sleep((loop.time() - began) * (1 / _SHARE - 1))

    async def _batch(self, now: datetime) -> int:
        over = now - timedelta(days=self._ages.reservations)
        return await self._reservations.forget(over) or await self._ledger.call(
            self._ledger.store.sweep, now, self._ages
        )
