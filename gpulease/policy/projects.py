"""The nouns of projects: who owns which share of the pools, and what they may spend.

Projects form a tree: those that others name as their ``parent`` are departments, the leaves have
members (a hub group) and are what requests are charged to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Annotated, ClassVar, Final
from zoneinfo import ZoneInfo

from gpulease.policy.forms import (
    LISTED,
    Day,
    Flag,
    FormError,
    Hidden,
    Line,
    Lines,
    Number,
    Section,
    Span,
    Whole,
    Zone,
    pairs,
    text,
)
from gpulease.texts import Said, Text

_PART: Final = r"[^@\s,:;<>()\[\]\x00-\x1f\x7f]+"
#: The form of an e-mail address that people are told at: what mail can carry without quoting it.
ADDRESS: Final = f"{_PART}@{_PART}"


def _address(raw: str) -> None:
    if not re.fullmatch(ADDRESS, raw):
        raise FormError(Text("'{text}' is not an e-mail address.", text=raw))


@dataclass(frozen=True)
class Share(Section):
    """What is a project's own of one pool, and the most it may hold there, in pool units."""

    guarantee: Annotated[Whole, Said("Devices that are always its own.")] = 0
    limit: Annotated[Whole | None, Said("The most that it may hold.")] = None


@dataclass(frozen=True)
class Member(Section):
    """How a project divides its share among its people; ``limit`` counts units of one pool."""

    weight: Annotated[Number, Said("Beside the other members.")] = 1.0
    limit: Annotated[Whole | None, Said("The most devices of one pool of one person.")] = None


class AtZero(StrEnum):
    """What becomes of leases whose budget is used up."""

    END = "end"
    BORROW = "borrow"  # they go on, only from what nobody else wants


@dataclass(frozen=True)
class Budget(Section):
    """What may be spent in a period, in GPU-hours at the class's price; ``None`` is no bound.

    The period is a week from Monday on, or (``first`` and ``last``) a term, both days included;
    days are those of ``zone``.  Outside its term a budget bounds nothing.
    """

    ALIASES: ClassVar = {"first": "from", "last": "to"}

    gpu_hours: Annotated[Number | None, Said("What all of it may spend in a period.")] = None
    each: Annotated[Number | None, Said("What one member may spend of it.")] = None
    people: Annotated[
        tuple[tuple[str, float], ...], pairs(Number), Said("The same for some, by name.")
    ] = ()
    first: Annotated[Day | None, Said("First day of a term; without it, each week.")] = None
    last: Annotated[Day | None, Said("Last day of the term; outside it nothing is bounded.")] = None
    zone: Annotated[Zone, Said("Whose days these are.")] = "UTC"
    at_zero: Annotated[
        AtZero, Said("end: a warning, then the end. borrow: only what nobody else wants.")
    ] = AtZero.END
    contact: Annotated[
        tuple[Annotated[str, text(_address)], ...],
        LISTED,
        Said("E-mail addresses that are notified when 80% is spent."),
    ] = ()

    def of(self, user: str) -> float | None:
        """Return what one person may spend of it."""
        return dict(self.people).get(user, self.each)

    def period(self, now: datetime) -> tuple[datetime, datetime] | None:
        """Return the begin and end (UTC) of the period that an instant is in, ``None`` for none."""
        zone = ZoneInfo(self.zone)
        today = now.astimezone(zone).date()
        if self.first is not None and self.last is not None:
            first, end = self.first, self.last + timedelta(days=1)
        else:
            first = today - timedelta(days=today.weekday())
            end = first + timedelta(days=7)
        if not first <= today < end:
            return None
        return _midnight(first, zone), _midnight(end, zone)


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, time(), zone).astimezone(UTC)


@dataclass(frozen=True)
class Project(Section):
    """One project or department.

    Attributes:
        group: the hub group of its members; "" for a department.
        parent: the department it belongs to, "" for none.
        weight: how much of what is over it gets beside its siblings.
        everyone: it takes in who is in no other project.
        pools: pool -> what is its own there.
        classes: what may be charged to it; empty for every class.
        members: how all members are treated, and some of them (``people``).
    """

    name: Hidden
    group: Annotated[Line, Said("The hub group of its members; its name if empty.")] = ""
    parent: Annotated[Line, Said("The department that it belongs to: another project.")] = ""
    title: Annotated[Line, Said("What people read.")] = ""
    weight: Annotated[Number, Said("Of what is left over, beside its siblings.")] = 1.0
    everyone: Annotated[Flag, Said("Everyone who is in no other project.")] = False
    pools: Annotated[
        tuple[tuple[str, Share], ...], pairs(Share), Said("Its guarantee and limit, by pool.")
    ] = ()
    classes: Annotated[Lines, Said("What may be charged to it; empty: every class.")] = ()
    members: Annotated[Member, Said("How its members share.")] = field(default_factory=Member)
    people: Annotated[
        tuple[tuple[str, Member], ...], pairs(Member), Said("The same for some, by name.")
    ] = ()
    budget: Annotated[Budget | None, Said("What it may spend.")] = None

    @cached_property
    def _shares(self) -> Mapping[str, Share]:
        return dict(self.pools)

    @cached_property
    def _people(self) -> Mapping[str, Member]:
        return dict(self.people)

    @cached_property
    def bounds_people(self) -> bool:
        """Whether it sets a limit to any of its people."""
        return any(each.limit is not None for each in (self.members, *self._people.values()))

    def share(self, pool: str) -> Share:
        """Return what is its own of a pool."""
        return self._shares.get(pool, Share())

    def member(self, user: str) -> Member:
        """Return how one of its people is treated."""
        return self._people.get(user, self.members)


@dataclass(frozen=True, slots=True)
class PoolBounds:
    """What bounds the leases of one project in one pool.

    Attributes:
        home: the project.
        limits: project or department -> the most it may hold, from itself upwards.
        counted: whose units are counted, itself first.
        bounding: whether there is any limit, of its people's as well.
    """

    home: Project
    limits: tuple[tuple[str, int], ...]
    counted: tuple[str, ...]
    bounding: bool


@dataclass(frozen=True, kw_only=True)
class Shares(Section):
    """How past use counts.

    ``half_life`` (seconds) is after how long use counts half; ``strength`` how much it counts
    against who used much, 0 for not at all.
    """

    half_life: Annotated[Span, Said("After how long use counts half.")] = 7 * 86400.0
    strength: Annotated[Number, Said("How much past use counts; 0 is not at all.")] = 1.0


@dataclass(frozen=True)
class Projects(Shares):
    """All projects of a document, in its order, and how past use counts."""

    all: tuple[Project, ...] = ()

    @cached_property
    def use_counts(self) -> bool:
        """Whether past use decides anything."""
        return bool(self.all) and self.strength > 0 and self.half_life > 0

    @cached_property
    def by_name(self) -> Mapping[str, Project]:
        """The projects by name."""
        return {each.name: each for each in self.all}

    @cached_property
    def leaves(self) -> tuple[Project, ...]:
        """The projects that have members, in the order of the document."""
        parents = {each.parent for each in self.all}
        return tuple(each for each in self.all if each.name not in parents)

    @cached_property
    def _leaf_by_name(self) -> Mapping[str, Project]:
        return {each.name: each for each in self.leaves}

    @cached_property
    def _paths(self) -> dict[str, tuple[Project, ...]]:
        return {}

    @cached_property
    def _bounds(self) -> dict[tuple[str, str], PoolBounds]:
        return {}

    @cached_property
    def _guaranteed(self) -> dict[tuple[str, str], int]:
        return {}

    @cached_property
    def _below(self) -> Mapping[str, tuple[Project, ...]]:
        found: dict[str, list[Project]] = {}
        for each in self.all:
            if each.parent:
                found.setdefault(each.parent, []).append(each)
        return {name: tuple(those) for name, those in found.items()}

    def below(self, project: Project) -> tuple[Project, ...]:
        """Return the projects of a department, in the order of the document."""
        return self._below.get(project.name, ())

    @cached_property
    def open_to_all(self) -> Project:
        """The project of those who are in no other; without one of the document's, a nameless."""
        return next((each for each in self.leaves if each.everyone), Project(""))

    def of(self, groups: tuple[str, ...]) -> tuple[Project, ...]:
        """Return the projects that a person with these groups is in, in the document's order."""
        mine = tuple(p for p in self.leaves if not p.everyone and p.group in groups)
        return mine or (self.open_to_all,)

    def home(self, name: str) -> Project:
        """Return the project that a lease is charged to; one that is gone is everybody's."""
        return self._leaf_by_name.get(name, self.open_to_all)

    def above(self, project: Project) -> tuple[Project, ...]:
        """Return a project and its departments, itself first."""
        known = self._paths.get(project.name)
        if known is not None:
            return known
        found = [project]
        while (parent := self.by_name.get(found[-1].parent)) is not None:
            found.append(parent)
        return self._paths.setdefault(project.name, tuple(found))

    def bounds(self, name: str, pool: str) -> PoolBounds:
        """Return what bounds the leases in one pool that are charged to the project of a name."""
        known = self._bounds.get((name, pool))
        if known is not None:
            return known
        home = self.home(name)
        above = [(each.name, each.share(pool).limit) for each in self.above(home)]
        limits = tuple([(each, limit) for each, limit in above if limit is not None])
        # A department's units matter where they are bounded, a project's to who keeps to its quota.
        counted = tuple([x for n, (x, limit) in enumerate(above) if not n or limit is not None])
        found = PoolBounds(home, limits, counted, bool(limits) or home.bounds_people)
        return self._bounds.setdefault((name, pool), found)

    def guarantee(self, project: Project, pool: str) -> int:
        """Return what is guaranteed of a pool: a department has at least what its projects have."""
        key = project.name, pool
        if key not in self._guaranteed:
            below = sum(self.guarantee(each, pool) for each in self.below(project))
            self._guaranteed[key] = max(project.share(pool).guarantee, below)
        return self._guaranteed[key]

    def guarantees(self, pool: str) -> dict[str, int]:
        """Return what is guaranteed of a pool, by hub group, departments' own under their names."""
        found: dict[str, int] = {}
        for each in self.all:
            below = sum(self.guarantee(x, pool) for x in self.below(each))
            own = self.guarantee(each, pool) - below
            if own > 0:
                key = each.group or f"project {each.name}"
                found[key] = found.get(key, 0) + own
        return found
