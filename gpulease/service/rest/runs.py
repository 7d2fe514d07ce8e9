"""REST of runs: whole notebooks that are executed without anybody."""

from __future__ import annotations

from gpulease.policy.budgets import Remainder
from gpulease.policy.explanation.catalogue import audited
from gpulease.policy.model import Lease, LeaseState
from gpulease.runs import model, sentences
from gpulease.runs.model import Run, RunState
from gpulease.service.context import Services
from gpulease.service.hubs.auth import SCOPE_REQUEST, Asker
from gpulease.service.leases.view_parts import budget_view
from gpulease.service.rest.base import ACCESS, BaseHandler, answers, needs_scope
from gpulease.service.runs import commands
from gpulease.service.schemas.bodies import EmptyBody, RunReport, RunsQuery, SubmitBody, is_set
from gpulease.service.schemas.shapes import Items, Page, RunEventView, RunView
from gpulease.store.runs import RunEvent
from gpulease.texts import Text, joined


class RunList(BaseHandler):
    """``runs``: list one's own, submit a notebook."""

    @needs_scope(ACCESS)
    @answers({200: Page[RunView]}, query=RunsQuery)
    async def get(self) -> None:
        """List your runs (an admin: everybody's), newest first."""
        query = self.query(RunsQuery)
        found, total = await self.services.runs.page(
            self.asker, mine=is_set(query.mine), offset=query.offset, limit=query.limit
        )
        self.answer_page([view(each, self.services, self.asker) for each in found], total, query)

    @needs_scope(SCOPE_REQUEST)
    @answers(
        {201: Items[RunView], 200: Items[RunView]},
        body=SubmitBody,
        refuses=(404, 409, 502),
        repeatable=True,
    )
    async def post(self) -> None:
        """Submit a notebook: 201 with its runs, 200 where the same key made them before."""
        body, key = self.parse(SubmitBody), self.repeat_key()
        found, new = await self.services.runs.submit(self.asker, body, key)
        self.answer(
            {"items": [view(each, self.services, self.asker) for each in found]},
            201 if new else 200,
        )


class OneRun(BaseHandler):
    """``runs/{id}``: show, cancel."""

    @needs_scope(ACCESS)
    @answers({200: RunView}, refuses=(404,))
    async def get(self, run_id: str) -> None:
        """Show one run."""
        self.answer(
            view(await self.services.runs.one(self.asker, run_id), self.services, self.asker)
        )

    @needs_scope(SCOPE_REQUEST)
    @answers({200: RunView}, body=EmptyBody, refuses=(404, 409))
    async def delete(self, run_id: str) -> None:
        """Cancel it; its output so far stays, a repeat changes nothing."""
        self.parse(EmptyBody)
        self.answer(
            view(await self.services.runs.cancel(self.asker, run_id), self.services, self.asker)
        )


class RunEvents(BaseHandler):
    """``runs/{id}/events``: what happened to a run."""

    @needs_scope(ACCESS)
    @answers({200: Items[RunEventView]}, refuses=(404,))
    async def get(self, run_id: str) -> None:
        """Show what happened to a run and which GPUs it had, oldest first."""
        found = await self.services.runs.events(self.asker, run_id)
        found += await self._of_gpus(run_id)
        self.answer(
            {
                "items": [
                    {"at": each.at.isoformat(), "who": each.who, "what": each.what,
                     "sentence": sentences.happened(each.what), "note": each.note}
                    for each in sorted(found, key=lambda each: each.at)
                ]
            }
        )  # fmt: skip

    async def _of_gpus(self, run_id: str) -> list[RunEvent]:
        services, found = self.services, list[RunEvent]()
        run = await services.runs.one(self.asker, run_id)
        for lease in await services.runs.leases(self.asker, run_id):
            history = await services.ledger.call(services.ledger.store.transitions, lease.id)
            found += commands.gpu_rows(run, lease, history, _end(lease))
        return found


class RunReports(BaseHandler):
    """``runs/{id}/reports``: what a run's own server says of it."""

    by_itself = True  # after each cell: a person's own changes are not refused for it

    @needs_scope(SCOPE_REQUEST)
    @answers({200: RunView}, body=RunReport, refuses=(404, 409, 502))
    async def post(self, run_id: str) -> None:
        """Take a report of the run's own server."""
        body = self.parse(RunReport)
        server = await self.services.commands.prove(self.asker)
        run = await self.services.runs.report(self.asker, server, run_id, body)
        self.answer(view(run, self.services, self.asker))


def view(run: Run, services: Services, asker: Asker) -> RunView:
    """Return a run as it is told: how it stands with its GPU speaks to its own person only."""
    server, result = model.server_of(run.id), model.result_of(run)
    return {
        "id": run.id,
        "user": run.user,
        "notebook": run.notebook,
        "result": result,
        "opens": run.opens,
        "server": server,
        "state": run.state.value,
        "reason": run.reason,
        "sentence": sentences.sentence(run),
        "next_step": sentences.next_step(run, run.opens or result),
        "outcome": run.outcome.value if run.outcome is not None else None,
        "attempt": run.attempt,
        "cells": run.cells,
        "done": run.done,
        "gpu": _gpu(run, server, services, mine=asker.name == run.user),
        "gpu_class": run.gpu_class,
        "count": run.count,
        "nodes": run.nodes,
        "min_count": run.min_count,
        "at_least": run.at_least,
        "seconds": run.wanted,
        "project": run.project,
        "budget": budget_view(_remainder(run, services)),
        "parameters": dict(run.parameters),
        "after": list(run.after),
        "array": run.array,
        "index": run.index,
        "on_loss": run.on_loss.value,
        "created": run.created.isoformat(),
        "started": run.started.isoformat() if run.started else None,
        "ended": run.ended.isoformat() if run.ended else None,
        "version": run.version,
    }


def _end(lease: Lease) -> str:
    """Return why a lease ended, in words for everybody who may read a run's log."""
    code = lease.end_cause or (lease.end_reason.value if lease.end_reason is not None else "")
    if not code:
        return ""
    note = Text("They wrote: {note}", note=lease.end_note) if lease.end_note else ""
    return joined(audited(code), note)


def _remainder(run: Run, services: Services) -> Remainder | None:
    return None if run.state is RunState.ENDED else services.runs.budget(run)


def _gpu(run: Run, server: str, services: Services, *, mine: bool) -> str:
    """Return how it stands with a run's lease, "" where it has none."""
    for lease in services.ledger.leases.values() if run.state is RunState.RUNNING else ():
        its = (lease.user, lease.server) == (run.user, server)
        if its and lease.state is not LeaseState.ENDED:
            return services.views.lease(lease)["sentence"] if mine else audited(lease.reason)
    return ""
