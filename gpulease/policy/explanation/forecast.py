"""Where a request stands in its queue and when it may start.

The estimate uses the ends, time-outs and observed lengths of present leases.  ``None`` is unknown:
it does not guess, and it promises nothing.

What ends a lease next is one instant (``what_ends``): the pages, JupyterLab and ``%gpu`` show this
time left and no other, so that they never disagree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import exp, log
from typing import Final, Literal

from gpulease.policy import budgets, capacity, limits, queue
from gpulease.policy.calendar.reservation import Window
from gpulease.policy.capacity import Growth
from gpulease.policy.fairness import turns
from gpulease.policy.health import observed_of
from gpulease.policy.idleness import warned_at
from gpulease.policy.model import Lease, LeaseState, Snapshot, once
from gpulease.policy.projects import AtZero
from gpulease.policy.queue import stands_back
from gpulease.policy.reservations.departures import departures
from gpulease.policy.reservations.seats import claimable, kept_units, time_outs_at, window_of

#: ``released``: it was warned; ``drained``: its variables are being saved, until then at most;
#: ``idle_warning``: it is unused and will be warned; ``exam``, ``seat``: its reserved time is over;
#: ``reserved``: a reservation needs the GPU; ``hard_limit``; ``budget``: its GPU-hours are spent.
Cause = Literal[
    "released", "drained", "idle_warning", "exam", "seat", "reserved", "hard_limit", "budget"
]
#: A request that waits for one of these takes no idle lease: it lacks something else.
_TAKES = frozenset({"", "no_capacity", "capacity_taken", "seats_taken"})


@dataclass(frozen=True)
class Ending:
    """The next thing that happens to a lease if it stays as it is."""

    cause: Cause
    at: datetime


def what_ends(snapshot: Snapshot, lease: Lease) -> Ending | None:
    """Return what ends a lease, or warns of its end, first; ``None`` where nothing is known."""
    return min(_endings(snapshot, lease), key=lambda each: each.at, default=None)


def _endings(snapshot: Snapshot, lease: Lease) -> Iterator[Ending]:
    if lease.state is LeaseState.WARNED and lease.warned_until is not None:
        yield Ending("released", lease.warned_until)
    elif lease.state is LeaseState.DRAINING and lease.drain_until is not None:
        yield Ending("drained", lease.drain_until)
    elif lease.state is LeaseState.ACTIVE:
        if lease.hard_end is not None:
            yield Ending("hard_limit", lease.hard_end)
        yield from _of_windows(snapshot, lease)
        if (unused := _idle_warning(snapshot, lease)) is not None:
            yield Ending("idle_warning", unused)
        if (spent := _spent_at(snapshot, lease)) is not None:
            yield Ending("budget", spent)


def _of_windows(snapshot: Snapshot, lease: Lease) -> Iterator[Ending]:
    """Yield the end of the lease's own seat, and when another window needs its GPUs."""
    seat = window_of(snapshot, lease)
    if seat is not None:
        yield Ending("exam" if seat.of.exam else "seat", seat.end_for(lease.user))
        return
    found = departures(snapshot).get(lease.id)
    if found is not None:
        yield Ending("reserved", found.until)


def _idle_warning(snapshot: Snapshot, lease: Lease) -> datetime | None:
    """Return when the lease is warned as idle: sooner where somebody waits who could take it."""
    evidence, seen = snapshot.evidence.get(lease.id), observed_of(snapshot, lease)
    outs, now = time_outs_at(snapshot, lease), snapshot.now
    if queue.pool_of(snapshot, lease) in _wanted_pools(snapshot):
        sooner = warned_at(lease, evidence, seen, now, outs, under_pressure=True)
        if sooner is not None and sooner > now:  # past it another lease was taken
            return sooner
    return warned_at(lease, evidence, seen, now, outs)


@once
def _wanted_pools(snapshot: Snapshot) -> frozenset[str]:
    """Return the pools of which somebody lacks a GPU for whom an idle one is taken."""
    return frozenset(
        pool
        for pool, requests in queue.by_pool(snapshot).items()
        if any(_takes(snapshot, request) for request in requests)
    )


def _takes(snapshot: Snapshot, request: Lease) -> bool:
    lacks = request.server_ready and request.reason in _TAKES
    return lacks and not stands_back(request, snapshot)


def _spent_at(snapshot: Snapshot, lease: Lease) -> datetime | None:
    """Return when nothing is left of the lease's budget, at the rate of all that it pays now."""
    left = budgets.of_lease(snapshot, lease)
    if left is None or left.at_zero is not AtZero.END:
        return None
    project = snapshot.policy.projects.home(lease.project).name
    rate = _rates(snapshot).get((project, lease.user if left.whose == "person" else None), 0.0)
    return snapshot.now + timedelta(hours=max(0.0, left.left) / rate) if rate > 0 else None


@once
def _rates(snapshot: Snapshot) -> Mapping[tuple[str, str | None], float]:
    """Return the GPU-hours an hour that each project, and each person in it, is charged now."""
    found: dict[tuple[str, str | None], float] = {}
    for lease in queue.holding(snapshot):
        if lease.charged_from is None:
            continue
        project = snapshot.policy.projects.home(lease.project).name
        for key in ((project, None), (project, lease.user)):
            found[key] = found.get(key, 0.0) + len(lease.devices) * lease.price
    return found


#: A drain rarely takes its whole bound; what is expected of one is this share of it.
USUAL_DRAIN = 0.1
#: Seconds added to what was expected and to what came: seconds more or less are no error.
SLACK = 10.0
#: An interval is told in steps of this.
STEP = timedelta(seconds=10)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Forecast:
    """A request's place in its pool's queue and when it may start, if that is known.

    ``position``: 1 is next.  Requests before it that could not start though everything were free
    (their server does not run, their holder has as many as one may have) are not counted.
    ``between``: of 10 such requests 8 start then; ``None`` while too little is known.
    """

    position: int
    expected_start: datetime | None
    between: tuple[datetime, datetime] | None = None


@dataclass(frozen=True)
class Outlook:
    """What may be expected: by those who wait, by lease, and by who would ask now, by pool.

    Of thousands it takes tenths of a second to work out, so it is told as it was found last.
    """

    forecasts: Mapping[str, Forecast] = field(default_factory=dict)
    next_starts: Mapping[str, datetime] = field(default_factory=dict)


def position(snapshot: Snapshot, lease_id: str) -> int | None:
    """Return the request's place in its pool's queue, 1 is next; ``None`` when it is not queued."""
    found = forecasts(snapshot).get(lease_id)
    return found.position if found is not None else None


def expected_start(snapshot: Snapshot, lease_id: str) -> datetime | None:
    """Return when the request is expected to start, ``None`` when that is unknown."""
    found = forecasts(snapshot).get(lease_id)
    return found.expected_start if found is not None else None


@once
def forecasts(snapshot: Snapshot) -> Mapping[str, Forecast]:
    """Return the forecast of every request that waits, by lease.

    Each request of a line takes the devices that come free first; what those hold again
    afterwards is not looked into.
    """
    bounds = limits.Limits.of(snapshot)
    counted = _counted(snapshot)
    found: dict[str, Forecast] = {}
    for pool, line in _lines(snapshot).items():
        starts = _starts(snapshot, line, pool, bounds)[0] if snapshot.capacity_known else {}
        before = 0
        for request in line:
            start = starts.get(request.id)
            found[request.id] = Forecast(before + 1, start, _between(snapshot, start))
            before += request.id in counted
    return found


def _between(snapshot: Snapshot, start: datetime | None) -> tuple[datetime, datetime] | None:
    """Return the times between which 8 of 10 requests start of which this is expected.

    In whole steps, so that what is told does not change with every look.
    """
    if start is None or snapshot.wait_spread is None:
        return None
    seconds = max(0.0, (start - snapshot.now).total_seconds()) + SLACK
    early, late = (
        snapshot.now + timedelta(seconds=seconds * exp(each) - SLACK)
        for each in snapshot.wait_spread
    )
    return max(_step(early), _step(snapshot.now)), max(_step(late), _step(snapshot.now)) + STEP


def _step(at: datetime) -> datetime:
    return at - (at - _EPOCH) % STEP


@once
def next_starts(snapshot: Snapshot) -> Mapping[str, datetime]:
    """Return when one more device of a pool, asked for now, may start; unknown ones are left out.

    Limits of a person or project are not looked into: nobody asks yet.
    """
    if not snapshot.capacity_known:
        return {}
    lines, bounds = _lines(snapshot), limits.Limits.of(snapshot)
    found = {}
    for pool in {each.pool for each in snapshot.policy.classes}:
        _, left = _starts(snapshot, lines.get(pool, []), pool, bounds)
        if left:
            found[pool] = left[0]
    return found


def outlook(snapshot: Snapshot) -> Outlook:
    """Return what a snapshot lets expect."""
    waiting = forecasts(snapshot) if queue.waiting(snapshot) else {}
    return Outlook(waiting, next_starts(snapshot))


@once
def _lines(snapshot: Snapshot) -> Mapping[str, list[Lease]]:
    """Return each pool's queue in the order of its turns."""
    lines: dict[str, list[Lease]] = {}
    for request in turns(snapshot):
        lines.setdefault(queue.pool_of(snapshot, request), []).append(request)
    return lines


def _counted(snapshot: Snapshot) -> frozenset[str]:
    """Return the requests that others stand behind: those that start when their turn comes."""
    bounds = limits.Limits.of(snapshot)
    found = []
    for request in turns(snapshot):
        if request.server_ready and not bounds.exceeded(request):
            found.append(request.id)
            bounds.grant(request)
    return frozenset(found)


def _starts(
    snapshot: Snapshot, line: list[Lease], pool: str, bounds: limits.Limits
) -> tuple[dict[str, datetime], list[datetime]]:
    """Return the known starts of one line, and when devices come free that it leaves."""
    slots = _slots(snapshot, pool, sum(request.count for request in line) + 1)
    seats = sum(units for _, units in _kept(snapshot, pool))
    starts: dict[str, datetime] = {}
    exhausted = False
    for request in line:
        blocked = limits.kept_waiting(request, snapshot.now, bounds)
        if request.reason == limits.QUOTA:
            continue  # when the owner of a quota has room again nobody knows
        if exhausted or (blocked and not _backs_off(request, snapshot.now)):
            continue
        if not blocked and request.count <= seats and claimable(snapshot, request) is not None:
            starts[request.id], seats = snapshot.now, seats - request.count
            continue
        if len(slots) < request.count:
            exhausted = exhausted or not blocked
            continue
        free_at = slots[request.count - 1]
        if not request.needs:  # when one comes free that meets them is not known
            starts[request.id] = max(free_at, request.not_before or free_at)
        if not blocked:
            slots = slots[request.count :]
    return starts, [] if exhausted else slots


def expected_end(snapshot: Snapshot, lease: Lease) -> datetime | None:
    """Return when a lease is expected to give its devices back, ``None`` when unknown.

    A used lease is expected to last as long as leases usually do; when it has lasted longer
    already, or no usual length is known, only an end that its holder named is known.
    """
    now, outs = snapshot.now, time_outs_at(snapshot, lease)
    drain = timedelta(seconds=outs.drain_max * USUAL_DRAIN)
    if lease.state is LeaseState.DRAINING:
        return min(lease.drain_until or now, now + drain)
    if lease.state is LeaseState.WARNED:
        return (lease.warned_until or now) + drain
    known = [lease.hard_end] if lease.wanted is not None and lease.hard_end is not None else []
    warned = warned_at(
        lease, snapshot.evidence.get(lease.id), snapshot.observed.get(lease.id), now, outs
    )
    if warned is not None:
        known.append(warned + timedelta(seconds=outs.warning) + drain)
    is_active = lease.state is LeaseState.ACTIVE
    ending = next(_of_windows(snapshot, lease), None) if is_active else None
    in_exam = ending is not None and ending.cause == "exam"  # nobody is released early there
    if snapshot.typical_length is not None and not in_exam:
        begun = lease.active_since or now
        usual = begun + timedelta(seconds=snapshot.typical_length)
        known += [usual] if usual > now else []
    if ending is not None and ending.cause in ("exam", "reserved"):  # used or not
        known.append(ending.at + drain)
    if lease.kept_until is not None:  # a Keep holds it until then, whatever is usual
        named = lease.hard_end if lease.wanted is not None else None
        known = [end if end == named else max(end, lease.kept_until) for end in known]
    if lease.hard_end is not None:
        known = [min(end, lease.hard_end) for end in known]
    return min(known, default=None)


def _slots(snapshot: Snapshot, pool: str, wanted: int) -> list[datetime]:
    """Return when so many of the pool's devices come free, or more, soonest first.

    Unknown ones are left out.
    """
    now = snapshot.now
    free = capacity.free_devices(snapshot).get(pool, [])
    coming = capacity.coming_devices(snapshot, frozenset()).get(pool, [])
    kept = _kept(snapshot, pool)
    slots = [now] * (len(free) + len(coming) - sum(units for _, units in kept))
    if len(slots) >= wanted:
        return slots
    known = capacity.known_devices(snapshot)
    for lease in queue.holding(snapshot):
        end = expected_end(snapshot, lease)
        if end is not None:
            theirs = [known[uuid] for uuid in lease.devices if uuid in known]
            slots += [max(now, end)] * sum(d.pool == pool and capacity.usable(d) for d in theirs)
    for window, units in kept:
        slots += [_given_free(window, now)] * units
    elastic = snapshot.policy.elastic.get(pool)
    if elastic is not None:
        added = now + timedelta(seconds=elastic.provision_time)
        slots += [added] * min(Growth(snapshot).left(pool), wanted)
    return sorted(slots)


def _kept(snapshot: Snapshot, pool: str) -> list[tuple[Window, int]]:
    """Return the windows that keep free devices of a pool from others, with how many."""
    left, found = len(capacity.free_devices(snapshot).get(pool, [])), []
    for window, units in kept_units(snapshot):
        if window.pool == pool and (there := min(left, units)):
            found.append((window, there))
            left -= there
    return found


def _given_free(window: Window, now: datetime) -> datetime:
    """Return when others may have what is kept for a window: once it is lent, or at its end."""
    lent = window.lends_from
    return window.end if lent is None or lent <= now else min(lent, window.end)


def _backs_off(request: Lease, now: datetime) -> bool:
    return request.server_ready and request.is_backing_off(now)


#: So many of the last waits count; with fewer than ``LEAST`` nothing is said.
MOST: Final = 200
LEAST: Final = 20
#: The part that starts before, and after, the interval.
OUTSIDE: Final = 0.1


@dataclass(frozen=True)
class EndedWait:
    """A wait that is over, and what had been said of it when it was first seen."""

    since: datetime
    until: datetime
    said: Forecast


class ExpectedWaits:
    """Compares what was expected of requests with what came.

    Args:
        spread: what was found before, which holds until enough waits have ended here.
    """

    def __init__(self, spread: tuple[float, float] | None = None) -> None:
        self._said: dict[str, tuple[datetime, Forecast]] = {}
        self._ratios: deque[float] = deque(maxlen=MOST)
        self.spread = spread

    def look(
        self,
        snapshot: Snapshot,
        told: Callable[[Snapshot], Mapping[str, Forecast]] = forecasts,
    ) -> list[EndedWait]:
        """Note who waits; return the waits of those who have started since the last look.

        ``told``: what those who wait are told; who is told nothing yet is noted later.
        """
        waiting = {x.id for x in snapshot.leases if x.state is LeaseState.QUEUED}
        over = self._said.keys() - waiting
        ended = [
            EndedWait(since, snapshot.now, said)
            for lease in (snapshot.leases if over else ())
            if lease.id in over and lease.state is not LeaseState.ENDED
            for since, said in (self._said[lease.id],)
        ]
        for lease_id in over:
            del self._said[lease_id]
        new = waiting - self._said.keys()
        found = told(snapshot) if new else {}
        self._said |= {each: (snapshot.now, found[each]) for each in new & found.keys()}
        self._count(ended)
        return ended

    def _count(self, ended: list[EndedWait]) -> None:
        for each in ended:
            waited = (each.until - each.since).total_seconds()
            if waited < 0:  # the clock was set back meanwhile: nobody knows how long it was
                continue
            if each.said.expected_start is not None:
                expected = (each.said.expected_start - each.since).total_seconds()
                self._ratios.append(log((waited + SLACK) / (max(0.0, expected) + SLACK)))
        if ended and len(self._ratios) >= LEAST:
            ordered = sorted(self._ratios)
            outside = round(OUTSIDE * (len(ordered) + 1))
            self.spread = ordered[outside - 1], ordered[-outside]
