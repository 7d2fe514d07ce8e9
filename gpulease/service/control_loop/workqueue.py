"""Makes the world agree with the records, lease by lease.

Nothing in a queue of lease keys can be stale: one worker a key reads the present record, makes sure
that this process is still the store's one writer, and lets the provider start or stop what the
record says; a failing one is tried again with back-off and holds no other back.  A record may ask
for the same again and again: the provider's methods are idempotent.  (The model is the work queue
of dask-gateway: https://github.com/dask/dask-gateway, ``workqueue.py``.)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpulease.channel.timing import BackOff
from gpulease.errors import GPULeaseError
from gpulease.policy.lifecycle import HOLDING
from gpulease.policy.model import Alert, LeaseState, Observed
from gpulease.providers.base import Provider
from gpulease.service.control_loop.ledger import Ledger
from gpulease.store import Change

log = logging.getLogger(__name__)

#: Seconds until a failed effect is tried again; doubled each time, up to ``MAX_BACK_OFF``.
BACK_OFF = 0.5
MAX_BACK_OFF = 30.0


@dataclass
class _Work:
    """What one key's worker is told meanwhile."""

    task: asyncio.Task[None] | None = None
    dirty: bool = True
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # ends the rest after a failure
    tried: asyncio.Event = field(default_factory=asyncio.Event)


class WorkQueue:
    """The queue and its workers.

    Args:
        ledger: the present records, and the fence.
        provider: where they are made true.
        back_off: seconds until the first new try.
    """

    def __init__(self, ledger: Ledger, provider: Provider, *, back_off: float = BACK_OFF) -> None:
        self._ledger = ledger
        self._provider = provider
        self._back_off = back_off
        self._work: dict[str, _Work] = {}
        self._failing: dict[str, Alert] = {}

    def changed(self, change: Change) -> None:
        """Take a recorded change: what holds devices is started, what held them is stopped."""
        before, after = change.before, change.after
        if after.state in HOLDING or (before is not None and before.state in HOLDING):
            self._want(after.id).changed.set()

    def compare(self, observed: Mapping[str, Observed]) -> None:
        """Take what the provider shows: whatever differs from the records is brought into step."""
        for lease_id in observed:
            lease = self._ledger.leases.get(lease_id)
            if lease is not None and lease.state not in HOLDING:
                self._want(lease_id)
        for lease in self._ledger.live():
            seen = observed.get(lease.id)
            if lease.state in HOLDING and (seen is None or seen.attempt < lease.attempt):
                self._want(lease.id)

    def recover(self) -> None:
        """Tell the provider of every record that may have something in the world."""
        for lease in self._ledger.leases.values():
            over = lease.state is LeaseState.ENDED and bool(lease.devices)
            if lease.state in HOLDING or over:
                self._want(lease.id)

    async def settled(self) -> None:
        """Return once each present key was tried; failing ones are retried by themselves."""
        await asyncio.gather(*(work.tried.wait() for work in self._work.values()))

    def alerts(self) -> list[Alert]:
        """Return an alert for each lease whose last effect failed."""
        return list(self._failing.values())

    async def close(self) -> None:
        """End the workers; what is not done is done by the next service."""
        tasks = [each.task for each in self._work.values() if each.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _want(self, lease_id: str) -> _Work:
        work = self._work.get(lease_id)
        if work is None:
            work = self._work[lease_id] = _Work()
            work.task = asyncio.create_task(self._run(lease_id, work), name=f"effect {lease_id}")
        work.dirty = True
        if lease_id not in self._failing:
            work.tried.clear()
        return work

    async def _run(self, lease_id: str, work: _Work) -> None:
        """Work on one key until nothing is wanted of it any more."""
        pauses = BackOff(self._back_off, MAX_BACK_OFF)
        try:
            while work.dirty:
                work.dirty = False
                work.changed.clear()
                try:
                    await self._agree(lease_id)
                except Exception as error:  # noqa: BLE001 (whatever it is, it is tried again)
                    work.dirty = True
                    self._failed(lease_id, error)
                    work.tried.set()
                    await self._rest(work, pauses.pause())
                else:
                    pauses.worked()
                    self._failing.pop(lease_id, None)
        finally:
            self._failing.pop(lease_id, None)
            del self._work[lease_id]
            work.tried.set()

    async def _agree(self, lease_id: str) -> None:
        await self._ledger.confirm()
        lease = self._ledger.leases.get(lease_id)  # read last: nothing can have changed since
        if lease is None:
            return
        if lease.state in HOLDING:
            await self._provider.start(lease)
        else:
            await self._provider.stop(lease)

    async def _rest(self, work: _Work, pause: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await work.changed.wait()

    def _failed(self, lease_id: str, error: Exception) -> None:
        lease = self._ledger.leases.get(lease_id)
        why = error.sentence if isinstance(error, GPULeaseError) else type(error).__name__
        verb = "started" if lease is not None and lease.state in HOLDING else "stopped"
        sentence = f"Lease {lease_id} cannot be {verb} at present: {why} It is tried again."
        first = lease_id not in self._failing
        self._failing[lease_id] = Alert(lease_id, "effect_failed", sentence)
        if first:
            expected = isinstance(error, GPULeaseError | OSError)
            extra = {"lease": lease_id, "reason": "effect_failed"}
            log.warning("%s", sentence, extra=extra, exc_info=None if expected else error)
