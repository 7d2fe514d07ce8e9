"""The sections ``projects`` and ``shares`` of the policy document: their form, both ways.

Every key is optional::

    shares: {half_life: 7d, strength: 1}
    projects:
      physics: {title: Physics, pools: {cards: {guarantee: 6}}}   # a department: others name it
      particles:
        parent: physics
        group: phys-particles       # the hub group of its members; the project's name by default
        pools: {cards: {guarantee: 4, limit: 8}}
        classes: [t4]               # what may be charged to it; every class by default
        weight: 2                   # of what is over, beside its siblings
        members: {weight: 1, limit: 2}
        people: {ann: {weight: 2, limit: 4}}
        budget: {gpu_hours: 500, each: 40, people: {ann: 80}, zone: Europe/Berlin, at_zero: end,
                 contact: [pi@example.org],  # is told at 80 %
                 from: 2026-10-01, to: 2027-03-31}  # without from and to: each week
      others: {everyone: true}      # who is in no other project
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any, Final
from zoneinfo import available_timezones

from gpulease.policy.document.nodes import Reader
from gpulease.policy.projects import ADDRESS, AtZero, Budget, Member, Project, Projects, Share
from gpulease.policy.units import format_duration
from gpulease.texts import Text

SHARES: Final = ("half_life", "strength")
PROJECT: Final = (
    "title", "group", "parent", "everyone", "weight", "pools", "classes", "members", "people",
    "budget",
)  # fmt: skip
BUDGET: Final = ("gpu_hours", "each", "people", "from", "to", "zone", "at_zero", "contact")
_SHARE = ("guarantee", "limit")
_MEMBER = ("weight", "limit")


def read_projects(top: Reader, pools: tuple[str, ...], classes: tuple[str, ...]) -> Projects:
    """Return the projects of the document; what is wrong is noted with its line."""
    base = Projects()
    shares = top.section("shares", SHARES)
    section = top.section("projects", None)
    entries = [
        (name, section.section(name, PROJECT, what=f"projects.{name}")) for name in section.names
    ]
    found = Projects(
        tuple(_project(name, reader, pools, classes) for name, reader in entries),
        half_life=shares.duration("half_life", base.half_life, least=0),
        strength=shares.number("strength", base.strength),
    )
    return _fitting(found, dict(entries))


def _project(
    name: str, reader: Reader, pools: tuple[str, ...], classes: tuple[str, ...]
) -> Project:
    def offered(text: str) -> str:
        if text not in classes:
            raise ValueError(Text("there is no class '{name}'.", name=text))
        return text

    everyone = reader.flag("everyone", False)
    return Project(
        name=name,
        group=reader.text("group", "" if everyone else name),
        parent=reader.text("parent", ""),
        title=reader.text("title", ""),
        weight=reader.number("weight", 1.0),
        everyone=everyone,
        pools=_pools(reader, pools),
        classes=reader.texts("classes", offered),
        members=_member(reader.section("members", _MEMBER), Member()),
        people=_people(reader),
        budget=_budget(reader) if "budget" in reader.names else None,
    )


def _pools(reader: Reader, pools: tuple[str, ...]) -> tuple[tuple[str, Share], ...]:
    section = reader.section("pools", pools, "pools of a project")
    found = []
    for name in section.names:
        own = section.section(name, _SHARE)
        guarantee = own.whole("guarantee", 0, least=0)
        limit = own.whole("limit", 0, least=0) if "limit" in own.names else None
        if limit is not None and limit < guarantee:
            own.wrong(
                "limit",
                Text("The limit is below the guarantee."),
                Text("Raise it, or leave it out."),
            )
        found.append((name, Share(guarantee, limit)))
    return tuple(found)


def _member(reader: Reader, base: Member) -> Member:
    limit = reader.whole("limit", 0, least=0) if "limit" in reader.names else base.limit
    return Member(reader.number("weight", base.weight), limit)


def _people(reader: Reader) -> tuple[tuple[str, Member], ...]:
    base = _member(reader.section("members", None), Member())
    section = reader.section("people", None)
    return tuple((name, _member(section.section(name, _MEMBER), base)) for name in section.names)


def _budget(reader: Reader) -> Budget:
    section = reader.section("budget", BUDGET)
    first, last = _date(section, "from"), _date(section, "to")
    if ("from" in section.names) != ("to" in section.names):
        missing = "to" if "from" in section.names else "from"
        message = Text("A term needs both days; {missing} is missing.", missing=missing)
        section.wrong("from", message, Text("Add {missing}.", missing=missing))
    elif first is not None and last is not None and last < first:
        section.wrong("to", Text("This term ends before it begins."), Text("Swap the two days."))
    zone = section.text("zone", "UTC")
    if zone not in available_timezones():
        message = Text("'{zone}' is no time zone.", zone=zone)
        section.wrong("zone", message, Text("Write for example Europe/Berlin."))
        zone = "UTC"
    people = section.section("people", None)
    at_zero = section.choice("at_zero", tuple(AtZero), AtZero.END)
    return Budget(
        gpu_hours=_hours(section, "gpu_hours"),
        each=_hours(section, "each"),
        people=tuple((name, people.number(name, 0.0)) for name in people.names),
        first=first,
        last=last,
        zone=zone,
        at_zero=AtZero(at_zero) if at_zero in tuple(AtZero) else AtZero.END,
        contact=section.texts("contact", _address),
    )


def _address(text: str) -> str:
    if not re.fullmatch(ADDRESS, text):
        raise ValueError(Text("'{text}' is no e-mail address.", text=text))
    return text


def _hours(section: Reader, key: str) -> float | None:
    return section.number(key, 0.0) if key in section.names else None


def _date(section: Reader, key: str) -> date | None:
    if key not in section.names:
        return None
    try:
        return date.fromisoformat(section.text(key, ""))
    except ValueError:
        step = Text("Write `{key}: 2026-10-01`.", key=key)
        section.wrong(key, Text("{key} needs a day.", key=key), step)
        return None


def _fitting(projects: Projects, readers: Mapping[str, Reader]) -> Projects:
    """Note what is wrong between projects; parents that are none are left out."""
    kept = [_with_parent(project, projects, readers[project.name]) for project in projects.all]
    checked = replace(projects, all=tuple(kept))
    parents = {project.parent for project in checked.all}
    seen: dict[str, str] = {}
    for project in checked.all:
        reader = readers[project.name]
        if project.name in parents:
            _department(project, reader)
            continue
        if project.everyone and "group" in reader.names:
            reader.wrong(
                "group",
                Text("A project of everyone has no group."),
                Text("Leave one of them out."),
            )
        key = "" if project.everyone else project.group
        if key in seen:
            both = {"one": seen[key], "other": project.name, "group": key}
            reader.wrong(
                "group",
                Text("Projects {one} and {other} are both of group '{group}'.", **both)
                if key
                else Text("Projects {one} and {other} are both of everyone.", **both),
                Text("Give each project a group of its own."),
            )
        seen[key] = project.name
    return replace(
        checked,
        all=tuple(replace(p, group="") if p.name in parents else p for p in checked.all),
    )


def _with_parent(project: Project, projects: Projects, reader: Reader) -> Project:
    if project.parent and project.parent not in projects.by_name:
        reader.wrong(
            "parent",
            Text("There is no project '{name}'.", name=project.parent),
            Text("Name another project above it."),
        )
        return replace(project, parent="")
    above, found = project.parent, {project.name}
    while above:
        if above in found:
            message = Text("Project {name} is below itself.", name=project.name)
            reader.wrong("parent", message, Text("Name another one."))
            return replace(project, parent="")
        found.add(above)
        above = projects.by_name[above].parent if above in projects.by_name else ""
    return project


def _department(project: Project, reader: Reader) -> None:
    for key in ("group", "everyone", "classes", "members", "people", "budget"):
        if key in reader.names:
            reader.wrong(
                key,
                Text(
                    "{name} is the parent of other projects: it has no {key} of its own.",
                    name=project.name,
                    key=key,
                ),
                Text("Give it to one of its projects."),
            )


def projects_tree(projects: Projects) -> dict[str, Any]:
    """Return the sections that ``read_projects`` reads back, without what is as by default."""
    tree: dict[str, Any] = {}
    base = Projects()
    shares: dict[str, Any] = {}
    if projects.half_life != base.half_life:
        shares["half_life"] = format_duration(projects.half_life)
    if projects.strength != base.strength:
        shares["strength"] = projects.strength
    if shares:
        tree["shares"] = shares
    if projects.all:
        tree["projects"] = {each.name: _project_tree(each) for each in projects.all}
    return tree


def _project_tree(project: Project) -> dict[str, Any]:
    tree: dict[str, Any] = {
        key: getattr(project, key) for key in ("title", "parent") if getattr(project, key)
    }
    if project.everyone:
        tree["everyone"] = True
    elif project.group and project.group != project.name:
        tree["group"] = project.group
    if project.weight != 1.0:
        tree["weight"] = project.weight
    if project.pools:
        tree["pools"] = {
            pool: {"guarantee": share.guarantee} | _given(limit=share.limit)
            for pool, share in project.pools
        }
    if project.classes:
        tree["classes"] = list(project.classes)
    if project.members != Member():
        tree["members"] = {"weight": project.members.weight} | _given(limit=project.members.limit)
    if project.people:
        tree["people"] = {
            user: {"weight": member.weight} | _given(limit=member.limit)
            for user, member in project.people
        }
    return tree | ({"budget": _budget_tree(project.budget)} if project.budget else {})


def _budget_tree(budget: Budget) -> dict[str, Any]:
    tree = _given(gpu_hours=budget.gpu_hours, each=budget.each)
    if budget.people:
        tree["people"] = dict(budget.people)
    if budget.first is not None and budget.last is not None:
        tree |= {"from": budget.first.isoformat(), "to": budget.last.isoformat()}
    if budget.contact:
        tree["contact"] = list(budget.contact)
    return tree | {"zone": budget.zone, "at_zero": budget.at_zero.value}


def _given(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
