"""The records of runs of whole notebooks, and the servers that execute them.

A change that the store did not take has not happened.  In memory are runs that have not ended or
whose server is still at the hub, and those that others wait for.  A look at the servers asks the
hub, decides (``runs.life``), stores, and then has servers started and removed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime

from gpulease.runs import life, model
from gpulease.runs.model import Run, RunState, ServerSeen, Terms
from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.hubs.api import HubRefusedError, HubUnreachableError
from gpulease.service.hubs.hubs import Hubs
from gpulease.store import RunChange
from gpulease.store import runs as stored
from gpulease.system.background import keep_polling

log = logging.getLogger(__name__)


class RunRecords:
    """Runs by id; who changes some holds ``lock`` from reading to saving."""

    def __init__(self, ledger: Ledger, clock: Callable[[], datetime]) -> None:
        self.known: dict[str, Run] = {}
        self.lock = asyncio.Lock()
        self.clock = clock
        #: Set when there is something to do for whoever follows the runs.
        self.wanted = asyncio.Event()
        self.ledger = ledger

    async def load(self) -> None:
        """Read what is alive."""
        await self._remember(await self.ledger.read(stored.live))

    async def find(self, run_id: str) -> Run | None:
        """Return a run, however old."""
        run = self.known.get(run_id)
        if run is None:
            run = await self.ledger.read(stored.one, run_id)
        return run

    async def save(self, changes: Sequence[RunChange]) -> None:
        """Store changes, all or none; then they are true.

        Raises:
            GPULeaseError: what the store refuses with.
        """
        if not changes:
            return
        await self.ledger.write(stored.save, changes, self.clock())
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
            found = await self.ledger.read(stored.one, each)
            if found is not None:
                self.known[each] = found
        self.known = {
            run.id: run for run in self.known.values() if not _over(run) or run.id in wanted
        }


def _over(run: Run) -> bool:
    return run.state is RunState.ENDED and run.cleared


_NO_NAMED_SERVERS = "Named servers are not enabled"


@dataclass(eq=False)
class RunServers:
    """The servers of runs.

    Args:
        records: the runs.
        hub: starts and removes servers.
        terms: what runs are held to, by the policy in force.
        linked: whether a server's own channel is open.
        every: seconds between two looks at the hub; a change makes one at once.
    """

    records: RunRecords
    hub: Hubs
    terms: Callable[[], Terms]
    linked: Callable[[str, str], bool]
    _: KW_ONLY
    every: float = 10.0

    def __post_init__(self) -> None:
        self._asked: dict[str, int] = {}  # run -> the attempt for which a server was asked for

    async def watch(self) -> None:
        """Follow all runs until cancelled."""
        await keep_polling(
            self.look, self.records.wanted, every=self.every, log=log,
            failed="runs are not followed", away=(HubUnreachableError,),
        )  # fmt: skip

    async def look(self) -> None:
        """Bring all runs one step on, once.

        Raises:
            HubUnreachableError: the hub did not answer.
            GPULeaseError: the store did not take a change.
        """
        if all(run.state is RunState.ENDED and run.cleared for run in self.records.known.values()):
            return
        servers = await self._servers()
        async with self.records.lock:
            now = self.records.clock()
            changed = life.look(
                self.records.known.values(), servers, self._asked, now, self.terms()
            )
            await self.records.save(
                [
                    RunChange(self.records.known[run.id], run, "gpulease", run.reason, run.note)
                    for run in changed
                ]
            )
        runs = list(self.records.known.values())
        work = [self._errand(run, servers.get(run.id)) for run in runs]
        again = await asyncio.gather(*work)
        if changed or any(again):
            self.records.wanted.set()

    async def _errand(self, run: Run, server: ServerSeen | None) -> bool:
        """Do at the hub what a run needs; tell whether something follows at once."""
        errand = life.errand(run, server, self._asked)
        if errand is life.Errand.START:
            return await self._start(run)
        if errand is life.Errand.REMOVE:
            return await self._remove(run)
        return False

    async def _start(self, run: Run) -> bool:
        self._asked[run.id] = run.attempt
        try:
            await self.hub.start_server(run.user, model.server_of(run.id), run.options)
        except HubRefusedError as error:
            log.warning("the hub starts no server for a run: %s", error.said, extra={"run": run.id})
            await self._refused(run, error)
        except HubUnreachableError as error:
            log.warning("%s", error, extra={"run": run.id})
            self._asked.pop(run.id, None)  # nobody knows whether it was heard: ask again
            return False
        return True

    async def _refused(self, run: Run, error: HubRefusedError) -> None:
        async with self.records.lock:
            if self.records.known.get(run.id) != run:
                return  # cancelled meanwhile
            now = self.records.clock()
            if error.code == 403 or _NO_NAMED_SERVERS in error.said:
                after = life.move(
                    run, RunState.ENDED, "not_set_up", now, note=error.said, cleared=True
                )
            elif "already running" in error.said or "pending" in error.said:
                return
            else:
                after = life.fault(run, "server_failed", error.said, now, self.terms())
            await self.records.save([RunChange(run, after, "hub", after.reason, error.said)])

    async def _remove(self, run: Run) -> bool:
        """Have its server removed; until it is, the next look tries again."""
        try:
            gone = await self.hub.remove_server(run.user, model.server_of(run.id))
        except HubUnreachableError as error:
            log.warning("%s", error, extra={"run": run.id})
            return False
        if not gone:
            return False
        async with self.records.lock:
            now = self.records.known.get(run.id)
            if now is not None and now.state not in life.BUSY and not now.cleared:
                after = replace(now, cleared=True, version=now.version + 1)
                await self.records.save([RunChange(now, after, "gpulease")])
        return run.state is RunState.WAITING

    async def _servers(self) -> dict[str, ServerSeen]:
        """Return the server of each run that has one, or whose hub does not say."""
        users = {run.user for run in self.records.known.values() if run.state in life.BUSY}
        there = await self.hub.running(users) if users else {}
        found: dict[str, ServerSeen] = {}
        for run in self.records.known.values():
            name = model.server_of(run.id)
            server = there.get(run.user, {}).get(name)
            away = run.user in users and run.user not in there
            if server is not None and server.active:
                found[run.id] = ServerSeen(server.ready)
            elif self.linked(run.user, name) or (away and run.state in life.BUSY):
                found[run.id] = ServerSeen(True)  # one look at a hub that starts may be wrong
        return found
