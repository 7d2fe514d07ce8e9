"""What a window of a reservation means for one person's lease or request, in words."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from gpulease.policy import budgets
from gpulease.policy.calendar.occurrences import wall_clock
from gpulease.policy.calendar.reservation import Window
from gpulease.policy.model import Lease, LeaseState, Snapshot
from gpulease.policy.reservations.departures import (
    OVER,
    REASONS,
    Departure,
    departures,
    first_gpus,
    on_loan,
)
from gpulease.policy.reservations.seats import claimable, fits, in_hold, seating, window_of
from gpulease.policy.units import say_moment
from gpulease.texts import Text, counted, instant


def about(snapshot: Snapshot, lease: Lease) -> str:
    """Return the sentence that a lease's holder reads about reservations, ``""`` for none."""
    if not snapshot.windows or lease.state is LeaseState.ENDED:
        return ""
    if lease.state is LeaseState.QUEUED:
        return _waiting(snapshot, lease)
    found = departures(snapshot).get(lease.id)
    leaving = lease.state in (LeaseState.WARNED, LeaseState.DRAINING)
    if found is None or (leaving and lease.reason not in REASONS):
        return _seat(snapshot, lease)
    if found.reason == OVER:
        return _over(found) if leaving else _seat(snapshot, lease)
    reserved = {"group": found.window.of.group, "start": instant(found.window.start)}
    if leaving:
        return Text("It is reserved for {group} from {start}.", **reserved)
    return Text(
        "It is reserved for {group} from {start}. You must give it back by {time}.",
        **reserved,
        time=instant(found.until),
    )


def _over(found: Departure) -> Text:
    ends = {"lab": _name(found.window), "time": instant(found.until)}
    if found.window.of.exam:
        return Text("{lab} ends at {time}.", **ends)
    return Text("{lab} ends at {time}, and somebody needs this GPU then.", **ends)


def _seat(snapshot: Snapshot, lease: Lease) -> str:
    window = window_of(snapshot, lease)
    if window is None:
        return _lent(snapshot, lease)
    end = instant(window.end_for(lease.user))
    return Text("You have a seat in {lab} until {time}.", lab=_name(window), time=end)


def _lent(snapshot: Snapshot, lease: Lease) -> str:
    window = on_loan(snapshot).get(lease.id)
    if window is None or lease.state is not LeaseState.ACTIVE:
        return ""
    return Text(
        "Seats of {lab} that nobody took are lent until {end}: a member of {group} who comes late "
        "is served first, and may need this GPU.",
        lab=_name(window),
        end=instant(window.end),
        group=window.of.group,
    )


def _waiting(snapshot: Snapshot, lease: Lease) -> str:
    window = claimable(snapshot, lease) or _next(snapshot, lease)
    if window is not None:
        seats = seating(snapshot).seats.get(window.key, window.of.seats)
        lab = {"lab": _name(window), "end": instant(window.end)}
        if snapshot.now >= window.start:
            return counted(
                "{lab} is on until {end}, with {n} seat.",
                "{lab} is on until {end}, with {n} seats.",
                seats,
                **lab,
            )
        return counted(
            "{lab} is from {start} to {end}, with {n} seat; first GPUs at {first}.",
            "{lab} is from {start} to {end}, with {n} seats; first GPUs at {first}.",
            seats,
            **lab,
            start=instant(window.start),
            first=instant(first_gpus(snapshot, window)),
        )
    if lease.reason != "reserved":
        return ""
    theirs = [*in_hold(snapshot.windows, snapshot.now), *_coming(snapshot)]
    for window in theirs:
        if window.of.gpu_class == lease.gpu_class:
            return Text(
                "They are reserved for {group} from {start} to {end}.",
                group=window.of.group,
                start=instant(window.start),
                end=instant(window.end),
            )
    return ""


def _next(snapshot: Snapshot, lease: Lease) -> Window | None:
    return next((w for w in _coming(snapshot) if fits(w, lease, w.start)), None)


def _coming(snapshot: Snapshot) -> list[Window]:
    ahead = (w for w in snapshot.windows if w.hold_from > snapshot.now)
    return sorted(ahead, key=lambda w: w.order)


def _name(window: Window) -> str:
    return f"“{window.of.title or window.of.name}”"


def of_hours(snapshot: Snapshot, lease: Lease) -> str:
    """Say when a request that waits for GPU-hours gets new ones, and of a lease that goes on
    without any that it borrows; ``""`` for others.
    """
    if lease.state is LeaseState.ACTIVE and lease.id in budgets.exhausted(snapshot):
        return Text(
            "The GPU-hours of project {project} are used up, or yours in it: this GPU is yours "
            "while nobody else wants it.",
            project=lease.project,
        )
    if lease.state is not LeaseState.QUEUED or lease.reason != "no_budget":
        return ""
    left = budgets.of_lease(snapshot, lease)
    budget = snapshot.policy.projects.home(lease.project).budget
    if left is None or budget is None:
        return ""
    at = say_moment(wall_clock(left.until, ZoneInfo(budget.zone)))
    return Text("Its next period begins on {at} ({zone}).", at=at, zone=budget.zone)
