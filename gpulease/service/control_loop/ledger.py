"""The service's picture of all leases, written through to the store.

The order is "stored first, then true, then told": a change that the store did not take has not
happened.  One writer at a time holds ``lock`` from reading a lease to recording its change.  The
store is synchronous and runs in one worker thread of its own.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from http import HTTPStatus
from statistics import median
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy.orm import Session

from gpulease.errors import GPULeaseError
from gpulease.policy.lifecycle import HOLDING
from gpulease.policy.model import Device, Lease, LeaseState
from gpulease.store import Change, IdempotencyKey, Store, history

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")
#: A place in the queue.
Ticket = tuple[datetime, int]

#: How long an ended lease stays in memory: pages show it.
_RECENT = timedelta(hours=1)
#: So many of them at most: a hundred people who ask all the time end thousands in an hour.
_RECENT_MAX = 1000
#: For so long (seconds) after a write that the fence let through it is taken to hold.
_CONFIRMED = 5.0


class Ledger:
    """Leases by id; of the ended ones those of the last hour, a thousand at most.

    Args:
        store: where they are kept.
        changed: called with the changes that were recorded together.
    """

    def __init__(self, store: Store, changed: Callable[[Sequence[Change], datetime], None]) -> None:
        self.store = store
        self.lock = asyncio.Lock()
        self.leases: dict[str, Lease] = {}
        #: Why the store did not take the last change, "" when it did; shown on ``health``.
        self.problem = ""
        self._changed = changed
        self._confirmed_at = -math.inf
        self._confirming = asyncio.Lock()
        self._known: tuple[Lease, ...] | None = None
        self._going: dict[str, Lease] = {}  # those that have not ended
        self._of: dict[str, tuple[Lease, ...]] = {}  # the same by user
        self._live: tuple[Lease, ...] = ()
        self._typical: float | None = None
        self._typical_known = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")

    async def read(
        self, work: Callable[Concatenate[Session, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Return what one of the store's reading functions finds; raises as ``call`` does."""
        return await self.call(lambda: self.store.read(work, *args, **kwargs))

    async def write(
        self, work: Callable[Concatenate[Session, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run one of the store's writing functions as a transaction; raises as ``call`` does."""
        return await self.call(lambda: self.store.write(work, *args, **kwargs))

    async def call(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call of the store in its thread.

        Raises:
            GPULeaseError: ``store_unavailable`` (503) and whatever the store refuses with.
        """
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._thread, lambda: work(*args, **kwargs))
        except GPULeaseError as error:
            if error.status >= 500:
                self.problem = error.sentence
            raise
        if work in (self.store.save, self.store.check):  # reads may go on where no change is taken
            self.problem = ""
        return found

    def close(self) -> None:
        """Let the running call end; close the store in its own thread."""
        self._thread.submit(self.store.close).result()
        self._thread.shutdown()

    async def load(self, now: datetime) -> None:
        """Read what has not ended and what ended of late."""
        for lease in await self.call(self.store.live):
            self._put(lease)
        ended, _ = await self.read(history.page, states=[LeaseState.ENDED], limit=500)
        for lease in ended:
            if lease.ended and now - lease.ended <= _RECENT:
                self._put(lease)

    async def record(
        self, changes: Sequence[Change], now: datetime, plan: bytes | None = None
    ) -> None:
        """Store changes, all or none; then they are true, and listeners are notified.

        ``plan``: the one that they are of, to be kept with them.

        Raises:
            GPULeaseError: what the store refuses with; nothing has happened then.
        """
        await self.call(self.store.save, changes, now, plan)
        self._confirmed_at = time.monotonic()
        for change in changes:
            self._put(change.after)
        self._changed(changes, now)

    async def confirm(self) -> None:
        """Make sure that this process is still the one writer; it was if it wrote a moment ago.

        Raises:
            GPULeaseError: it is not, or nobody can tell.
        """
        async with self._confirming:  # hundreds that ask at once are one question
            if self.problem or time.monotonic() - self._confirmed_at > _CONFIRMED:
                await self.call(self.store.check)
                self._confirmed_at = time.monotonic()

    def add(self, lease: Lease) -> None:
        """Take a lease that the store knows into the picture again."""
        self._put(lease)

    def _put(self, lease: Lease) -> None:
        self.leases[lease.id] = lease
        self._known = None
        theirs = [each for each in self._of.get(lease.user, ()) if each.id != lease.id]
        if lease.state is LeaseState.ENDED:
            self._going.pop(lease.id, None)
            self._typical_known = False
        else:
            self._going[lease.id] = lease
            theirs.append(lease)
        self._of[lease.user] = tuple(theirs)
        if not theirs:
            del self._of[lease.user]

    def all(self) -> tuple[Lease, ...]:
        """Return all leases of the picture; rebuilt only when one of them changed."""
        if self._known is None:
            self._known = tuple(self.leases.values())
            self._live = tuple(self._going.values())
        return self._known

    async def begun(
        self, keys: Sequence[IdempotencyKey | None], now: datetime
    ) -> list[tuple[Lease | GPULeaseError | None, Ticket]]:
        """Return for each ask the lease that its key made already, and the ticket of a new one.

        In place of a lease stands the refusal of a key that was used for another change.

        Raises:
            GPULeaseError: the store does not answer.
        """
        found: list[tuple[Lease | GPULeaseError | None, Ticket]] = []
        for earlier, ticket in await self.call(_look_up, self.store, keys, now):
            if isinstance(earlier, str):
                lease = self.leases.get(earlier)
                found.append((lease or await self.call(self.store.lease, earlier), ticket))
            else:
                found.append((earlier, ticket))
        return found

    def live(self) -> tuple[Lease, ...]:
        """Return the leases and requests that have not ended."""
        self.all()
        return self._live

    def live_of(self, user: str) -> Sequence[Lease]:
        """Return those of one person."""
        return self._of.get(user, ())

    def live_by_person(self) -> Mapping[str, Sequence[Lease]]:
        """Return those of each person who has any, as they are now."""
        return self._of.copy()

    def typical_length(self) -> float | None:
        """Return the median length (seconds) of the leases that ended of late."""
        if not self._typical_known:
            self._typical, self._typical_known = _typical_length(self.leases.values()), True
        return self._typical

    def forget(self, now: datetime, kept: Iterable[str]) -> None:
        """Drop what ended long ago, is not shown by any provider and nominates nobody."""
        stay = set(kept)
        waiting = {lease.id for lease in self.live()}
        over = [
            (lease.ended, lease.id)
            for lease in self.leases.values()
            if lease.ended is not None
            and lease.id not in stay
            and lease.nominated_for not in waiting
        ]
        over.sort(reverse=True)
        for number, (ended, lease_id) in enumerate(over):
            if number >= _RECENT_MAX or now - ended > _RECENT:
                del self.leases[lease_id]
                self._known, self._typical_known = None, False


def _typical_length(leases: Iterable[Lease]) -> float | None:
    lengths = [
        (lease.ended - lease.active_since).total_seconds()
        for lease in leases
        if lease.ended and lease.active_since
    ]
    return median(lengths) if lengths else None


def _look_up(
    store: Store, keys: Sequence[IdempotencyKey | None], now: datetime
) -> list[tuple[str | GPULeaseError | None, Ticket]]:
    found: list[tuple[str | GPULeaseError | None, Ticket]] = []
    for key in keys:
        earlier: str | GPULeaseError | None = None
        try:
            earlier = store.remembered(key, now) if key is not None else None
        except GPULeaseError as error:
            if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            earlier = error
        found.append((earlier, store.next_ticket(now)))
    return found


class Unseen:
    """The devices that were given back: they count as taken until a look that began later."""

    def __init__(self) -> None:
        self._before: dict[str, str] = {}  # the present look, or the next one, shows them
        self._since: dict[str, str] = {}  # given back since that look began

    def moved(self, changes: Sequence[Change]) -> None:
        """Take recorded changes."""
        for change in changes:
            before, after = change.before, change.after
            if before is not None and before.state in HOLDING and after.state not in HOLDING:
                self._since |= dict.fromkeys(before.devices, after.id)

    def look_begins(self) -> None:
        """Note that what is given back from now on is not in the look that begins."""
        self._before, self._since = self._before | self._since, {}

    def looked(self) -> None:
        """Note that the look was taken: what it shows holds."""
        self._before = {}

    def marked(
        self, devices: tuple[Device, ...], known: Mapping[str, Device]
    ) -> tuple[Device, ...]:
        """Return the devices, these and all parts of their cards taken by the lease that ended.

        ``known``: the devices by their identifiers.
        """
        cards = {
            known[uuid].card or uuid: lease_id
            for uuid, lease_id in (self._before | self._since).items()
            if uuid in known
        }
        if not cards:
            return devices
        return tuple(
            replace(each, occupied_by=cards[place])
            if (place := each.card or each.uuid) in cards and each.occupied_by is None
            else each
            for each in devices
        )
