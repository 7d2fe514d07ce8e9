"""What a window of a reservation means for one person's lease or request, in words.

Times are those of the reservation's own zone: what stands in the timetable.
"""

from __future__ import annotations

from datetime import datetime

from gpulease.policy.calendar import wall_clock, zone_of
from gpulease.policy.calendar.reservation import Window
from gpulease.policy.model import Lease, LeaseState, Snapshot
from gpulease.policy.reservations.departures import OVER, REASONS, departures, first_gpus
from gpulease.policy.reservations.seats import claimable, fits, in_hold, seating, window_of
from gpulease.policy.units import say_count


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
    if found.reason == OVER and not leaving:
        return _seat(snapshot, lease)
    if found.reason == OVER:
        end = _clock(found.until, found.window)
        why = "" if found.window.of.exam else ", and somebody needs this GPU then"
        return f"{_name(found.window)} ends at {end}{why}."
    by = "" if leaving else f" You must leave by {_clock(found.until, found.window)}."
    start = _clock(found.window.start, found.window)
    return f"It is reserved for {found.window.of.group} from {start}.{by}"


def _seat(snapshot: Snapshot, lease: Lease) -> str:
    window = window_of(snapshot, lease)
    if window is None:
        return ""
    end = _clock(window.end_for(lease.user), window)
    return f"You have a seat in {_name(window)} until {end}."


def _waiting(snapshot: Snapshot, lease: Lease) -> str:
    window = claimable(snapshot, lease) or _next(snapshot, lease)
    if window is not None:
        seats = seating(snapshot).seats.get(window.key, window.of.seats)
        many = say_count(seats, "seat", "seats")
        if snapshot.now >= window.start:
            return f"{_name(window)} is on until {_clock(window.end, window)}, with {many}."
        first = _clock(first_gpus(snapshot, window), window)
        span = f"from {_clock(window.start, window)} to {_clock(window.end, window)}"
        return f"{_name(window)} is {span}, with {many}; first GPUs at {first}."
    if lease.reason != "reserved":
        return ""
    theirs = [*in_hold(snapshot.windows, snapshot.now), *_coming(snapshot)]
    for window in theirs:
        if window.of.gpu_class == lease.gpu_class:
            span = f"from {_clock(window.start, window)} to {_clock(window.end, window)}"
            return f"They are reserved for {window.of.group} {span}."
    return ""


def _next(snapshot: Snapshot, lease: Lease) -> Window | None:
    return next((w for w in _coming(snapshot) if fits(w, lease, w.start)), None)


def _coming(snapshot: Snapshot) -> list[Window]:
    ahead = (w for w in snapshot.windows if w.hold_from > snapshot.now)
    return sorted(ahead, key=lambda w: w.order)


def _name(window: Window) -> str:
    return f"“{window.of.title or window.of.name}”"


def _clock(at: datetime, window: Window) -> str:
    return f"{wall_clock(at, zone_of(window.of.calendar.zone)):%H:%M}"
