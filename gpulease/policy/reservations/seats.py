"""Who sits where in the windows that are open, and whom else a plan may let in beside them.

A seat is a unit of a window's hold.  A lease sits on one as long as it holds devices of the class
for a person whom the window entitles: nothing of it is recorded, so a restart, a change of the
roster or an early end never leave a stale seat behind.  Its device comes back to the window when it
ends, for the seat is then free again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from gpulease.policy import capacity, queue
from gpulease.policy.calendar.reservation import Window
from gpulease.policy.capacity import promised_devices
from gpulease.policy.fitting import suits
from gpulease.policy.lifecycle import time_outs_of
from gpulease.policy.model import Lease, LeaseState, Snapshot, TimeOuts, once
from gpulease.policy.reservations.feasibility import shortened

#: A time-out that never comes: no instant is worked out from it, and none is shown.
_NEVER = math.inf


@dataclass(frozen=True)
class Seating:
    """Who sits in which window, and how many seats each window has and has left.

    ``seats`` is what is there of them: less than reserved where the pool has lost devices.
    """

    seated: Mapping[str, Window] = field(default_factory=dict)
    seats: Mapping[str, int] = field(default_factory=dict)
    left: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[tuple[str, str], int] = field(default_factory=dict)  # (window, person) -> seats


def in_hold(windows: Iterable[Window], at: datetime) -> list[Window]:
    """Return the windows whose GPUs are kept at an instant: from the lead to the last end."""
    return sorted((w for w in windows if w.hold_from <= at < w.last_end), key=lambda w: w.order)


@once
def _held_now(snapshot: Snapshot) -> Sequence[Window]:
    return in_hold(snapshot.windows, snapshot.now)


@once
def _named(snapshot: Snapshot) -> frozenset[str]:
    """Return the people that some window treats differently from others of their groups."""
    of = [window.of for window in snapshot.windows]
    named = {user for each in of for user in each.named}
    return frozenset(named | {user for each in of for user, _ in each.extra_time})


@once
def seating(snapshot: Snapshot) -> Seating:
    """Return who sits where now."""
    return seating_at(snapshot, snapshot.now, {})


def seating_at(snapshot: Snapshot, at: datetime, before: Mapping[str, Window]) -> Seating:
    """Return who sits where at an instant if everybody stays; who sits already keeps the window."""
    held = in_hold(snapshot.windows, at)
    if not held:
        return Seating()
    seats = {w.key: effective(snapshot, w, at) for w in held}
    left, used = dict(seats), Counter[tuple[str, str]]()
    seated: dict[str, Window] = {}
    for window in held:
        able = _by_group(snapshot).get(window.of.group, ())
        if window.of.named:
            able = _in_order(snapshot)
        mine = [x for x in able if x.id not in seated and fits(window, x, at)]
        mine.sort(key=lambda x: getattr(before.get(x.id), "key", None) != window.key)
        for lease in mine:
            claim = (window.key, lease.user)
            if lease.count > min(left[window.key], window.of.seats_per_person - used[claim]):
                continue
            seated[lease.id] = window
            left[window.key] -= lease.count
            used[claim] += lease.count
    return Seating(seated, seats, left, used)


@once
def _in_order(snapshot: Snapshot) -> Sequence[Lease]:
    """Return what holds devices in the order in which it gets seats: what leaves is last."""
    leases = queue.holding(snapshot)  # by ticket
    return sorted(leases, key=lambda lease: lease.state is LeaseState.DRAINING)


@once
def _by_group(snapshot: Snapshot) -> Mapping[str, Sequence[Lease]]:
    """Return the leases of ``_in_order`` by each group of their person."""
    found: dict[str, list[Lease]] = {}
    for lease in _in_order(snapshot):
        for group in dict.fromkeys(lease.groups):
            found.setdefault(group, []).append(lease)
    return found


def window_of(snapshot: Snapshot, lease: Lease) -> Window | None:
    """Return the window in which a lease sits, ``None`` for one that sits in none."""
    return seating(snapshot).seated.get(lease.id)


def returns_to(snapshot: Snapshot, lease: Lease) -> Window | None:
    """Return the window that gets a lease's device back, ``None`` where that is the pool."""
    window = window_of(snapshot, lease)
    return None if window is None or lends(window, snapshot.now) else window


def claimable(snapshot: Snapshot, request: Lease) -> Window | None:
    """Return the window that is held now and that a request is entitled to."""
    now = snapshot.now
    return next((w for w in _held_now(snapshot) if fits(w, request, now)), None)


def time_outs_at(snapshot: Snapshot, lease: Lease) -> TimeOuts:
    """Return the time-outs that govern a lease now: its window's own before its class's.

    In an exam nothing is reclaimed for idleness, and there is nothing to keep.
    """
    outs, window = time_outs_of(snapshot.policy, lease), window_of(snapshot, lease)
    if window is None:
        return outs
    if window.of.exam:
        never = dict.fromkeys(("idle", "idle_under_pressure", "quiet", "claim"), _NEVER)
        return replace(outs, keeps=0, **never)
    if window.of.idle is None:
        return outs
    return replace(outs, idle=window.of.idle, idle_under_pressure=window.of.idle)


def fits(window: Window, lease: Lease, at: datetime) -> bool:
    """Whether a lease or request is of a kind that may sit in a window at an instant."""
    return (
        window.of.gpu_class == lease.gpu_class
        and at < window.end_for(lease.user)
        and window.entitles(lease.user, lease.groups)
    )


def effective(snapshot: Snapshot, window: Window, at: datetime) -> int:
    """Return the seats that a window really has: pro rata where devices were lost since."""
    moment = max(at, window.start)
    there = {
        w.key: seats
        for w in snapshot.windows
        if w.pool == window.pool and (seats := w.seats_at(moment))
    }
    return shortened(there, firm(snapshot, window)).get(window.key, 0)


def firm(snapshot: Snapshot, window: Window) -> int:
    """Return how many devices of the window's pool can serve its class, in use or not."""
    return _firm(snapshot)[window.pool, window.of.gpu_class]


@once
def _firm(snapshot: Snapshot) -> Mapping[tuple[str, str], int]:
    """Return ``firm`` of all windows, by pool and class."""
    there, found = capacity.in_service(snapshot), dict[tuple[str, str], int]()
    for pool, name in {(window.pool, window.of.gpu_class) for window in snapshot.windows}:
        suiting = sum(suits(name, device) for device in there.get(pool, ()))
        found[pool, name] = promised_devices(snapshot.policy, pool, suiting)
    return found


def lends(window: Window, now: datetime) -> bool:
    """Whether seats that nobody claimed are lent now."""
    return window.lends_from is not None and window.lends_from <= now


@once
def demand(snapshot: Snapshot) -> Mapping[str, int]:
    """Return how many seats the queue wants of each window that is held now."""
    wanted: Counter[str] = Counter()
    special, known = _named(snapshot), dict[Hashable, Window | None]()
    for request in queue.waiting(snapshot) if _held_now(snapshot) else ():
        user = request.user if request.user in special else None
        kind = request.gpu_class, request.groups, user
        if kind not in known:
            known[kind] = claimable(snapshot, request)
        window = known[kind]
        if window is not None and request.server_ready:
            wanted[window.key] += request.count
    return wanted


def required(snapshot: Snapshot, window: Window, seats: Seating, at: datetime) -> int:
    """Return the units that a window needs at an instant: all its seats, or once it lends those
    that are claimed and asked for.
    """
    whole = seats.seats.get(window.key, 0)
    if not lends(window, at):
        return whole
    claimed = whole - seats.left.get(window.key, 0)
    return min(whole, claimed + demand(snapshot).get(window.key, 0))


def horizon(snapshot: Snapshot, lease: Lease) -> timedelta:
    """Return how long a borrower stays at least, once it is let in."""
    outs = time_outs_of(snapshot.policy, lease)
    seconds = outs.minimum_runtime + outs.warning + outs.interrupt_grace + outs.drain_max
    return timedelta(seconds=seconds)


class Doors:
    """Whom one plan lets in: members to the seats of their window, others to what is left.

    ``free``: pool -> the units that are free now.
    """

    def __init__(self, snapshot: Snapshot, free: Mapping[str, int]) -> None:
        self._snapshot = snapshot
        self._now = snapshot.now
        self._free = dict(free)
        found = seating(snapshot)
        self._left, self._used = dict(found.left), dict(found.used)
        self._held = _held_now(snapshot)
        self._kept = {window.key: units for window, units in kept_units(snapshot)}
        self._coming = sorted(
            (w for w in snapshot.windows if w.hold_from > self._now), key=lambda w: w.order
        )
        self._slack: dict[str, int] = {}
        self._special = {*_named(snapshot), *(user for _, user in self._used)}

    def kind(self, request: Lease) -> Hashable:
        """Return what decides of a request's own, beside its class and count, whether it is let in.

        Those who are named by a window, or sit in one, are each of their own kind.
        """
        if not self._held and not self._coming:
            return None
        user = request.user
        return request.groups, user if user in self._special else None

    def window_for(self, request: Lease) -> Window | None:
        """Return the window in which a request can claim seats now."""
        for window in self._held:
            claim = (window.key, request.user)
            person = window.of.seats_per_person - self._used.get(claim, 0)
            seats = min(self._left[window.key], person)
            if fits(window, request, self._now) and request.count <= seats:
                outs = time_outs_of(self._snapshot.policy, request)
                least = timedelta(seconds=outs.warning + outs.drain_max)
                if self._now + least < window.end_for(request.user):
                    return window
        return None

    def refusal(self, request: Lease, pool: str) -> str:
        """Return why a request is not let in whatever is free, ``""`` where it is."""
        if not self._held and not self._coming:
            return ""
        window = self.window_for(request)
        if window is None and not self._room_ahead(request, pool):
            return self._why(request)
        free = self._free.get(pool, 0)
        others = sum(self._kept[w.key] for w in self._held if w.pool == pool and w is not window)
        if free - others >= request.count or (free < request.count and others <= free):
            return ""
        return self._why(request) if window is None else "reserved"

    def lacking(self, request: Lease) -> str:
        """Return what a request that finds nothing free waits for, ``""`` for any device."""
        in_lab = any(fits(w, request, self._now) for w in self._held)
        return "seats_taken" if in_lab and self.window_for(request) is None else ""

    def let_in(self, request: Lease, pool: str, *, beyond: bool = False) -> None:
        """Count a request that this plan starts; ``beyond``: on a device that is not there yet."""
        window = self.window_for(request)
        if not beyond:
            self._free[pool] = self._free.get(pool, 0) - request.count
        if window is None:
            if beyond:
                return
            for key in self._slack.keys() & {w.key for w in self._coming if w.pool == pool}:
                self._slack[key] -= request.count
            return
        claim = (window.key, request.user)
        self._used[claim] = self._used.get(claim, 0) + request.count
        self._special.add(request.user)
        self._left[window.key] -= request.count
        self._kept[window.key] = max(0, self._kept[window.key] - request.count)

    def _room_ahead(self, request: Lease, pool: str) -> bool:
        """Whether a borrower would be gone in time for every hold that is to come."""
        until = self._now + horizon(self._snapshot, request)
        return all(
            self._slack_of(w) >= request.count
            for w in self._coming
            if w.pool == pool and w.hold_from < until and not fits(w, request, w.start)
        )

    def _slack_of(self, window: Window) -> int:
        if window.key not in self._slack:
            self._slack[window.key] = _slack(self._snapshot, window)
        return self._slack[window.key]

    def _why(self, request: Lease) -> str:
        if any(fits(w, request, self._now) for w in self._held):
            return "seats_taken"
        if any(fits(w, request, w.start) for w in self._coming):
            return "window_coming"
        return "reserved"


@once
def kept_units(snapshot: Snapshot) -> Sequence[tuple[Window, int]]:
    """Return the windows that are held now, each with the units that are kept free for it."""
    found = seating(snapshot)
    return [(window, _kept(snapshot, window, found)) for window in _held_now(snapshot)]


def _kept(snapshot: Snapshot, window: Window, found: Seating) -> int:
    """Return the units that are kept free for a window now: what it needs and does not have."""
    claimed = found.seats[window.key] - found.left[window.key]
    return max(0, required(snapshot, window, found, snapshot.now) - claimed)


def _slack(snapshot: Snapshot, window: Window) -> int:
    """Return how many more units others may hold when a window's hold begins.

    Whoever leaves for certain by then, or sits in a window that is over then, holds none.
    """
    at = window.hold_from
    then = seating_at(snapshot, max(at, window.start), seating(snapshot).seated)
    held = [w for w in in_hold(snapshot.windows, max(at, window.start)) if w.pool == window.pool]
    needed = sum(then.seats[w.key] for w in held)
    now_seated = seating(snapshot).seated
    others = sum(
        len(lease.devices)
        for lease in queue.holding(snapshot)
        if lease.id not in then.seated
        and lease.id not in now_seated
        and lease.state is not LeaseState.DRAINING
        and queue.pool_of(snapshot, lease) == window.pool
    )
    return firm(snapshot, window) - needed - others
