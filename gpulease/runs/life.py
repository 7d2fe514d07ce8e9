"""The life of a run: the one table of its states, and what follows for each run at one look.

A look compares all runs that have not ended with the hub's servers and returns what changes.  What
must be done in the world follows from a run alone (``errand``), so a service that was restarted
finds by itself what it had begun.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.runs.model import OnLoss, Run, RunOutcome, RunState, ServerSeen, Terms

_W, _S, _R, _E = RunState.WAITING, RunState.STARTING, RunState.RUNNING, RunState.ENDED

#: Why a run waits.
WAITS = frozenset({"", "run_limit", "after", "backing_off"})
#: Faults of what runs it, never of the notebook: it is tried again.
FAULTS = frozenset({"server_failed", "start_timeout", "server_gone", "interrupted", "gpu_lost"})
#: Why it ends; ``kernel_died`` may also begin another attempt.
ENDS = frozenset(
    {
        "succeeded", "notebook_error", "gpu_time_over", "unreadable", "kernel_died", "cancelled",
        "admin_cancelled", "skipped",
    }
) | FAULTS  # fmt: skip

TABLE: dict[tuple[RunState, RunState], frozenset[str]] = {
    (_W, _W): WAITS,
    (_W, _S): frozenset({"starting"}),
    (_W, _E): frozenset({"cancelled", "admin_cancelled", "skipped"}),
    (_S, _R): frozenset({"executing"}),
    (_S, _W): FAULTS,
    (_S, _E): FAULTS | {"cancelled", "admin_cancelled", "not_set_up"},
    (_R, _R): frozenset({"executing"}),
    (_R, _W): FAULTS | {"kernel_died"},
    (_R, _E): ENDS - {"skipped"},
    (_E, _E): frozenset({"cleared"}),
}


#: States in which a run has a server, or is about to.
BUSY = frozenset({RunState.STARTING, RunState.RUNNING})
#: After these a run may be tried again.
_TRIED_AGAIN = TABLE[RunState.RUNNING, RunState.WAITING]
_OUTCOMES = {
    "succeeded": RunOutcome.SUCCEEDED,
    "cancelled": RunOutcome.CANCELLED,
    "admin_cancelled": RunOutcome.CANCELLED,
    "skipped": RunOutcome.SKIPPED,
}


class Errand(StrEnum):
    """What is to be done at the hub for a run."""

    NONE = ""
    START = "start"
    REMOVE = "remove"


def move(run: Run, state: RunState, reason: str, now: datetime, **changed: Any) -> Run:
    """Return the run in ``state``.

    Raises:
        GPULeaseError: ``not_possible_now`` (409): the table has no such step.
        ValueError: the step is not recorded with ``reason``: a mistake of the caller.
    """
    reasons = TABLE.get((run.state, state))
    if reasons is None:
        raise GPULeaseError(
            "not_possible_now",
            f"A run that is {run.state.value} cannot become {state.value}.",
            next_step="Look at the run again: it changed meanwhile.",
        )
    if reason not in reasons:
        raise ValueError(f"{run.state.value} -> {state.value} has no reason {reason!r}")
    since = run.state_since if run.state is state else now
    if state is RunState.ENDED and run.state is not state:
        changed |= {"ended": now, "outcome": _OUTCOMES.get(reason, RunOutcome.FAILED)}
    return replace(
        run, state=state, reason=reason, state_since=since, version=run.version + 1, **changed
    )


def cancel(run: Run, by: str, now: datetime, note: str = "") -> Run:
    """Return the run cancelled; one that has ended stays as it is.

    Args:
        run: the run.
        by: who cancels it: its person, or an admin, of whom that is said.
        now: the time.
        note: what an admin wrote to its person; a note of an earlier attempt goes.
    """
    if run.state is RunState.ENDED:
        return run
    reason = "cancelled" if by == run.user else "admin_cancelled"
    return move(run, RunState.ENDED, reason, now, note=note)


@dataclass(frozen=True)
class Report:
    """What a run's own server says of it; ``state`` is ``running``, or why it ended."""

    boot: str
    state: str = "running"
    cells: int = 0
    done: int = 0
    note: str = ""
    opens: str = ""


def heard(run: Run, said: Report, now: datetime, terms: Terms) -> Run:
    """Return the run after a report of its server; the first one begins it.

    Another server process than before means that the server was restarted: what the first had
    executed is lost, and the notebook begins again, as a further attempt.

    Raises:
        GPULeaseError: ``not_possible_now`` (409): the run waits or has ended.
    """
    after = run
    if run.state is RunState.RUNNING and run.boot != said.boot:
        after = fault(run, "server_gone", "", now, terms)
        if after.state is RunState.WAITING:  # the new server is there already
            after = replace(run, attempt=run.attempt + 1)
    if after.state is not RunState.ENDED or run.state is RunState.ENDED:
        after = move(
            after, RunState.RUNNING, "executing", now,
            boot=said.boot, started=run.started or now, cells=said.cells, done=said.done,
            opens=said.opens or after.opens,
        )  # fmt: skip
        if said.state != "running":
            after = _over(after, said, now, terms)
    return replace(after, version=run.version + 1)  # one step, as it is stored


def _over(run: Run, said: Report, now: datetime, terms: Terms) -> Run:
    restarts = said.state == "kernel_died" and run.on_loss is OnLoss.RESTART
    if said.state in FAULTS or restarts:
        return fault(run, said.state, said.note, now, terms)
    return move(run, RunState.ENDED, said.state, now, note=said.note)


def fault(run: Run, reason: str, note: str, now: datetime, terms: Terms) -> Run:
    """Return the run after something beneath it failed: to be tried again, or given up."""
    if run.attempt >= terms.attempts:
        return move(run, RunState.ENDED, reason, now, note=note)
    pause = timedelta(seconds=terms.pause * 2 ** max(0, run.attempt - 1))
    return move(run, RunState.WAITING, reason, now, note=note, not_before=now + pause, boot="")


def look(
    runs: Iterable[Run],
    servers: Mapping[str, ServerSeen],
    asked: Mapping[str, int],
    now: datetime,
    terms: Terms,
) -> list[Run]:
    """Return the runs that change, each at most once.

    Args:
        runs: those that have not ended, and those that others wait for.
        servers: the active server of each run that has one, by the run's id.
        asked: run -> the attempt for which the hub was asked for a server, by this process.
        now: the time.
        terms: what runs are held to.
    """
    known = {run.id: run for run in runs}
    busy = Counter(run.user for run in known.values() if run.state in BUSY)
    changed: list[Run] = []
    for run in sorted(known.values(), key=lambda each: (each.created, each.index or 0, each.id)):
        after = run
        if run.state is RunState.WAITING:
            after = _turn(run, known, busy[run.user], now, terms)
            busy[run.user] += after.state is RunState.STARTING
        elif run.state is RunState.STARTING:
            after = _start(run, servers.get(run.id), asked, now, terms)
        elif run.state is RunState.RUNNING and run.id not in servers:
            after = fault(run, "server_gone", "", now, terms)
        if after is not run:
            changed.append(after)
    return changed


def errand(run: Run, server: ServerSeen | None, asked: Mapping[str, int]) -> Errand:
    """Return what is to be done at the hub for a run."""
    if run.state is RunState.STARTING and server is None and asked.get(run.id) != run.attempt:
        return Errand.START
    if run.state not in BUSY and not run.cleared:
        return Errand.REMOVE
    return Errand.NONE


def _turn(run: Run, known: Mapping[str, Run], busy: int, now: datetime, terms: Terms) -> Run:
    earlier = [known[each] for each in run.after if each in known]
    if any(each.state is RunState.ENDED and not _succeeded(each) for each in earlier):
        return move(run, RunState.ENDED, "skipped", now)
    reason = ""
    if not all(_succeeded(each) for each in earlier):
        reason = "after"
    elif not run.cleared or (run.not_before is not None and now < run.not_before):
        reason = "backing_off" if run.attempt else ""
    elif busy >= terms.at_once:
        reason = "run_limit"
    else:
        return move(
            run, RunState.STARTING, "starting", now,
            attempt=run.attempt + 1, cleared=False, not_before=None, done=0,
            note="",  # of the attempt before
        )  # fmt: skip
    if reason in ("", run.reason) or (reason == "backing_off" and run.reason in _TRIED_AGAIN):
        return run  # why it is tried again says more than that it waits
    return move(run, RunState.WAITING, reason, now)


def _succeeded(run: Run) -> bool:
    return run.outcome is RunOutcome.SUCCEEDED


def _start(
    run: Run, server: ServerSeen | None, asked: Mapping[str, int], now: datetime, terms: Terms
) -> Run:
    since = run.state_since or now
    if now - since > timedelta(seconds=terms.start_max):
        why = "" if server is None or not server.ready else "Its server runs, but not gpulease."
        return fault(run, "start_timeout", why, now, terms)
    if server is None and asked.get(run.id) == run.attempt:
        return fault(run, "server_failed", run.note, now, terms)
    return run
