"""What people may do with runs of whole notebooks, and what the servers of runs report.

A run's log also says when the run had a GPU and why that left.  The run's own notebook server
executes the notebook (``lab.runs``).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Sequence

from gpulease.errors import GPULeaseError
from gpulease.policy import admission_check
from gpulease.policy.budgets import Remainder
from gpulease.policy.explanation.catalogue import audited
from gpulease.policy.model import EndReason, Lease, LeaseState, PolicyDocument, Snapshot
from gpulease.runs import life, model, submission
from gpulease.runs.model import OnLoss, Run, RunState, Terms
from gpulease.service.hubs.auth import Asker
from gpulease.service.hubs.hubs import Hubs
from gpulease.service.runs.servers import RunRecords, RunServers
from gpulease.service.schemas.bodies import RunReport, SubmitBody
from gpulease.store import RunChange, RunEvent, TransitionRecord, key_reused
from gpulease.store import runs as stored
from gpulease.texts import Text

#: Runs of one person that have not ended.
MOST = 200


class Runs:
    """What people, and the servers of runs, may do.

    Args:
        records: the runs.
        hub: starts their servers; says who may have that, and what the asking one has.
        policy: the one in force.
        snapshot: what is known of GPUs now, to refuse what can never be.
        linked: whether a server's own channel is open.
        every: seconds between two looks at the hub.
    """

    def __init__(
        self,
        records: RunRecords,
        hub: Hubs,
        policy: Callable[[], PolicyDocument],
        snapshot: Callable[[], Snapshot],
        *,
        linked: Callable[[str, str], bool],
        every: float = 10.0,
    ) -> None:
        self._records = records
        self._hub = hub
        self._policy = policy
        self._snapshot = snapshot
        self._servers = RunServers(records, hub, self._terms, linked, every=every)

    async def load(self) -> None:
        """Read what is stored."""
        await self._records.load()

    async def watch(self) -> None:
        """Follow all runs until cancelled."""
        await self._servers.watch()

    def _terms(self) -> Terms:
        return Terms(at_once=self._policy().runs_per_user)

    def of_server(self, user: str, server: str) -> Run | None:
        """Return the run that a server of a user executes, ``None`` for any other server."""
        run = self._records.known.get(model.run_of(server))
        return run if run is not None and run.user == user and run.state in life.BUSY else None

    def executes(self, user: str, server: str) -> bool:
        """Tell whether a server of a user is a run's, so that its asks are a run's."""
        return self.of_server(user, server) is not None

    async def submit(self, asker: Asker, body: SubmitBody, key: str) -> tuple[list[Run], bool]:
        """Return the runs that a notebook becomes, and whether they are new.

        Raises:
            GPULeaseError: ``runs_not_set_up``, ``no_such_run``, ``too_many_runs``,
                ``bad_parameter``, ``bad_array``, ``key_reused``, ``hub_unreachable``, and those of
                ``policy.admission_check.check``.
        """
        await self._check(asker, body)
        now = self._records.clock()
        indices: tuple[int | None, ...] = (None,)
        if body.array is not None:
            indices = submission.read_array(body.array)
        options = await self._options(asker)
        async with self._records.lock:
            after = await self._earlier(asker, body.after)
            array = _id(asker, key, "array") if body.array is not None else ""
            new = [
                Run(
                    id=_id(asker, key, str(place)),
                    user=asker.name,
                    notebook=body.notebook,
                    created=now,
                    gpu_class=body.gpu_class,
                    count=body.count or body.nodes,
                    nodes=body.nodes,
                    min_count=body.min_count,
                    at_least=body.at_least,
                    wanted=body.seconds,
                    project=body.project,
                    parameters=body.parameters,
                    after=after,
                    array=array,
                    index=index,
                    on_loss=OnLoss(body.on_loss),
                    groups=asker.groups,
                    options=options,
                    state_since=now,
                )
                for place, index in enumerate(indices)
            ]
            found = [await self._records.find(each.id) for each in new] if key else []
            if found and found[0] is not None:
                found.append(await self._records.find(_id(asker, key, str(len(new)))))
                return _the_same(new, found), False
            self._refuse_many(asker, len(new))
            await self._records.save([RunChange(None, run, asker.name, "submitted") for run in new])
        self._records.wanted.set()
        return new, True

    async def page(
        self, asker: Asker, *, mine: bool, offset: int, limit: int
    ) -> tuple[list[Run], int]:
        """Return runs newest first, and how many there are: one's own, or (an admin) all."""
        users = None if asker.admin and not mine else [asker.name]
        return await self._records.ledger.read(stored.page, users, offset=offset, limit=limit)

    async def one(self, asker: Asker, run_id: str) -> Run:
        """Return one run.

        Raises:
            GPULeaseError: ``no_such_run`` (404): there is none, or it is somebody else's.
        """
        run = await self._records.find(run_id)
        if run is None or not _may_see(asker, run):
            raise _no_such_run(run_id)
        return run

    async def events(self, asker: Asker, run_id: str) -> list[RunEvent]:
        """Return what happened to a run, oldest first.

        Raises:
            GPULeaseError: ``no_such_run`` (404).
        """
        await self.one(asker, run_id)
        return await self._records.ledger.read(stored.events, run_id)

    async def leases(self, asker: Asker, run_id: str) -> list[Lease]:
        """Return the leases that a run has had, oldest first.

        Raises:
            GPULeaseError: ``no_such_run`` (404).
        """
        run = await self.one(asker, run_id)
        server = model.server_of(run.id)
        return await self._records.ledger.read(stored.leases, run.user, server)

    async def cancel(self, asker: Asker, run_id: str, note: str = "") -> Run:
        """End a run; its output up to now stays.  A repeat changes nothing.

        ``note``: what an admin writes to its person.

        Raises:
            GPULeaseError: ``no_such_run`` (404).
        """
        async with self._records.lock:
            run = await self.one(asker, run_id)
            after = life.cancel(run, asker.name, self._records.clock(), note)
            if after is not run:
                change = RunChange(run, after, asker.name, after.reason, note)
                await self._records.save([change])
        self._records.wanted.set()
        return after

    async def lease_ended(self, asker: Asker, lease: Lease) -> None:
        """Cancel the run whose lease or request an admin has just ended.

        It would ask again at once, and the admin would have to end it again and again.  Whoever
        only leads a group frees its GPUs: the run is the person's.
        """
        run = self.of_server(lease.user, lease.server)
        if run is None or not asker.admin or asker.name == lease.user:
            return
        forced = EndReason.FORCED in (lease.end_reason, lease.end_reason_wanted)
        asked_again = any(
            (each.user, each.server) == (lease.user, lease.server)
            and each.id != lease.id
            and each.state is not LeaseState.ENDED
            for each in self._snapshot().leases
        )
        if forced and not asked_again:  # else it ended long ago: a repeat changes nothing
            await self.cancel(asker, run.id, lease.end_note)

    async def report(self, asker: Asker, server: str, run_id: str, body: RunReport) -> Run:
        """Take what a run's own server says of it; the first report begins it.

        Raises:
            GPULeaseError: ``no_such_run`` (404); ``not_yours`` (403): this server is not the run's;
                ``not_possible_now`` (409): it was cancelled, or another process executes it.
        """
        async with self._records.lock:
            run = await self._records.find(run_id)
            if run is None or run.user != asker.name:
                raise _no_such_run(run_id)
            if server != model.server_of(run_id):
                sentence = "A server reports of its own run only."
                raise GPULeaseError("not_yours", sentence)
            said = life.Report(body.boot, body.state, body.cells, body.done, body.note, body.opens)
            after = life.heard(run, said, self._records.clock(), self._terms())
            moved = (after.state, after.boot) != (run.state, run.boot)
            what = after.reason if moved else ""
            await self._records.save(
                [RunChange(run, after, f"{asker.name}/{server}", what, after.note)]
            )
        if after.state is not RunState.RUNNING:
            self._records.wanted.set()
        return after

    def budget(self, run: Run) -> Remainder | None:
        """Return what is left of what a run's GPU is charged to, ``None`` for no bound."""
        ask = admission_check.Ask(
            run.user, "", run.gpu_class, run.count, run.wanted,
            groups=run.groups, project=run.project, nodes=run.nodes, min_count=run.min_count,
            at_least=run.at_least,
        )  # fmt: skip
        try:
            return admission_check.budget_for(ask, self._snapshot())
        except GPULeaseError:  # the policy has changed since: its lease will be refused with why
            return None

    async def _check(self, asker: Asker, body: SubmitBody) -> None:
        """Refuse what can never run."""
        for name in body.parameters:
            submission.check_name(name)
        ask = admission_check.Ask(
            asker.name, "", body.gpu_class, body.count or body.nodes, body.seconds,
            groups=asker.groups, project=body.project, nodes=body.nodes, min_count=body.min_count,
            at_least=body.at_least,
        )  # fmt: skip
        admission_check.check(ask, self._snapshot())
        if not await self._hub.may_start_servers(asker.name):
            raise GPULeaseError(
                "runs_not_set_up",
                "Whole notebooks cannot be run here: the lease service may not start servers.",
                next_step="An admin switches it on with setup_gpulease(c, whole_notebooks=True).",
            )

    async def _options(self, asker: Asker) -> dict[str, object]:
        """Return what the asking server was started with: a run has the same image."""
        if asker.claimed_server is None:
            return {}
        server = (await self._hub.servers(asker.name)).get(asker.claimed_server)
        return dict(server.options) if server is not None else {}

    async def _earlier(self, asker: Asker, wanted: Sequence[str]) -> tuple[str, ...]:
        """Return the runs to follow; an array's id stands for all of its runs."""
        found: list[str] = []
        for each in wanted:
            array = await self._records.ledger.read(stored.of_array, each) if each else []
            found += [x.id for x in array if _may_see(asker, x)] or [
                (await self.one(asker, each)).id
            ]
        return tuple(dict.fromkeys(found))

    def _refuse_many(self, asker: Asker, more: int) -> None:
        mine = sum(
            run.user == asker.name and run.state is not RunState.ENDED
            for run in self._records.known.values()
        )
        if mine + more > MOST:
            raise GPULeaseError(
                "too_many_runs",
                f"{mine} runs of yours have not ended, and one person may have {MOST}.",
                next_step="Cancel some, or wait until some have ended.",
                numbers={"runs": mine, "max": MOST},
            )


def _may_see(asker: Asker, run: Run) -> bool:
    return asker.admin or asker.name == run.user


def _the_same(new: Sequence[Run], found: Sequence[Run | None]) -> list[Run]:
    """Return the runs that were found, if these are what is asked for again."""
    asked = [_asked(run) for run in new]
    known = [run for run in found if run is not None]
    if [_asked(run) for run in known] != asked:
        raise key_reused()
    return known


def _asked(run: Run) -> tuple[object, ...]:
    """Return what a run was submitted with, that nothing changes afterwards."""
    return (
        run.notebook, run.gpu_class, run.count, run.nodes, run.min_count, run.at_least, run.wanted,
        run.project, dict(run.parameters), run.after, run.array, run.index, run.on_loss,
    )  # fmt: skip


def _id(asker: Asker, key: str, part: str) -> str:
    """Return a new identifier; a repeat with the same key gives the same one."""
    if not key:
        return secrets.token_hex(6)
    return hashlib.sha256(f"{asker.name}\0{key}\0{part}".encode()).hexdigest()[:12]


def _no_such_run(run_id: str) -> GPULeaseError:
    return GPULeaseError(
        "no_such_run",
        Text("There is no run {run}.", run=run_id),
        next_step="See your runs: gpulease runs.",
        numbers={"run": run_id},
    )


def gpu_rows(
    run: Run, lease: Lease, history: Sequence[TransitionRecord], sentence: str
) -> Iterator[RunEvent]:
    """Tell when a GPU came, when it went on with others, and when and why the GPU left.

    What happens once the run is over is not told.

    ``sentence``: what is said of the lease's end.  A run that is warned hands its GPU back by
    itself, between two cells: why is then what it was warned of.
    """
    if lease.active_since is None:
        return
    yield RunEvent(run.id, lease.active_since, "", "gpu", "")
    yield from _reshaped(run, history)
    if lease.ended is None or (run.ended is not None and lease.ended >= run.ended):
        return
    why = _warned_of(history) if lease.end_reason is EndReason.RETURNED else sentence
    yield RunEvent(run.id, lease.ended, "", "gpu_left", why)


def _reshaped(run: Run, history: Sequence[TransitionRecord]) -> Iterator[RunEvent]:
    warned = ""
    for row in history:
        if row.target == LeaseState.WARNED.value:
            warned = audited(row.why)
        elif (row.target, row.why) == (LeaseState.QUEUED.value, "reshaped"):
            yield RunEvent(run.id, row.at, "", "gpu_changed", warned)


def _warned_of(history: Sequence[TransitionRecord]) -> str:
    """Return what a lease was warned of when it was given back, ``""`` where it was not."""
    warned, leaves = LeaseState.WARNED.value, LeaseState.DRAINING.value
    if (warned, leaves) not in {(row.source, row.target) for row in history}:
        return ""
    return next((audited(row.why) for row in reversed(history) if row.target == warned), "")
