"""Reservations as each person sees them: the shapes of the answers, and who may change what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Literal, NotRequired, cast

from typing_extensions import TypedDict

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.occurrences import Expanded, wall_clock, wall_text, zone_of
from gpulease.policy.calendar.reservation import Reservation, Window
from gpulease.policy.model import PolicyDocument, Snapshot
from gpulease.policy.reservations import booking
from gpulease.policy.reservations.departures import first_gpus
from gpulease.policy.reservations.reports import STEP, Shortage, sentence_of
from gpulease.policy.reservations.seats import effective, in_hold, seating
from gpulease.protocol.hub_names import split
from gpulease.service.hubs.auth import Asker
from gpulease.service.schemas.reservation_bodies import ChangeBody, ReservationBody, body_of
from gpulease.service.schemas.shapes import Problem
from gpulease.sizes import say_moment
from gpulease.texts import Text, counted, joined


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


class Rights:
    """Answers for the policy in force.

    Args:
        policy: gives that document.
    """

    def __init__(self, policy: Callable[[], PolicyDocument]) -> None:
        self._policy = policy

    def may_see(self, asker: Asker, reservation: Reservation) -> bool:
        """Tell whether somebody manages a reservation, or may claim its seats."""
        own = reservation.group in asker.groups or asker.name in reservation.named
        return self.may_manage(asker, reservation) or own

    def may_manage(self, asker: Asker, reservation: Reservation) -> bool:
        """Tell whether somebody may change a reservation."""
        return asker.name in reservation.managers or self.may_reserve(asker, reservation.group)

    def may_reserve(self, asker: Asker, group: str) -> bool:
        """Tell whether somebody may reserve for a group: its instructors, managers and admins."""
        managed = self._policy().reservations.managed_by(asker.name)
        return asker.teaches(group) or asker.admin or group in managed

    def allow(self, asker: Asker, body: ReservationBody, before: Reservation | None = None) -> None:
        """Refuse who may not reserve for a group, and people whom they may not name.

        Args:
            asker: who reserves.
            body: what.
            before: the reservation of that name that is there already.

        Raises:
            GPULeaseError: ``may_not_reserve``, ``not_your_hub`` (403).
        """
        if not self.may_reserve(asker, body.group):
            raise may_not(body.group)
        self.keep_to_their_hub(asker, body, before)

    def keep_to_their_hub(self, asker: Asker, body: ChangeBody, before: Reservation | None) -> None:
        """Refuse people of another hub, but those whom the reservation names already.

        Admins may name anybody.

        Raises:
            GPULeaseError: ``not_your_hub`` (403).
        """
        if asker.admin or not asker.names.further:
            return
        kept = set[str]()
        if before is not None and self.may_manage(asker, before):
            kept = {*before.named, *before.managers, *dict(before.extra_time)}
        told = {*(body.named or ()), *(body.managers or ()), *(body.extra_time or ())}
        foreign = sorted(each for each in told - kept if split(each)[0] != asker.names.hub)
        if foreign:
            own = f"{asker.names.hub}/NAME" if asker.names.hub else "their names alone"
            raise GPULeaseError(
                "not_your_hub",
                f"{foreign[0]} is nobody of your hub.",
                next_step=f"Name people of your hub: {own}.",
                numbers={"user": foreign[0]},
            )


def may_not(group: str) -> GPULeaseError:
    """Return the refusal of who may not reserve for a group."""
    return GPULeaseError(
        "may_not_reserve",
        f"You may not reserve GPUs for {group}.",
        next_step=f"Ask an admin to name you an instructor of {group}.",
        numbers={"group": group},
    )


#: Windows that a list shows of each reservation; one reservation alone shows all.
LISTED = 5


def reservation_view(
    reservation: Reservation,
    snapshot: Snapshot,
    *,
    reader: Asker,
    manages: bool,
    windows: int | None = None,
    since: datetime | None = None,
    expanded: Expanded | None = None,
    short: Shortage | None = None,
    notes: Sequence[str] = (),
) -> ReservationView:
    """Return a reservation; people's names, time-outs and addresses are for those who manage it.

    Args:
        reservation: with its occurrences.
        snapshot: what is known now.
        reader: who reads it.
        manages: whether the reader may change it.
        windows: how many windows that are not over; ``None`` for all.
        since: all windows that end after it instead, be they over.
        expanded: what its calendar gave, where that was just worked out.
        short: what it lacks, where that was just worked out.
        notes: what may not be meant, where that was just worked out.
    """
    every = booking.windows(snapshot.policy, reservation)
    ahead = [w for w in every if w.last_end > snapshot.now]
    seen = body_of(reservation)
    if not manages:
        seen = {k: v for k, v in seen.items() if k not in _PRIVATE}
    shown = ahead[:windows] if since is None else [w for w in every if w.last_end > since]
    found: dict[str, Any] = {
        "id": reservation.id,
        "version": reservation.version,
        **seen,
        "image": snapshot.policy.reservations.of_group(reservation.group).image,
        "owner": reservation.owner,
        "cancelled": reservation.cancelled,
        "manages": manages,
        "mine": reservation.entitles(reader.name, reader.groups),
        "sentence": _sentence(reservation, ahead, snapshot),
        "windows": [window_view(w, snapshot, reader.name) for w in shown],
        "windows_ahead": len(ahead),
        "gpu_hours_ahead": round(booking.gpu_hours(ahead), 2),
        "skipped": [{"start": wall_text(at), "why": why} for at, why in reservation.closed],
    }
    if expanded is not None:
        found["cut"] = expanded.cut
        found["short"] = short.to_json() if short is not None else None
        found["notes"] = list(notes)
    return cast("ReservationView", found)  # most members are the body's, where they stand once


_PRIVATE = frozenset({"named", "managers", "contact", "extra_time", "idle", "lead", "grace"})


def window_view(window: Window, snapshot: Snapshot, reader: str) -> WindowView:
    """Return one window: its instants, its wall clock, and who sits there while it is held."""
    zone, now = zone_of(window.of.calendar.zone), snapshot.now
    seats = _seats(window, snapshot)
    held = window.hold_from <= now < window.last_end
    left = seating(snapshot).left.get(window.key, seats) if held else seats
    return {
        "at": wall_text(window.original),
        "start": window.start.isoformat(),
        "end": window.end.isoformat(),
        "end_for_you": window.end_for(reader).isoformat(),
        "local_start": wall_clock(window.start, zone).isoformat(timespec="minutes"),
        "local_end": wall_clock(window.end, zone).isoformat(timespec="minutes"),
        "state": _state(window, now),
        "seats": seats,
        "reserved": window.of.seats,
        "claimed": seats - left if held else 0,
        "first_gpus": first_gpus(snapshot, window).isoformat() if held else None,
    }


def _seats(window: Window, snapshot: Snapshot) -> int:
    """Return the seats that a window has by what is there now."""
    if window.of.gpu_class not in snapshot.policy.by_name:
        return 0
    # Of a window that the planner does not look at yet, nobody knows what will be lost by then.
    planned = snapshot.capacity_known and any(w.key == window.key for w in snapshot.windows)
    return effective(snapshot, window, snapshot.now) if planned else window.of.seats


def _state(window: Window, now: datetime) -> Literal["coming", "lead", "open", "over"]:
    if now >= window.last_end:
        return "over"
    if now >= window.start:
        return "open"
    return "lead" if now >= window.hold_from else "coming"


def _sentence(reservation: Reservation, ahead: list[Window], snapshot: Snapshot) -> str:
    """Say what a member can count on; seats are for whoever comes first, unless they are named."""
    if reservation.cancelled:
        return Text("It was cancelled.")
    if not ahead:
        return Text("All of its sessions are over.")
    if reservation.gpu_class not in snapshot.policy.by_name:
        return joined(sentence_of(reservation), STEP)
    window = ahead[0]
    zone = zone_of(reservation.calendar.zone)
    start, end = wall_clock(window.start, zone), wall_clock(window.end, zone)
    people = len(reservation.named)
    whom = (
        counted("{n} person named", "{n} people named", people)
        if people
        else Text("the members of {group}", group=reservation.group)
    )
    until = {"end": f"{end:%H:%M}", "zone": reservation.calendar.zone}
    when = Text("{start} to {end} ({zone})", start=say_moment(start), **until)
    if window in in_hold([window], snapshot.now) and snapshot.now >= window.start:
        when = Text("now, until {end} ({zone})", **until)
    return counted(
        "{n} seat of {gpu_class} for {whom}: {when}.",
        "{n} seats of {gpu_class} for {whom}: {when}.",
        _seats(window, snapshot),
        gpu_class=reservation.gpu_class,
        whom=whom,
        when=when,
    )
