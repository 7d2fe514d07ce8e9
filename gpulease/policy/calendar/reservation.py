"""The nouns of reservations, as frozen dataclasses; instants are UTC, durations seconds.

The store keeps ``Reservation`` as JSON values: a member that is added here needs a default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Annotated

from gpulease.policy.calendar.occurrences import Calendar, Closure, Occurrence
from gpulease.policy.forms import (
    As,
    Image,
    Lines,
    Number,
    Section,
    Span,
    Whole,
    duration,
    pairs,
)
from gpulease.texts import Said


@dataclass(frozen=True)
class GroupTerms(Section):
    """What one group may reserve where it is not as for all; ``None`` is as for all.

    ``image`` is that of the pods on its seats; "" is as without a seat.
    """

    classes: Annotated[Lines | None, Said("Which classes it may reserve.")] = None
    gpu_hours: Annotated[Number | None, Said("GPU-hours that it may have ahead.")] = None
    windows: Annotated[Whole | None, Said("Sessions that it may have ahead.")] = None
    advance: Annotated[Span | None, Said("How early it may reserve.")] = None
    managers: Annotated[Lines, Said("People who may reserve for the group.")] = ()
    image: Annotated[Image, Said("Image of the pods on the group's seats.")] = ""


@dataclass(frozen=True)
class IdleRange(Section):
    """Between which idle time-outs (seconds) a window may choose."""

    least: Annotated[float, duration(1e-3), Said("The shortest.")] = 60.0
    most: Annotated[float, duration(1e-3), Said("The longest.")] = 3600.0


def _read_closures(named: Mapping[str, Closure]) -> tuple[Closure, ...]:
    return tuple(replace(each, title=each.title or name) for name, each in named.items())


def _write_closures(all_: tuple[Closure, ...]) -> dict[str, Closure]:
    """Return closures under keys of our own: their titles may be alike."""
    return {f"closure-{n}": each for n, each in enumerate(all_, 1)}


@dataclass(frozen=True)
class ReservationTerms(Section):
    """What a site allows of reservations: the document's section ``reservations``.

    ``classes`` is what may be reserved, empty for every class; ``gpu_hours`` and ``windows`` bound
    what a group has ahead of it.
    """

    gpu_hours: Annotated[Number, Said("GPU-hours that one group may have ahead.")] = 1000.0
    windows: Annotated[Whole, Said("Sessions that one group may have ahead.")] = 100
    advance: Annotated[
        Span, Said("How early a reservation may be made, before its first session.")
    ] = 180 * 86400.0
    longest: Annotated[Span, Said("The longest session.")] = 86400.0
    lead: Annotated[Span, Said("How long before a session its GPUs are kept free.")] = 120.0
    grace: Annotated[Span, Said("How long after the start seats that nobody claimed are lent.")] = (
        600.0
    )
    extension: Annotated[Span, Said("The most by which an open session is extended.")] = 3600.0
    extra_time: Annotated[Span, Said("The most extra time of one person.")] = 7200.0
    idle: Annotated[IdleRange, Said("Bounds of a session's own idle time-out.")] = field(
        default_factory=IdleRange
    )
    classes: Annotated[Lines, Said("Which classes may be reserved; empty: every one.")] = ()
    closures: Annotated[
        tuple[Closure, ...],
        As(dict[str, Closure], _read_closures, _write_closures),
        Said("Days on which the institution is closed, by name."),
    ] = ()
    groups: Annotated[
        tuple[tuple[str, GroupTerms], ...],
        pairs(GroupTerms),
        Said("What differs for one hub group, by its name."),
    ] = ()

    def of_group(self, group: str) -> GroupTerms:
        """Return the terms of one group, with everything filled in."""
        own = dict(self.groups).get(group, GroupTerms())
        return GroupTerms(
            classes=self.classes if own.classes is None else own.classes,
            gpu_hours=self.gpu_hours if own.gpu_hours is None else own.gpu_hours,
            windows=self.windows if own.windows is None else own.windows,
            advance=self.advance if own.advance is None else own.advance,
            managers=own.managers,
            image=own.image,
        )

    @property
    def images(self) -> tuple[str, ...]:
        """The images that groups have of their own."""
        return tuple(sorted({terms.image for _, terms in self.groups if terms.image}))

    def managed_by(self, user: str) -> frozenset[str]:
        """Return the groups that a person manages: teaching assistants beside the instructors."""
        return frozenset(group for group, terms in self.groups if user in terms.managers)


@dataclass(frozen=True)
class Reservation:
    """N of a class kept for a hub group in the windows of a calendar.

    Attributes:
        name: what its owner calls it; one of its kind in the group.
        seats: units of the class that are kept.
        named: who may claim a seat; empty for every member, first come.
        managers: who may change it beside its owner and the group's instructors.
        idle: the windows' own idle time-out; ``None`` is the class's.
        exam: no idle reclaim, no Keep, nothing is lent.
        extra_time: person -> seconds after the end of a window.
        lead: from so long before a window on its GPUs are kept free; ``None`` is the site's.
        grace: so long after the start seats that nobody claimed are lent; ``None`` is the site's.
        contact: addresses that are notified of what happens to it.
        occurrences: its windows as they were expanded last.
        closed: the times that a closure left out then, on the wall clock, each with its title.
    """

    id: str
    name: str
    group: str
    gpu_class: str
    seats: int
    calendar: Calendar
    owner: str
    created: datetime
    title: str = ""
    version: int = 1
    seats_per_person: int = 1
    named: tuple[str, ...] = ()
    managers: tuple[str, ...] = ()
    idle: float | None = None
    exam: bool = False
    extra_time: tuple[tuple[str, float], ...] = ()
    lead: float | None = None
    grace: float | None = None
    contact: tuple[str, ...] = ()
    cancelled: bool = False
    occurrences: tuple[Occurrence, ...] = ()
    closed: tuple[tuple[datetime, str], ...] = ()

    @property
    def over(self) -> datetime:
        """When the last person of the last window must have gone."""
        longest = timedelta(seconds=max((seconds for _, seconds in self.extra_time), default=0.0))
        return max((each.end + longest for each in self.occurrences), default=self.created)

    def entitles(self, user: str, groups: Iterable[str]) -> bool:
        """Whether a person may claim a seat of it."""
        return user in self.named if self.named else self.group in groups


@dataclass(frozen=True)
class Window:
    """One window of a reservation, with the site's terms filled in."""

    of: Reservation
    original: datetime
    start: datetime
    end: datetime
    lead: float
    grace: float
    pool: str = field(default="", compare=False)

    @cached_property
    def key(self) -> str:
        """What names the window in records: the reservation and when the rule begins it."""
        return f"{self.of.id}@{self.original:%Y%m%dT%H%M}"

    @cached_property
    def order(self) -> tuple[datetime, str]:
        """Sort key: the sooner before the later, whatever the order of a listing."""
        return self.start, self.key

    @cached_property
    def hold_from(self) -> datetime:
        """From when on its GPUs are kept free."""
        return self.start - timedelta(seconds=self.lead)

    @property
    def lends_from(self) -> datetime | None:
        """From when on seats that nobody claimed are lent; ``None`` is never."""
        return None if self.of.exam else self.start + timedelta(seconds=self.grace)

    @cached_property
    def last_end(self) -> datetime:
        """When the last person with extra time must go."""
        longest = max((seconds for _, seconds in self.of.extra_time), default=0.0)
        return self.end + timedelta(seconds=longest)

    def end_for(self, user: str) -> datetime:
        """Return when a person's seat ends."""
        if not self.of.extra_time:
            return self.end
        return self.end + timedelta(seconds=dict(self.of.extra_time).get(user, 0.0))

    def seats_at(self, at: datetime) -> int:
        """Return the seats that are kept at an instant: after the end those with extra time."""
        if not self.start <= at < self.last_end:
            return 0
        if at < self.end:
            return self.of.seats
        longer = sum(self.end + timedelta(seconds=more) > at for _, more in self.of.extra_time)
        return min(self.of.seats, longer * self.of.seats_per_person)

    def entitles(self, user: str, groups: Iterable[str]) -> bool:
        """Whether a person may claim a seat."""
        return self.of.entitles(user, groups)


def windows_of(reservation: Reservation, terms: ReservationTerms, pool: str = "") -> list[Window]:
    """Return every window of a reservation, in order."""
    if reservation.cancelled:
        return []
    lead = terms.lead if reservation.lead is None else reservation.lead
    grace = terms.grace if reservation.grace is None else reservation.grace
    return [
        Window(reservation, each.original, each.start, each.end, lead, grace, pool)
        for each in reservation.occurrences
    ]
