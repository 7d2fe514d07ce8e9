"""The shapes of what the service answers about reservations."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from gpulease.service.schemas.shapes import Problem


class WindowView(TypedDict):
    """One window: its instants, its wall clock, and who sits there while it is held."""

    at: str
    start: str
    end: str
    end_for_you: str  # with the reader's extra time
    local_start: str
    local_end: str
    state: Literal["coming", "lead", "open", "over"]
    seats: int
    reserved: int
    claimed: int
    first_gpus: str | None


class Skipped(TypedDict):
    """A date that a calendar leaves out."""

    start: str
    why: str


class MovedView(TypedDict):
    """One window that is not as the rule has it."""

    at: str
    start: NotRequired[str]
    end: NotRequired[str]
    cancelled: NotRequired[bool]


class ShortView(TypedDict):
    """How the first window to come has too few seats, and what would help."""

    sentence: str
    next_step: str
    start: str
    seats: int
    people: int  # who may claim one; 0 where seats are missing that were reserved
    offer: dict[str, Any]


class ClosureView(TypedDict):
    """Days on which nothing is open, the last one included."""

    first: str
    last: str
    title: str


class ReservationView(TypedDict):
    """A reservation; what concerns people by name is for those who manage it."""

    id: str
    version: int
    name: str
    group: str
    title: str
    gpu_class: str
    seats: int
    start: str
    end: str
    zone: str
    repeat: str
    also: list[str]
    without: list[str]
    changed: list[MovedView]
    seats_per_person: int
    exam: bool
    named: NotRequired[list[str]]
    managers: NotRequired[list[str]]
    contact: NotRequired[list[str]]
    idle: NotRequired[float | None]
    lead: NotRequired[float | None]
    grace: NotRequired[float | None]
    extra_time: NotRequired[dict[str, float]]
    image: str  # of the pods on its seats, where the course has its own
    owner: str
    cancelled: bool
    manages: bool
    mine: bool  # the reader may have one of its seats
    sentence: str
    windows: list[WindowView]
    windows_ahead: int
    gpu_hours_ahead: float
    skipped: list[Skipped]
    short: NotRequired[ShortView | None]
    cut: NotRequired[bool]
    notes: NotRequired[list[str]]


class ReservationChecked(TypedDict):
    """Whether one reservation fits, and what is in its way."""

    fits: bool
    problem: Problem | None
    reservation: ReservationView


class ReservationsBrought(TypedDict):
    """Whether all of a calendar's reservations fit, and whether they were made."""

    done: bool
    fits: bool
    left_out: list[str]
    items: list[ReservationChecked]


class ReservationsChecked(TypedDict):
    """Whether all of them fit, one after the other."""

    fits: bool
    items: list[ReservationChecked]
