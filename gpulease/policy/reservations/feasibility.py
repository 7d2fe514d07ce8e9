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

from gpulease.policy.calendar.reservation import Window

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
