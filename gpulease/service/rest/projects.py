"""REST of projects and groups: shares, budgets, use, whom one teaches, and what is told to them.

Everybody sees their own projects, who leads a group all of its project, admins all.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from gpulease.policy import budgets
from gpulease.policy.fairness import standing
from gpulease.policy.model import Snapshot
from gpulease.policy.projects import Project
from gpulease.policy.shares import Node
from gpulease.protocol.service import MessageView
from gpulease.service.hubs.auth import SCOPE_ADMIN, SCOPE_RESERVE, Asker
from gpulease.service.leases import history
from gpulease.service.leases.commands import not_your_group
from gpulease.service.leases.usage import charged, present, sums
from gpulease.service.leases.view_parts import budget_view
from gpulease.service.notices import may_tell
from gpulease.service.rest.base import ACCESS, BaseHandler, Text, answers, needs_scope
from gpulease.service.schemas.bodies import (
    EmptyBody,
    MembersQuery,
    MessageBody,
    TimelineQuery,
    UsageQuery,
)
from gpulease.service.schemas.shapes import (
    DevicesUse,
    GroupView,
    Items,
    PoolShare,
    ProjectView,
    TimelineStep,
    TimelineView,
    UsageView,
)
from gpulease.system.terminal import csv_text

#: Days that are looked at where none are named.
_DAYS = 30
_FIGURES = ("hours", "gpu_hours", "estimated")


class ProjectList(BaseHandler):
    """``projects``."""

    @needs_scope(ACCESS)
    @answers({200: Items[ProjectView]})
    async def get(self) -> None:
        """List the projects that you are in or lead, with shares and budgets."""
        self.answer({"items": projects_of(self.services.loop.shown(), self.asker)})


class UsageReport(BaseHandler):
    """``usage``."""

    @needs_scope(ACCESS)
    @answers({200: UsageView}, query=UsageQuery)
    async def get(self) -> None:
        """Sum up hours of GPUs and what they cost, also of what runs now."""
        since, until, rows = await self.rows(self.query(UsageQuery))
        kept = self.services.warm_time
        warm = kept.hours(since.date(), until.date()) if self.asker.admin else {}
        times = {"since": since.isoformat(), "until": until.isoformat()}
        self.answer({**times, "items": rows, "warm": warm})

    async def rows(self, query: UsageQuery) -> tuple[datetime, datetime, list[dict[str, object]]]:
        """Return the time that is looked at, and what was used in it."""
        snapshot, zone = self.services.loop.shown(), ZoneInfo(query.zone)
        last = query.until or snapshot.now.astimezone(zone).date()
        since = _midnight(query.since or last - timedelta(days=_DAYS), zone)
        until = max(since, min(_midnight(last + timedelta(days=1), zone), snapshot.now))
        users, projects = whose(snapshot, self.asker)
        running = [
            use
            for use in present(snapshot)
            if users is None or use.user in users or use.project in (projects or ())
        ]
        by, workers = query.by.split(","), self.services.workers
        # What is refused has read nothing: asks for GPUs are written by the thread that reads.
        async with workers.turn(self.asker.name):
            found = await charged(
                self.services.ledger, since, until, users=users, projects=projects
            )
            rows = await workers.in_turn(
                sums, [*found, *running], since, until, by, zone, parts=snapshot.policy.parts
            )
        return since, until, rows


class UsageTable(UsageReport):
    """``usage.csv``."""

    @needs_scope(ACCESS)
    @answers({200: Text("text/csv")}, query=UsageQuery)
    async def get(self) -> None:
        """Return the same as a table."""
        query = self.query(UsageQuery)
        _, _, rows = await self.rows(query)
        columns = [*query.by.split(","), *_FIGURES]
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.finish(csv_text(columns, ([row[column] for column in columns] for row in rows)))


class Timeline(BaseHandler):
    """``usage/timeline``: what GPUs did and how long people waited; for admins."""

    @needs_scope(SCOPE_ADMIN)
    @answers({200: TimelineView}, query=TimelineQuery)
    async def get(self) -> None:
        """Sum up use, queue and waits in equal steps of the last ``hours``."""
        self.answer(await self.found())

    async def found(self) -> TimelineView:
        """Return the last hours; where older hours are one row each, in whole hours."""
        snapshot = self.services.loop.shown()
        since, until, folded = _last(self.query(TimelineQuery).hours, snapshot.now)
        step, workers = history.step_of(until - since, folded), self.services.workers
        async with workers.turn(self.asker.name):
            minutes, waits = await history.read_timeline(self.services.ledger, since, until)
            items = await workers.in_turn(history.timeline, minutes, waits, since, until, step)
        return {
            "since": since.isoformat(),
            "until": until.isoformat(),
            "step": step.total_seconds(),
            "devices": sum(device.healthy and not device.lost for device in snapshot.devices),
            "items": items,
        }


class TimelineTable(Timeline):
    """``usage/timeline.csv``."""

    @needs_scope(SCOPE_ADMIN)
    @answers({200: Text("text/csv")}, query=TimelineQuery)
    async def get(self) -> None:
        """Return the same as a table."""
        found = await self.found()
        columns = list(TimelineStep.__annotations__)
        rows = ([row[column] for column in columns] for row in map(dict, found["items"]))
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.finish(csv_text(columns, rows))


class Devices(BaseHandler):
    """``usage/devices``: when each device was in use; for admins."""

    @needs_scope(SCOPE_ADMIN)
    @answers({200: DevicesUse}, query=TimelineQuery)
    async def get(self) -> None:
        """Sum up the use of each device in equal steps of the last ``hours``."""
        self.answer(await self.found())

    async def found(self) -> DevicesUse:
        """Return the last hours in a few steps from a whole hour on."""
        snapshot, workers = self.services.loop.shown(), self.services.workers
        hours = self.query(TimelineQuery).hours
        since, until, folded = _last(hours, snapshot.now)
        since = since.replace(minute=0)
        step = history.step_of(timedelta(hours=hours), folded, history.COLUMNS)
        async with workers.turn(self.asker.name):
            steps = await history.read_by_device(self.services.ledger, since, until, step)
            items = await workers.in_turn(
                history.by_device, steps, snapshot.devices, since, until, step
            )
        return {
            "since": since.isoformat(),
            "until": until.isoformat(),
            "step": step.total_seconds(),
            "items": items,
        }


class DevicesTable(Devices):
    """``usage/devices.csv``."""

    @needs_scope(SCOPE_ADMIN)
    @answers({200: Text("text/csv")}, query=TimelineQuery)
    async def get(self) -> None:
        """Return the same as a table: a line for each device and step."""
        found = await self.found()
        since, step = datetime.fromisoformat(found["since"]), timedelta(seconds=found["step"])
        rows = (
            [(since + number * step).isoformat(), *named, held, busy]
            for each in found["items"]
            for named in [[each["uuid"], each["name"], each["pool"], each["node"]]]
            for number, (held, busy) in enumerate(zip(each["held"], each["busy"], strict=True))
        )
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.finish(csv_text(["at", "uuid", "name", "pool", "node", "held", "busy"], rows))


def _last(hours: int, now: datetime) -> tuple[datetime, datetime, bool]:
    """Return from when to when the last hours are, and whether some of them are one row each."""
    until = now.astimezone(UTC).replace(second=0, microsecond=0)
    length = timedelta(hours=hours)
    folded = length > timedelta(days=1)
    return (until - length).replace(minute=0) if folded else until - length, until, folded


def projects_of(snapshot: Snapshot, asker: Asker) -> list[dict[str, Any]]:
    """Return the projects as one person sees them, in the document's order."""
    projects = snapshot.policy.projects
    mine = {each.name for each in projects.of(asker.groups)} if projects.all else set()
    led = {each.name for each in projects.leaves if _leads(asker, each)}
    shown = {
        above.name
        for each in projects.leaves
        if each.name in mine | led
        for above in projects.above(each)
    }
    found = []
    for project in (each for each in projects.all if each.name in shown):
        view = _view(snapshot, project)
        view["mine"] = project.name in mine
        # Who only leads it spends nothing of it: what is left for all of its people.
        spends = asker.name if project.name in mine else None
        if project.name in mine | led:
            view["budget"] = budget_view(budgets.remainder(snapshot, project.name, spends))
        if project.name in led:
            view["spent"] = {
                user: round(hours, 2)
                for (name, user), hours in sorted(budgets.all_spent(snapshot).items())
                if name == project.name
            }
        found.append(view)
    return found


def _view(snapshot: Snapshot, project: Project) -> dict[str, Any]:
    path = snapshot.policy.projects.above(project)
    trees = standing(snapshot)
    return {
        "name": project.name,
        "title": project.title or project.name,
        "parent": project.parent,
        "group": project.group,
        "weight": project.weight,
        "pools": {pool: _share(_node(tree.root, path)) for pool, tree in trees.items()},
        "budget": None,
    }


def whose(snapshot: Snapshot, asker: Asker) -> tuple[list[str] | None, list[str] | None]:
    """Return whose use an asker may see: people, and projects; ``None`` twice is everybody's."""
    if asker.admin or asker.leads_all:
        return None, None
    led = [each.name for each in snapshot.policy.projects.leaves if _leads(asker, each)]
    return [asker.name], led


def _leads(asker: Asker, project: Project) -> bool:
    return asker.admin or asker.leads_all or bool(project.group and asker.teaches(project.group))


def _node(root: Node, path: Iterable[Project]) -> Node:
    node = root
    for project in reversed(tuple(path)):
        node = node.below[project.name]
    return node


def _share(node: Node) -> PoolShare:
    return {
        "guarantee": node.guarantee,
        "limit": node.limit,
        "held": node.held,
        "waiting": max(0, node.wanted() - node.held),
        "share": node.share,
    }


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, time(), zone).astimezone(UTC)


class Groups(BaseHandler):
    """``groups``: those that one may reserve for."""

    @needs_scope(SCOPE_RESERVE)
    @answers({200: Items[GroupView]}, refuses=(502,))
    async def get(self) -> None:
        """List the groups that you may reserve for.

        Raises:
            GPULeaseError: ``hub_unreachable`` (502).
        """
        asker = self.asker
        everywhere = asker.admin or asker.leads_all
        names = list(asker.leads)
        if everywhere or asker.leads_hub:
            found = await self.services.hub.groups(None if everywhere else asker.names)
            names = found if everywhere else sorted({*names, *found})
        self.answer({"items": [{"name": name} for name in names]})


class Members(BaseHandler):
    """``groups/members``: the members of one group."""

    @needs_scope(SCOPE_RESERVE)
    @answers({200: Items[str]}, query=MembersQuery, refuses=(502,))
    async def get(self) -> None:
        """List the names of a group's members.

        Raises:
            GPULeaseError: ``not_your_group`` (403), ``hub_unreachable`` (502).
        """
        group = self.query(MembersQuery).group
        if not may_tell(self.asker, group):
            raise not_your_group(group)
        self.answer({"items": await self.services.hub.members(group)})


class MessageList(BaseHandler):
    """``messages``."""

    @needs_scope(SCOPE_RESERVE)
    @answers({201: MessageView}, body=MessageBody)
    async def post(self) -> None:
        """Show a text to the members of a group for a time."""
        body = self.parse(MessageBody)
        told = await self.services.messages.tell(self.asker, body.group, body.text, body.seconds)
        self.answer(told, 201)


class OneMessage(BaseHandler):
    """``messages/{id}``."""

    @needs_scope(SCOPE_RESERVE)
    @answers({204: None}, body=EmptyBody)
    async def delete(self, message_id: str) -> None:
        """Delete a message; a repeat changes nothing."""
        self.parse(EmptyBody)
        await self.services.messages.withdraw(self.asker, message_id)
        self.set_status(204)
