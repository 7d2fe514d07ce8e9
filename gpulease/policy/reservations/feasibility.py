"""Whether windows fit beside those that are booked, and when they would.

The rule: at every instant of a window, what is reserved of its pool and the guarantees of everybody
else are at most the pool's firm capacity without its spare.  The reserving group's own guarantee
covers its reservation first.  Lead is no part of it: back-to-back labs fit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from gpulease.policy.calendar.occurrences import closure_of, wall_clock, zone_of
from gpulease.policy.calendar.reservation import Reservation, Window
from gpulease.policy.model import PolicyDocument
from gpulease.sizes import say_moment
from gpulease.texts import Text, counted, joined

#: How far a window is moved when one is looked for that fits.
SEARCH = timedelta(days=14)
#: Windows are offered at whole quarters of an hour.
STEP = timedelta(minutes=15)
#: So many moves are tried, the smallest first.
TRIED = 400


@dataclass(frozen=True)
class Pool:
    """What reservations may count on: ``firm`` devices that are there, never spot ones.

    ``guarantees``: group -> units of this pool that are always its own.
    """

    firm: int
    spare: int = 0
    guarantees: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Conflict:
    """Where a window does not fit: it lacks ``missing`` of its seats from ``at`` on.

    ``others`` are the windows that have what it lacks.
    """

    window: Window
    at: datetime
    missing: int
    others: tuple[Window, ...]


def reserved_at(at: datetime, windows: Iterable[Window], guarantees: Mapping[str, int]) -> int:
    """Return the units that are spoken for at an instant: seats, and what they do not cover."""
    seats: dict[str, int] = {}
    for window in windows:
        seats[window.of.group] = seats.get(window.of.group, 0) + window.seats_at(at)
    groups = seats.keys() | guarantees.keys()
    return sum(max(seats.get(group, 0), guarantees.get(group, 0)) for group in groups)


def conflicts(
    wanted: Sequence[Window], booked: Sequence[Window], pools: Mapping[str, Pool]
) -> list[Conflict]:
    """Return the first conflict of each wanted window that does not fit, in order.

    ``booked`` holds no window of the reservation itself.
    """
    found = []
    near = _Neighbours([*booked, *wanted])
    for window in sorted(wanted, key=lambda each: each.order):
        found += _first(window, near.of(window), pools.get(window.pool, Pool(0)))
    return found


class _Neighbours:
    """Finds what overlaps a window without going through all of hundreds."""

    def __init__(self, windows: Iterable[Window]) -> None:
        self._windows = sorted(windows, key=lambda each: each.order)
        self._starts = [each.start for each in self._windows]
        lengths = (each.last_end - each.start for each in self._windows)
        self._longest = max(lengths, default=timedelta(0))

    def of(self, window: Window) -> list[Window]:
        first = bisect_left(self._starts, window.start - self._longest)
        last = bisect_left(self._starts, window.last_end)
        return [
            each
            for each in self._windows[first:last]
            if each.pool == window.pool and each.last_end > window.start
        ]


def _first(window: Window, there: Sequence[Window], pool: Pool) -> list[Conflict]:
    for at in _instants(window, there):
        over = reserved_at(at, there, pool.guarantees) - (pool.firm - pool.spare)
        if over > 0 and window.seats_at(at) > 0:
            others = tuple(w for w in there if w.key != window.key and w.seats_at(at) > 0)
            return [Conflict(window, at, min(over, window.seats_at(at)), others)]
    return []


def _instants(window: Window, there: Iterable[Window]) -> list[datetime]:
    """Return the instants of a window at which more may be reserved than before."""
    starts = {max(each.start, window.start) for each in there}
    # A person's extra time reaches beyond the end, when another's window may have begun.
    return sorted(at for at in starts if window.start <= at < window.last_end)


def most_seats(
    wanted: Sequence[Window], booked: Sequence[Window], pools: Mapping[str, Pool]
) -> int:
    """Return how many seats fit in every one of these windows of one reservation, 0 for none."""
    low, high = 0, max((window.of.seats for window in wanted), default=0)
    while low < high:
        middle = (low + high + 1) // 2
        tried = [replace(w, of=replace(w.of, seats=middle)) for w in wanted]
        if conflicts(tried, booked, pools):
            high = middle - 1
        else:
            low = middle
    return low


def nearest(
    wanted: Sequence[Window],
    booked: Sequence[Window],
    pools: Mapping[str, Pool],
    earliest: datetime,
    allowed: Callable[[Window], bool] = lambda _: True,
) -> timedelta | None:
    """Return by how much a whole series has to be moved to fit, ``None`` for nothing within reach.

    The smallest move wins, of two equal ones the later; nothing begins before ``earliest``, and
    every window is one that is ``allowed``.  A window fits first where another one ends, or ends
    where another one begins, so these moves are tried beside whole days; what is looked at is the
    first window that does not fit.
    """
    if not wanted:
        return None
    blocked = conflicts(wanted, booked, pools)
    around = blocked[0].window if blocked else wanted[0]
    moves = {timedelta(days=n) for n in range(-SEARCH.days, SEARCH.days + 1) if n}
    for other in booked:
        if other.pool == around.pool and abs(other.start - around.start) <= SEARCH:
            moves |= _touching(around, other)
    first = min(window.start for window in wanted)
    inside = [m for m in moves if abs(m) <= SEARCH and first + m >= earliest]
    for move in sorted(inside, key=lambda each: (abs(each), -each))[:TRIED]:
        moved = [replace(w, start=w.start + move, end=w.end + move) for w in wanted]
        if all(map(allowed, moved)) and not conflicts(moved, booked, pools):
            return move
    return None


def _touching(window: Window, other: Window) -> set[timedelta]:
    """Return the moves, in whole steps, after which the two touch where seats come or go."""
    mine, theirs = _edges(window), _edges(other)
    gaps = [there - here for here in mine for there in theirs]
    return {STEP * n for gap in gaps for n in (gap // STEP, -(-gap // STEP)) if n}


def _edges(window: Window) -> set[datetime]:
    longer = {window.end + timedelta(seconds=more) for _, more in window.of.extra_time}
    return {window.start, window.end, *longer}


def shortened(seats: Mapping[str, int], capacity: int) -> dict[str, int]:
    """Return what each window gets when there is less than all have reserved: pro rata.

    By Webster's divisor method (odd divisors), which is house monotone: a device that comes back
    never takes a seat from anybody.  Ties go by name.  Nobody gets more than they reserved.
    """
    if sum(seats.values()) <= capacity:
        return dict(seats)
    given = dict.fromkeys(seats, 0)
    for _ in range(max(0, capacity)):
        best = min(seats, key=lambda key: (-seats[key] / (2 * given[key] + 1), key))
        given[best] += 1
    return given


@dataclass(frozen=True)
class Offer:
    """What would fit instead of what was asked for; every member may be missing."""

    nearest: datetime | None = None  # the start of the first window, wall clock
    seats: int = 0  # so many fit at the time that was asked for
    classes: tuple[str, ...] = ()  # these have room then
    split: datetime | None = None  # half the seats, and a second session at this time

    def to_json(self) -> dict[str, Any]:
        """Return the members as JSON values."""
        return {
            "nearest": _minutes(self.nearest),
            "seats": self.seats,
            "classes": list(self.classes),
            "split": _minutes(self.split),
        }


def allowed_classes(policy: PolicyDocument, group: str) -> tuple[str, ...]:
    """Return the names of the classes that a group may reserve.

    What a queue of the cluster's admits cannot be promised to anybody, and a seat is a whole GPU.
    """
    allowed = policy.reservations.of_group(group).classes
    ours = [c.name for c in policy.classes if c.queue is None and not c.parts]
    return tuple(name for name in ours if not allowed or name in allowed)


def opened_by(wanted: Reservation, policy: PolicyDocument) -> Callable[[Window], bool]:
    """Return what tells whether a window lies on days on which the institution is open."""
    closures, zone = policy.reservations.closures, zone_of(wanted.calendar.zone)

    def is_open(window: Window) -> bool:
        ends = wall_clock(window.start, zone), wall_clock(window.end, zone)
        return closure_of(*ends, closures) is None

    return is_open


def offer_for(
    wanted: Reservation,
    ahead: Sequence[Window],
    booked: Sequence[Window],
    *,
    policy: PolicyDocument,
    pools: Mapping[str, Pool],
    now: datetime,
) -> Offer:
    """Return what would fit in place of windows that do not; ``booked`` are all others."""
    zone = zone_of(wanted.calendar.zone)
    opened = opened_by(wanted, policy)
    move = nearest(ahead, booked, pools, now, opened)
    classes = [
        c.name
        for c in policy.classes
        if c.name != wanted.gpu_class
        and c.name in allowed_classes(policy, wanted.group)
        and not conflicts([replace(w, pool=c.pool) for w in ahead], booked, pools)
    ]
    half = [replace(w, of=replace(w.of, seats=-(-w.of.seats // 2))) for w in ahead]
    later = [replace(w, original=w.end, start=w.end, end=w.end + (w.end - w.start)) for w in half]
    splits = wanted.seats > 1 and all(map(opened, later))
    splits = splits and not conflicts([*half, *later], booked, pools)
    return Offer(
        nearest=wall_clock(ahead[0].start + move, zone) if move is not None else None,
        seats=most_seats(ahead, booked, pools),
        classes=tuple(classes),
        split=wall_clock(later[0].start, zone) if splits else None,
    )


def steps_of(
    offer: Offer,
    seats: int,
    nothing: str = Text("Ask an admin: nothing fits within two weeks."),
) -> str:
    """Return in sentences what a person who needs ``seats`` can do; ``nothing`` if nothing fits."""
    found: list[str] = []
    if offer.nearest is not None:
        start = say_moment(offer.nearest)
        found.append(Text("The nearest time that fits begins at {start}.", start=start))
    if offer.seats:
        found.append(seats_fit(offer.seats))
    if offer.classes:
        found.append(Text("The class {classes} has room then.", classes=" / ".join(offer.classes)))
    if offer.split is not None:
        half = {"n": -(-seats // 2), "time": f"{offer.split:%H:%M}"}
        found.append(
            Text("Or split it: {n} of the seats then and {n} from {time}.", **half)
            if found
            else Text("Split it: {n} of the seats then and {n} from {time}.", **half)
        )
    return joined(*found) if found else nothing


def seats_fit(seats: int) -> Text:
    """Return that so many seats could be reserved at the time that was asked for."""
    return counted("{n} seat fits at your time.", "{n} seats fit at your time.", seats)


def _minutes(at: datetime | None) -> str | None:
    return at.isoformat(timespec="minutes") if at is not None else None
