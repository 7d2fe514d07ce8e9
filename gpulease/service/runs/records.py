"""The service's picture of runs, written through to the store.

Owns that a change which the store did not take has not happened, and what is kept in memory: runs
that have not ended or whose server is still at the hub, and those that others wait for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime

from gpulease.policy.model import Lease
from gpulease.runs import names
from gpulease.runs.model import Run, RunState
from gpulease.service.control_loop.ledger import Ledger
from gpulease.store import RunChange, RunEvent
from gpulease.store import runs as stored

log = logging.getLogger(__name__)


class RunRecords:
    """Runs by id; who changes some holds ``lock`` from reading to saving."""

    def __init__(self, ledger: Ledger, clock: Callable[[], datetime]) -> None:
        self.known: dict[str, Run] = {}
        self.lock = asyncio.Lock()
        self.clock = clock
        #: Set when there is something to do for whoever follows the runs.
        self.wanted = asyncio.Event()
        self._ledger = ledger

    async def load(self) -> None:
        """Read what is alive."""
        await self._remember(await self._ledger.call(self._ledger.store.read, stored.live))

    async def find(self, run_id: str) -> Run | None:
        """Return a run, however old."""
        run = self.known.get(run_id)
        if run is None:
            run = await self._ledger.call(self._ledger.store.read, stored.one, run_id)
        return run

    async def of_array(self, array: str) -> list[Run]:
        """Return the runs of one array, however old."""
        return await self._ledger.call(self._ledger.store.read, stored.of_array, array)

    async def page(
        self, users: Sequence[str] | None, *, offset: int, limit: int
    ) -> tuple[list[Run], int]:
        """Return runs of some people, or of all, newest first, and how many there are."""
        return await self._ledger.call(
            self._ledger.store.read, stored.page, users, offset=offset, limit=limit
        )

    async def events(self, run_id: str) -> list[RunEvent]:
        """Return what happened to a run, oldest first."""
        return await self._ledger.call(self._ledger.store.read, stored.events, run_id)

    async def leases(self, run: Run) -> list[Lease]:
        """Return the leases that a run has had, oldest first."""
        server = names.server_of(run.id)
        return await self._ledger.call(self._ledger.store.read, stored.leases, run.user, server)

    async def save(self, changes: Sequence[RunChange]) -> None:
        """Store changes, all or none; then they are true.

        Raises:
            GPULeaseError: what the store refuses with.
        """
        if not changes:
            return
        await self._ledger.call(self._ledger.store.write, stored.save, changes, self.clock())
        for change in changes:
            run = change.after
            if change.what:
                log.info(
                    "run %s: %s", run.state.value, change.what,
                    extra={"run": run.id, "user": run.user, "reason": run.reason},
                )  # fmt: skip
        await self._remember([change.after for change in changes])

    async def _remember(self, runs: Sequence[Run]) -> None:
        self.known |= {run.id: run for run in runs}
        wanted = {each for run in self.known.values() if not _over(run) for each in run.after}
        for each in wanted - self.known.keys():
            found = await self._ledger.call(self._ledger.store.read, stored.one, each)
            if found is not None:
                self.known[each] = found
        self.known = {
            run.id: run for run in self.known.values() if not _over(run) or run.id in wanted
        }


def _over(run: Run) -> bool:
    return run.state is RunState.ENDED and run.cleared
