"""Whom each leaving lease is taken for, and which idle leases are asked to leave for somebody.

It pairs requests that lack a device with leases that leave or could leave, in this order: what
leaves anyway, what is idle, what is held over quota (``over_quota``).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial

from gpulease.policy import queue
from gpulease.policy.admission import Admission, Unmet
from gpulease.policy.batch import gives_way, stands_back
from gpulease.policy.capacity.devices import known_devices
from gpulease.policy.fairness.standing import TAKEN
from gpulease.policy.limits import Limits
from gpulease.policy.model import EndReason, Lease, LeaseState, Snapshot
from gpulease.policy.reclaim.borrowed_leases import Useful
from gpulease.policy.reclaim.over_quota import Borrowed
from gpulease.policy.reclaim.reclaim_candidates import Givers, NodeChoice, Places
from gpulease.policy.reclaim.reclaim_safeguards import Doubts
from gpulease.policy.reclaim.unused import why_idle
from gpulease.policy.reservations.seats import claimable, returns_to


class Promises:
    """What requests get that wait for what others leave, on top of what is held and started.

    Each of five requests of a project that may have one more device could start if it were the
    next; only one of them will, so only one of them takes anything back.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._made: set[str] = set()

    def has_room(self, want: Unmet) -> bool:
        """Whether a request could start with all that it lacks, once those before it did."""
        request = want.request
        if request.id in self._made or request.kept:
            return True
        return not self._limits.exceeded(request) and self._limits.within(request) is request

    def make(self, want: Unmet) -> None:
        """Count a request that is given something."""
        if want.request.id not in self._made and not want.request.kept:
            self._made.add(want.request.id)
            self._limits.grant(want.request)


@dataclass(frozen=True)
class Taken:
    """Which lease is (to be) taken for which waiting request.

    ``borrowed``: those of them that go although they are used, for they are held over quota.
    """

    by: dict[str, str] = field(default_factory=dict)
    borrowed: set[str] = field(default_factory=set)
    #: Of those, how many devices each gives that goes on with the rest of them.
    parts: dict[str, int] = field(default_factory=dict)


def nominations(
    snapshot: Snapshot, admitted: Admission, settled: Set[str], *, doubts: Doubts
) -> Taken:
    """Return what is taken for whom of those who still lack something.

    Leases that leave anyway come first, those already nominated for the request before others;
    then, where nothing is in doubt, idle ones: the most idle first, then the youngest; then those
    of runs, and those that are held over quota by others.  For a run that stands back nothing is
    taken.  A request for several devices takes no lease unless enough
    of them can be had, and nobody takes more than their limits have room for.

    Args:
        snapshot: what is known.
        admitted: who is served in this plan, and who is not.
        settled: leases whose step in this plan is something else.
        doubts: where nothing is reclaimed.
    """
    taken, rest = Taken(), queue.without(snapshot, settled)
    promises = Promises(admitted.limits)
    for pool, wants in sorted(_wants(snapshot, admitted).items()):
        if not doubts.reclaims(pool):
            continue
        supply = _Supply(rest, pool, promises, reclaims=doubts.reclaims_at_all)
        supply.pair(wants)
        taken.borrowed.update(supply.take_of_runs(wants))
        borrowed = Borrowed(snapshot, pool, supply.taken_for, settled, parts=supply.parts)
        for request in () if borrowed.nothing else admitted.started.get(pool, ()):
            borrowed.coming(request)
        taken.borrowed.update(supply.take_over_quota(wants, borrowed))
        taken.by.update(supply.taken_for)
        taken.parts.update(supply.parts)
    return taken


def _wants(snapshot: Snapshot, admitted: Admission) -> dict[str, list[Unmet]]:
    """Return who lacks devices of each pool, in turn; nothing is taken for runs that stand back."""
    found: dict[str, list[Unmet]] = {}
    for want in admitted.lacking:
        if not stands_back(want.request, snapshot):
            found.setdefault(want.pool, []).append(want)
    return found


class _Supply:
    """What one pool can give besides what is free, handed out request by request."""

    def __init__(
        self, snapshot: Snapshot, pool: str, promises: Promises, *, reclaims: bool
    ) -> None:
        self.taken_for: dict[str, str] = {}
        self.parts: dict[str, int] = {}
        self._snapshot = snapshot
        self._promises = promises
        self._waiting = queue.waiting_ids(snapshot)
        devices = known_devices(snapshot)
        self._places = Places(
            devices, lambda node: self._leaving.devices[node] + self._idle.devices[node]
        )
        leases = [x for x in queue.holding(snapshot) if queue.pool_of(snapshot, x) == pool]
        leaving = sorted((x for x in leases if self._leaves(x)), key=self._leaves_first)
        leaving = [given for x in leaving if (given := _what_it_gives(x)).devices]
        self._own: dict[str, list[Lease]] = {}
        for lease in leaving:
            self._own.setdefault(lease.nominated_for or "", []).append(lease)
        idle = [x for x in leases if x.state is LeaseState.ACTIVE and why_idle(snapshot, x, True)]
        idle.sort(key=self._most_idle_first)
        self._leaving = Givers(leaving, devices)
        # A seat's device comes back to its window: it helps those who may sit there.
        back_to = {lease.id: returns_to(snapshot, lease) for lease in idle if reclaims}
        self._idle = Givers([x for x in idle if back_to.get(x.id, x) is None], devices)
        self._seats: dict[str, Givers] = {}
        for key in {window.key for window in back_to.values() if window is not None}:
            seats = [x for x in idle if (own := back_to[x.id]) is not None and own.key == key]
            self._seats[key] = Givers(seats, devices)
        runs = [x for x in leases if x.batch and x not in idle and gives_way(x, snapshot)]
        runs.sort(key=self._most_idle_first)
        self._runs = Givers(runs if reclaims else (), devices)
        self._is_run = {run.id: run for run in runs}
        spares = [_part(run, run.giving_up(run.spares)) for run in runs if run.spares]
        self._spares = Givers(spares if reclaims else (), devices)

    def take_own(self, want: Unmet) -> None:
        """Give a request what already leaves in its name."""
        self._settle(want)
        for lease in self._own[want.request.id]:
            if self._places.helps(want, lease):
                self._take(lease, want)

    def take_leaving(self, want: Unmet) -> None:
        """Give a request what leaves anyway.

        A lease that leaves in the name of somebody who was served by another one keeps that name:
        the two requests only swapped, and both claims stand.
        """
        self._settle(want)
        for lease in self._enough(self._leaving, want)[0]:
            name = lease.nominated_for if lease.nominated_for in self._waiting else None
            self._take(lease, want, name)

    def take_idle(self, want: Unmet) -> None:
        """Ask idle leases to leave for a request, if there are enough of them."""
        for givers in (*self._own_seats(want.request), self._idle):
            helping, enough = self._enough(givers, want)
            for lease in helping if enough else ():
                self._take(lease, want)

    def pair(self, wants: Sequence[Unmet]) -> None:
        """Hand out what leaves and what is idle."""
        for want in wants:
            if want.request.id in self._own:
                self.take_own(want)
        got_nothing = set[Hashable]()  # what may be taken only becomes less
        for want in wants:
            same = self._same(want)
            if same in got_nothing or not self._promises.has_room(want):
                continue
            before = len(self.taken_for)
            self.take_leaving(want)
            self.take_idle(want)
            if len(self.taken_for) == before and self._places.missing(want) > 0:
                got_nothing.add(same)

    def take_of_runs(self, wants: Sequence[Unmet]) -> set[str]:
        """Ask leases of runs to leave, used or not, for requests of people.

        Where what runs can live without is enough, none of them leaves whole.
        """
        found: set[str] = set()
        for want in wants if self._runs else ():
            if want.request.batch or self._is_done(want):
                continue
            self._settle(want)
            helping, enough = self._enough(self._spares, want)
            if not enough:
                helping, enough = self._enough(self._runs, want)
            for lease in helping if enough else ():
                self._take_of_run(lease, want)
                found.add(lease.id)
            if not self._runs:
                break
        return found

    def _take_of_run(self, given: Lease, want: Unmet) -> None:
        """Take what is given of a lease, or the fewest of its devices that help as much."""
        left, run = self._places.left(want), self._is_run[given.id]
        lacking = self._lacking(left, given)
        for wanted in range(1, run.spares + 1):
            units = run.giving_up(wanted)
            if units and self._lacking(left, part := _part(run, units)) == lacking:
                self.parts[run.id] = units
                given = part
                break
        self._take(given, want)

    def _lacking(self, left: Mapping[NodeChoice, int], lease: Lease) -> dict[NodeChoice, int]:
        return {each: max(0, n) for each, n in self._places.without(left, lease).items()}

    def take_over_quota(self, wants: Sequence[Unmet], borrowed: Borrowed) -> set[str]:
        """Ask leases to leave that others hold over quota, for those who are entitled to it."""
        found: set[str] = set()
        for want in wants if not borrowed.nothing else ():
            if self._places.missing(want) <= 0:
                borrowed.coming(want.request)
        for want in wants if not borrowed.nothing else ():
            if not self._is_done(want):
                found.update(lease.id for lease in self._take_borrowed(want, borrowed))
        return found

    def _take_borrowed(self, want: Unmet, borrowed: Borrowed) -> list[Lease]:
        request, places = want.request, self._places
        if not borrowed.may_take(request):
            return []
        self._settle(want)
        begun = request.count > 1 and request.id in self.taken_for.values()
        choices, number = places.choices(want, begun=begun)
        wanted = []
        for place, missing in choices:
            kind = request.gpu_class, request.needs, place
            wanted.append((Useful(kind, partial(places.useful, want, place=place)), missing))
        taken, at = borrowed.take(request, wanted, number)
        if taken:
            places.aim(want, [choices[each] for each in at])
        for each in taken:
            lease = each.lease
            if each.units < len(lease.devices) and lease.becomes is None:
                self.parts[lease.id] = each.units
                lease = _part(lease, each.units)
            self._take(_what_it_gives(lease), want)
        return [each.lease for each in taken]

    def _same(self, want: Unmet) -> Hashable:
        """Return what is the same for requests of which one gets nothing where another does not."""
        request = want.request
        seats = claimable(self._snapshot, request) if self._seats else None
        return want.shortage, seats and seats.key, request.id if request.id in self._own else ""

    def _own_seats(self, request: Lease) -> list[Givers]:
        """Return the idle seats of the window that a request would sit in."""
        window = claimable(self._snapshot, request) if self._seats else None
        return [self._seats[window.key]] if window and window.key in self._seats else []

    def _enough(self, givers: Givers, want: Unmet) -> tuple[list[Lease], bool]:
        """Return the first leases that give a request what it lacks, or all that help it, and
        whether it lacks nothing then.
        """
        left, found = dict(self._places.left(want)), dict[str, Lease]()
        for place in list(left):
            for lease in givers.to(want.request, place):
                if left[place] <= 0:
                    break
                if lease.id not in found:
                    found[lease.id] = lease
                    left = self._places.without(left, lease)
        return list(found.values()), all(n <= 0 for n in left.values())

    def _is_done(self, want: Unmet) -> bool:
        """Whether a request lacks nothing any more, or those before it used up its limits."""
        return self._places.missing(want) <= 0 or not self._promises.has_room(want)

    def _settle(self, want: Unmet) -> None:
        self._places.settle(want, self._own.get(want.request.id, ()))

    def _take(self, lease: Lease, want: Unmet, name: str | None = None) -> None:
        """Take a lease for a request, by whose name it leaves unless another one is given."""
        if self._places.missing(want) > 0:
            self._promises.make(want)
            self.taken_for[lease.id] = name or want.request.id
            self._places.take(want, lease)
            self._leaving.drop(lease)
            self._idle.drop(lease)
            self._runs.drop(lease)
            self._spares.drop(lease)
            for seats in self._seats.values():
                seats.drop(lease)

    def _leaves(self, lease: Lease) -> bool:
        if lease.state is LeaseState.DRAINING:
            return True
        if lease.state is not LeaseState.WARNED:
            return False
        if lease.reason in TAKEN and lease.nominated_for not in self._waiting:
            return False  # whom it was taken for needs it no more
        wanted = lease.end_reason_wanted
        return wanted is not EndReason.IDLE or bool(why_idle(self._snapshot, lease, True))

    def _leaves_first(self, lease: Lease) -> tuple[bool, bool, object]:
        """In nobody's name before in somebody's, what drains before what is warned."""
        warned = lease.state is not LeaseState.DRAINING
        return lease.nominated_for in self._waiting, warned, queue.order(lease)

    def _most_idle_first(self, lease: Lease) -> tuple[bool, float, float, object]:
        evidence = self._snapshot.evidence.get(lease.id)
        age = (self._snapshot.now - (lease.active_since or self._snapshot.now)).total_seconds()
        return not lease.batch, -(evidence.quiet_for if evidence else 0.0), age, queue.order(lease)


def _part(lease: Lease, units: int) -> Lease:
    """Return a lease with those devices only that it gives where it becomes so much smaller."""
    return replace(lease, devices=lease.devices[-units:])


def _what_it_gives(lease: Lease) -> Lease:
    """Return a lease with those devices only that it gives up."""
    return lease if lease.becomes is None else replace(lease, devices=lease.giving)
