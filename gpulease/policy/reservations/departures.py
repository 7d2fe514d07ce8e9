"""Who must go for a window, when, and who because their own window is over.

The lead of a window displaces those who borrow, never the seats of another window: of back-to-back
labs the first one's seats are warned before their own end.  An ordinary lab's lease goes on after
its window as long as nobody needs the device; after an exam everybody leaves.  Below it, in words:
what a window means for one person's lease or request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from gpulease.policy import budgets, queue
from gpulease.policy.calendar.occurrences import wall_clock
from gpulease.policy.calendar.reservation import Window
from gpulease.policy.lifecycle import time_outs_of
from gpulease.policy.model import EndReason, Lease, LeaseState, Snapshot, once
from gpulease.policy.reservations.seats import (
    Seating,
    claimable,
    firm,
    fits,
    in_hold,
    lends,
    required,
    seating,
    seating_at,
    window_of,
)
from gpulease.sizes import say_moment
from gpulease.texts import Text, counted, instant

#: Reasons of leaving that this module gives; they are taken back with their cause.
RESERVED, OVER = "reserved", "window_over"
RESERVED_IN_PART = "reserved_in_part"
REASONS = frozenset({RESERVED, RESERVED_IN_PART, OVER})
#: So far ahead it is worked out who will have to leave.
AHEAD = timedelta(hours=1)


@dataclass(frozen=True)
class Departure:
    """When a lease must go, and for which window: the one that needs it, or its own.

    ``gives``: number of devices that it gives; it keeps running on the rest; 0 is all of them.
    """

    reason: str
    until: datetime
    window: Window
    gives: int = 0

    @property
    def end_reason(self) -> EndReason:
        """How the lease ends."""
        return EndReason.WINDOW_OVER if self.reason == OVER else EndReason.PREEMPTED


@once
def departures(snapshot: Snapshot) -> Mapping[str, Departure]:
    """Return who has to leave within the hour, by lease."""
    chosen: dict[str, Departure] = {}
    if not snapshot.windows:
        return chosen
    for at, window in _moments(snapshot):
        _choose(snapshot, at, window, chosen)
    return chosen


def _moments(snapshot: Snapshot) -> list[tuple[datetime, Window]]:
    """Return the instants at which somebody may have to go, in order, with the window of each."""
    now = snapshot.now
    found: list[tuple[datetime, Window]] = []
    for window in snapshot.windows:
        if window.last_end <= now:
            continue
        found.append((max(now, window.hold_from), window))
        ends = {window.end, *(window.end_for(user) for user, _ in window.of.extra_time)}
        found += [(end, window) for end in ends if now < end]
        if window.hold_from <= now < window.start:
            found.append((window.start, window))
    near = [(at, w) for at, w in found if at <= now + AHEAD]
    return sorted(near, key=lambda pair: (pair[0], pair[1].order))


def _choose(snapshot: Snapshot, at: datetime, window: Window, chosen: dict[str, Departure]) -> None:
    """Choose who leaves so that at an instant every window of the pool has what it needs."""
    now_seats = seating(snapshot)
    then = now_seats if at <= snapshot.now else seating_at(snapshot, at, now_seats.seated)
    held = [w for w in in_hold(snapshot.windows, at) if w.pool == window.pool]
    needed = sum(required(snapshot, w, then, at) for w in held)
    leases = [x for x in queue.holding(snapshot) if queue.pool_of(snapshot, x) == window.pool]
    standing = [x for x in leases if x.id not in then.seated]
    others = [x for x in standing if not _gone(x, chosen)]
    staying = sum(_stays(x, chosen) for x in standing)
    excess = staying - max(0, firm(snapshot, window) - needed)
    over = [x for x in others if _is_over(x, at, now_seats)]
    excess = max(excess, _wanted_after(snapshot, over))
    for lease in _in_order(snapshot, others, now_seats):
        own = now_seats.seated.get(lease.id)
        exam = own is not None and own.of.exam and lease in over
        if excess <= 0 and not exam:
            continue
        if own is not None and lease not in over:
            continue  # another window's seat: it is never displaced
        if own is not None:
            chosen[lease.id] = Departure(OVER, own.end_for(lease.user), own)
        else:
            cause = held[-1] if held else window
            until = max(at, _earliest(snapshot, lease))
            fewer = _gives(lease, excess)
            reason = RESERVED_IN_PART if fewer else RESERVED
            chosen[lease.id] = Departure(reason, until, cause, fewer)
            excess += _stays(lease, chosen)
        excess -= len(lease.devices)


@once
def on_loan(snapshot: Snapshot) -> Mapping[str, Window]:
    """Return the leases that may have to go when a member takes a seat that is lent now, with its
    window.  Which of them goes is chosen then, by how idle each is: it may be any.
    """
    found: dict[str, Window] = {}
    held = in_hold(snapshot.windows, snapshot.now)
    for lending in (w for w in held if lends(w, snapshot.now)):
        seats = seating(snapshot)
        kept = sum(seats.seats[w.key] for w in held if w.pool == lending.pool)
        standing = [
            lease
            for lease in queue.holding(snapshot)
            if queue.pool_of(snapshot, lease) == lending.pool
            and lease.id not in seats.seated
            and not _gone(lease, {})
        ]
        if _units(standing) > max(0, firm(snapshot, lending) - kept):
            found = dict.fromkeys((lease.id for lease in standing), lending) | found
    return found


def _gives(lease: Lease, wanted: int) -> int:
    """Return how many devices a lease gives where so many are wanted, 0 for all of them."""
    if lease.becomes is None:
        return lease.giving_up(wanted)
    return wanted if 0 < wanted <= len(lease.giving) else 0


def _stays(lease: Lease, chosen: Mapping[str, Departure]) -> int:
    """Return how many devices a lease keeps by what is chosen so far."""
    found = chosen.get(lease.id)
    if found is not None:
        return len(lease.devices) - found.gives if found.gives else 0
    if not _gone(lease, chosen):
        return len(lease.devices)
    return len(lease.devices) - len(lease.giving) if lease.becomes is not None else 0


def _earliest(snapshot: Snapshot, lease: Lease) -> datetime:
    """Return from when on a borrower can be asked to leave."""
    least = time_outs_of(snapshot.policy, lease).minimum_runtime
    return (lease.active_since or snapshot.now) + timedelta(seconds=least)


def _wanted_after(snapshot: Snapshot, over: Iterable[Lease]) -> int:
    """Return how many of the seats that are over others wait for."""
    seats = list(over)
    if not seats:
        return 0
    pool = queue.pool_of(snapshot, seats[0])
    waiting = sum(
        request.count
        for request in queue.waiting(snapshot)
        if queue.pool_of(snapshot, request) == pool and request.server_ready
    )
    return min(waiting, _units(seats))


def _is_over(lease: Lease, at: datetime, now_seats: Seating) -> bool:
    window = now_seats.seated.get(lease.id)
    return window is not None and window.end_for(lease.user) <= at


def _gone(lease: Lease, chosen: Mapping[str, Departure]) -> bool:
    """Whether a lease gives its devices up whatever is chosen here."""
    if lease.id in chosen or lease.state is LeaseState.DRAINING:
        return True
    hard = lease.end_reason_wanted is not EndReason.IDLE and lease.reason not in REASONS
    return lease.state is LeaseState.WARNED and hard


def _in_order(snapshot: Snapshot, leases: Iterable[Lease], now_seats: Seating) -> list[Lease]:
    """Borrowers before seats that are over; already notified, most idle, then youngest."""

    def rank(lease: Lease) -> tuple[bool, bool, float, float, object]:
        evidence = snapshot.evidence.get(lease.id)
        age = (snapshot.now - (lease.active_since or snapshot.now)).total_seconds()
        told = lease.state is LeaseState.WARNED
        idle = evidence.quiet_for if evidence else 0.0
        return lease.id in now_seats.seated, not told, -idle, age, queue.order(lease)

    return sorted(leases, key=rank)


def _units(leases: Iterable[Lease]) -> int:
    return sum(len(lease.devices) for lease in leases)


def first_gpus(snapshot: Snapshot, window: Window) -> datetime:
    """Return when the first GPU of a window is there: later than its start where another window of
    the pool ends only then, and its seats have to be drained.
    """
    there = firm(snapshot, window)
    before = [
        w
        for w in snapshot.windows
        if w.pool == window.pool and w.key != window.key and w.hold_from <= window.hold_from < w.end
    ]
    taken = sum(w.seats_at(max(window.hold_from, w.start)) for w in before)
    if taken < there or not before:
        return window.start
    outs = next(
        (c.time_outs for c in snapshot.policy.classes if c.name == window.of.gpu_class),
        snapshot.policy.time_outs,
    )
    end = min(w.last_end for w in before)
    return max(window.start, end + timedelta(seconds=outs.drain_max))


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
        "Unclaimed seats of {lab} are lent until {end}: a late member of {group} has priority and "
        "may need this GPU.",
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
