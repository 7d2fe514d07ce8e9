"""REST of leases (list, ask, show, end, keep, connections, history), and of background runs.

What they do stands in ``leases.commands`` and ``runs.commands``.
"""

from __future__ import annotations

import logging

from gpulease.errors import GPULeaseError
from gpulease.policy.budgets import Remainder
from gpulease.policy.explanation.catalogue import audited
from gpulease.policy.model import Lease, LeaseState
from gpulease.protocol.asks import AskBody
from gpulease.protocol.service import ClassView, ConnectionView, LeaseView
from gpulease.runs import model, sentences
from gpulease.runs.model import Run, RunState, run_of
from gpulease.service.context import Services
from gpulease.service.control_loop.deciding import decided
from gpulease.service.hubs.auth import SCOPE_ADMIN, SCOPE_REQUEST, SCOPE_RESERVE, Asker
from gpulease.service.leases.view_parts import budget_view
from gpulease.service.rest.base import ACCESS, BaseHandler, answers, needs_scope
from gpulease.service.runs import commands
from gpulease.service.schemas.bodies import (
    ConnectionBody,
    EmptyBody,
    EndBody,
    EndGroupBody,
    LeasesQuery,
    PageQuery,
    RunReport,
    RunsQuery,
    SubmitBody,
    is_set,
)
from gpulease.service.schemas.shapes import (
    DecisionView,
    Items,
    LeaseEvent,
    Page,
    RunEventView,
    RunView,
    ServerView,
    UseReading,
)
from gpulease.store import history
from gpulease.store.history import Of
from gpulease.store.runs import RunEvent
from gpulease.texts import Text, joined

log = logging.getLogger(__name__)


class Leases(BaseHandler):
    """``leases``: list what one may see, ask for GPUs, end a group's."""

    @needs_scope(ACCESS)
    @answers({200: Page[LeaseView]}, query=LeasesQuery)
    async def get(self) -> None:
        """List the leases you may see, newest first; ``state`` may be ``live``."""
        query = self.query(LeasesQuery)
        found, total = await self.services.history.page(
            self.asker,
            state=query.state,
            mine=is_set(query.mine),
            of=Of(query.user, query.project, query.gpu_class),
            offset=query.offset,
            limit=query.limit,
        )
        busy = await self.services.history.busy_shares(found)
        self.answer_page(self.services.views.seen_by(self.asker, found, busy), total, query)

    @needs_scope(SCOPE_REQUEST)
    @answers({201: LeaseView, 200: LeaseView}, body=AskBody, refuses=(404, 409), repeatable=True)
    async def post(self) -> None:
        """Ask for a GPU: 201 with a new lease, 200 with the one that answers already."""
        body = self.parse(AskBody)
        key = self.repeat_key()
        differences = self._differences(body)
        lease, new = await self.services.requests.ask(self.asker, body, key)
        if new:
            self.set_header("Location", f"{self.services.prefix}api/leases/{lease.id}")
        view = self.services.events.view_of(lease) or self.services.views.lease(lease)
        told = {**view, "differences": differences} if differences else view
        self.answer(told, 201 if new else 200)

    @needs_scope(SCOPE_RESERVE)
    @answers({200: Items[LeaseView]}, body=EndGroupBody)
    async def delete(self) -> None:
        """End every lease and request of a group's members but your own."""
        body = self.parse(EndGroupBody)
        ended = await self.services.commands.end_group(self.asker, body.group, body.note)
        self.answer({"items": [self.services.views.lease(lease) for lease in ended]})

    def _differences(self, body: AskBody) -> list[str]:
        notebook = body.get("environment")
        if notebook is None or body.get("user") not in (None, self.asker.name):
            return []
        return self.services.environments.check(self.asker, body.get("gpu_class"), notebook)


class OneLease(BaseHandler):
    """``leases/{id}``: show, end."""

    @needs_scope(ACCESS)
    @answers({200: LeaseView})
    async def get(self, lease_id: str) -> None:
        """Show one lease; of a request its place and when it is expected to start."""
        lease = await self.services.history.one(self.asker, lease_id)
        busy = await self.services.history.busy_shares([lease])
        (view,) = self.services.views.seen_by(self.asker, [lease], busy)
        self.answer(view)

    @needs_scope(SCOPE_REQUEST, SCOPE_RESERVE)
    @answers({200: LeaseView}, body=EndBody, refuses=(409,))
    async def delete(self, lease_id: str) -> None:
        """Return it, withdraw the request, or end it with a note to its holder.

        A whole notebook's run whose lease an admin ends is cancelled.
        """
        body = self.parse(EndBody)
        lease = await self.services.commands.end(self.asker, lease_id, body.note, force=body.force)
        await self.services.runs.lease_ended(self.asker, lease)
        self.answer(self.services.views.lease(lease))


class Keep(BaseHandler):
    """``leases/{id}/keep``."""

    @needs_scope(SCOPE_REQUEST)
    @answers({200: LeaseView}, body=EmptyBody, refuses=(409,))
    async def post(self, lease_id: str) -> None:
        """Keep an idle lease for a while."""
        self.parse(EmptyBody)
        lease = await self.services.commands.keep(self.asker, lease_id)
        self.answer(self.services.views.lease(lease))


class Upgrade(BaseHandler):
    """``leases/{id}/upgrade``."""

    @needs_scope(SCOPE_REQUEST)
    @answers({200: LeaseView}, body=EmptyBody, refuses=(409,))
    async def post(self, lease_id: str) -> None:
        """Move to what was asked for, as far as it is free; 409 where nothing is."""
        self.parse(EmptyBody)
        lease = await self.services.commands.upgrade(self.asker, lease_id)
        self.answer(self.services.views.lease(lease))


class PutBack(BaseHandler):
    """``leases/{id}/put-back``."""

    @needs_scope(SCOPE_ADMIN)
    @answers({200: LeaseView}, body=EmptyBody, refuses=(409,))
    async def post(self, lease_id: str) -> None:
        """Put the GPU of an ended lease back into service, whatever is left of it."""
        self.parse(EmptyBody)
        lease = self.services.commands.visible(self.asker, lease_id)
        started = self.services.provider.server_started
        if started is None or not started.put_back(lease_id):
            raise _holds_nothing()
        log.warning(
            "%s put the GPU of a lease that is over back into service", self.asker.name,
            extra={"lease": lease_id, "user": lease.user},
        )  # fmt: skip
        self.services.loop.wake()
        self.answer(self.services.views.lease(lease))


def _holds_nothing() -> GPULeaseError:
    return GPULeaseError(
        "holds_nothing",
        Text("No process of this lease keeps a GPU out of service."),
        next_step=Text("If it ended just now, wait: its processes are ended first."),
    )


class Connections(BaseHandler):
    """``leases/{id}/connections``."""

    @needs_scope(SCOPE_REQUEST)
    @answers({201: ConnectionView}, body=ConnectionBody, refuses=(409,))
    async def post(self, lease_id: str) -> None:
        """Admit a home kernel's public key and say where the lease is."""
        body = self.parse(ConnectionBody)
        self.answer(await self.services.commands.connect(self.asker, lease_id, body), 201)


class LeaseEvents(BaseHandler):
    """``leases/{id}/events``: what happened to a lease, who did it and why."""

    @needs_scope(ACCESS)
    @answers({200: Items[LeaseEvent]})
    async def get(self, lease_id: str) -> None:
        """Show the lease's history, oldest first."""
        lease = await self.services.history.one(self.asker, lease_id)
        self.answer({"items": await self.services.history.events(self.asker, lease)})


class LeaseUse(BaseHandler):
    """``leases/{id}/use``: what a lease's GPUs did in the last ten minutes."""

    @needs_scope(ACCESS)
    @answers({200: Items[UseReading]})
    async def get(self, lease_id: str) -> None:
        """List its GPU use and GPU memory of the last ten minutes, oldest first."""
        lease = await self.services.history.one(self.asker, lease_id)
        readings = self.services.loop.observer.readings.of(lease.id)
        items = [{**each._asdict(), "at": each.at.isoformat()} for each in readings]
        self.answer({"items": items})


class Why(BaseHandler):
    """``leases/{id}/why``: each decision about a lease, with what it was made from."""

    @needs_scope(SCOPE_ADMIN)
    @answers({200: Page[DecisionView]}, query=PageQuery)
    async def get(self, lease_id: str) -> None:
        """Show each decision about it and its inputs, newest first."""
        query = self.query(PageQuery)
        lease = await self.services.history.one(self.asker, lease_id)
        items, total = await decided(self.services.ledger, lease.id, query)
        self.answer_page(items, total, query)


class ServerList(BaseHandler):
    """``servers``: the asker's running servers, for the page that asks for one of them."""

    @needs_scope(ACCESS)
    @answers({200: Items[ServerView]})
    async def get(self) -> None:
        """List your running servers, without those of background runs."""
        found = await self.services.requests.servers(self.asker.name)
        items = [
            {name: getattr(server, name) for name in ServerView.__annotations__}
            for server in found.values()
            if not run_of(server.name)
        ]
        self.answer({"items": items})


class Classes(BaseHandler):
    """``classes``: what is on offer, and what of it is free."""

    @needs_scope(ACCESS)
    @answers({200: Items[ClassView]})
    async def get(self) -> None:
        """List the classes on offer, their price, and what of each is free."""
        self.answer({"items": self.services.views.classes()})


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
            changes = await services.ledger.read(history.transitions, lease.id)
            found += commands.gpu_rows(run, lease, changes, _end(lease))
        return found


class RunReports(BaseHandler):
    """``runs/{id}/reports``: what a run's own server says of it."""

    by_itself = True  # after each cell: a person's own changes are not refused for it

    @needs_scope(SCOPE_REQUEST)
    @answers({200: RunView}, body=RunReport, refuses=(404, 409, 502))
    async def post(self, run_id: str) -> None:
        """Take a report of the run's own server."""
        body = self.parse(RunReport)
        server = await self.services.requests.prove(self.asker)
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
