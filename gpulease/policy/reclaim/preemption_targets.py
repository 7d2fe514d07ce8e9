"""Who is chosen: which lease is taken for whom, and when nothing is taken.

Requests that lack a device are paired with leases that leave or could leave, in this order: what
leaves anyway, what is idle, what is held over quota (``over_quota``).

Nothing is reclaimed on the word of a broken monitoring.  Its signs are that many leases turn idle
at once, that nothing is heard, or that others take what was granted; an admin is notified.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from gpulease.policy import queue
from gpulease.policy.calendar.reservation import Window
from gpulease.policy.capacity import known_devices
from gpulease.policy.model import Alert, Lease, LeaseState, Snapshot, Verdict
from gpulease.policy.reclaim.over_quota import Borrowed
from gpulease.policy.reclaim.reclaim_candidates import (
    Candidates,
    Givers,
    LimitTracker,
    NodeChoice,
    Places,
    Useful,
    given_up,
    part_of,
    wants_by_pool,
)
from gpulease.policy.remaining_capacity import Admission, Unmet
from gpulease.policy.reservations.seats import claimable
from gpulease.sizes import say_count, say_duration


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
    limits = LimitTracker(admitted.limits)
    for pool, wants in sorted(wants_by_pool(snapshot, admitted).items()):
        if not doubts.reclaims(pool):
            continue
        supply = _Supply(rest, pool, limits, reclaims=doubts.reclaims_at_all)
        supply.pair(wants)
        taken.borrowed.update(supply.take_of_runs(wants))
        borrowed = Borrowed(snapshot, pool, supply.taken_for, settled, parts=supply.parts)
        for request in () if borrowed.nothing else admitted.started.get(pool, ()):
            borrowed.coming(request)
        taken.borrowed.update(supply.take_over_quota(wants, borrowed))
        taken.by.update(supply.taken_for)
        taken.parts.update(supply.parts)
    return taken


class _Supply:
    """What one pool can give besides what is free, handed out request by request."""

    def __init__(
        self, snapshot: Snapshot, pool: str, limits: LimitTracker, *, reclaims: bool
    ) -> None:
        self.taken_for: dict[str, str] = {}
        self.parts: dict[str, int] = {}
        self._snapshot = snapshot
        self._limits = limits
        self._waiting = queue.waiting_ids(snapshot)
        devices = known_devices(snapshot)
        self._candidates = Candidates(snapshot, pool, devices, reclaims=reclaims)
        self._places = Places(devices, self._candidates.on_node)

    def take_own(self, want: Unmet) -> None:
        """Give a request what already leaves in its name."""
        self._settle(want)
        for lease in self._candidates.own[want.request.id]:
            if self._places.helps(want, lease):
                self._take(lease, want)

    def take_leaving(self, want: Unmet) -> None:
        """Give a request what leaves anyway.

        A lease that leaves in the name of somebody who was served by another one keeps that name:
        the two requests only swapped, and both claims stand.
        """
        self._settle(want)
        for lease in self._enough(self._candidates.leaving, want)[0]:
            name = lease.nominated_for if lease.nominated_for in self._waiting else None
            self._take(lease, want, name)

    def take_idle(self, want: Unmet) -> None:
        """Ask idle leases to leave for a request, if there are enough of them."""
        for givers in (*self._own_seats(want.request), self._candidates.idle):
            helping, enough = self._enough(givers, want)
            for lease in helping if enough else ():
                self._take(lease, want)

    def pair(self, wants: Sequence[Unmet]) -> None:
        """Hand out what leaves and what is idle."""
        for want in wants:
            if want.request.id in self._candidates.own:
                self.take_own(want)
        got_nothing = set[Hashable]()  # what may be taken only becomes less
        for want in wants:
            same = self._same(want)
            if same in got_nothing or not self._limits.has_room(want):
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
        found, got_nothing = set[str](), set[Hashable]()
        for want in wants if self._candidates.runs else ():
            if want.request.batch or want.shortage in got_nothing or self._is_done(want):
                continue
            self._settle(want)
            helping, enough = self._enough(self._candidates.spares, want)
            if not enough:
                helping, enough = self._enough(self._candidates.runs, want)
            if not enough and want.request.id not in self._candidates.own:
                got_nothing.add(want.shortage)
            for lease in helping if enough else ():
                self._take_of_run(lease, want)
                found.add(lease.id)
        return found

    def _take_of_run(self, given: Lease, want: Unmet) -> None:
        """Take what is given of a lease, or the fewest of its devices that help as much."""
        left, run = self._places.left(want), self._candidates.by_id[given.id]
        lacking = self._lacking(left, given)
        for wanted in range(1, run.spares + 1):
            units = run.giving_up(wanted)
            if units and self._lacking(left, part := part_of(run, units)) == lacking:
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
                lease = part_of(lease, each.units)
            self._take(given_up(lease), want)
        return [each.lease for each in taken]

    def _same(self, want: Unmet) -> Hashable:
        """Return what is the same for requests of which one gets nothing where another does not."""
        request, window = want.request, self._seat_in(want.request)
        own = request.id if request.id in self._candidates.own else ""
        return want.shortage, window and window.key, own

    def _own_seats(self, request: Lease) -> list[Givers]:
        """Return the idle seats of the window that a request would sit in."""
        window, seats = self._seat_in(request), self._candidates.seats
        return [seats[window.key]] if window is not None and window.key in seats else []

    def _seat_in(self, request: Lease) -> Window | None:
        return claimable(self._snapshot, request) if self._candidates.seats else None

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
        return self._places.missing(want) <= 0 or not self._limits.has_room(want)

    def _settle(self, want: Unmet) -> None:
        self._places.settle(want, self._candidates.own.get(want.request.id, ()))

    def _take(self, lease: Lease, want: Unmet, name: str | None = None) -> None:
        """Take a lease for a request, by whose name it leaves unless another one is given."""
        if self._places.missing(want) > 0:
            self._limits.make(want)
            self.taken_for[lease.id] = name or want.request.id
            self._places.take(want, lease)
            self._candidates.drop(lease)


#: Leases whose idle stretch began within so many seconds of each other turned idle "together".
TOGETHER = 2.0
#: More than this share of the leases turning idle together is a fault of the monitoring ...
FAULT_SHARE = 0.2
#: ... where at least this many do; a class of three may well stop at one word.
FAULT_COUNT = 5
#: From so many devices taken by others on, a pool's capacity is not ours to rely on ...
TAKEN_OFTEN = 2
#: ... for so many seconds after the last one: nothing is reclaimed that others would take again.
TAKEN_HOLD = 900.0


@dataclass(frozen=True)
class Doubts:
    """What keeps a plan from reclaiming, and the message to the admin about it."""

    alerts: tuple[Alert, ...]
    reclaims_at_all: bool
    contended: frozenset[str]

    @classmethod
    def of(cls, snapshot: Snapshot) -> Doubts:
        """Return the doubts about what a snapshot shows."""
        mass = mass_idle(snapshot)
        said = [*([mass] if mass else []), *_contended(snapshot), *_silent(snapshot)]
        sure = snapshot.capacity_known and mass is None
        return cls(tuple(said), sure, contended_pools(snapshot))

    def reclaims(self, pool: str) -> bool:
        """Whether idle leases of a pool may be taken."""
        return self.reclaims_at_all and pool not in self.contended


def contended_pools(snapshot: Snapshot) -> frozenset[str]:
    """Return the pools where others keep taking what was granted: contended capacity."""
    hold = timedelta(seconds=TAKEN_HOLD)
    return frozenset(
        pool
        for pool, times in snapshot.contended.items()
        if len(times) >= TAKEN_OFTEN and snapshot.now - max(times) < hold
    )


def _contended(snapshot: Snapshot) -> list[Alert]:
    return [
        Alert(
            "",
            "foreign_capacity",
            f"Others took GPUs of pool {pool} that had been granted: nothing is reclaimed there. "
            "Taint its nodes for gpulease alone, or take others' GPU pods away.",
            {"times": len(snapshot.contended[pool])},
        )
        for pool in sorted(contended_pools(snapshot))
    ]


def mass_idle(snapshot: Snapshot) -> Alert | None:
    """Return the alert when too many leases turned idle in the same moment.

    It stands for ``unknown_hold`` seconds beyond the idle time-out after that moment: time for
    somebody to look, and no immunity when a whole class really stopped at one word.
    """
    watched = [x for x in queue.holding(snapshot) if x.state is not LeaseState.STARTING]
    outs = snapshot.policy.time_outs
    begun = sorted(
        evidence.since
        for lease in watched
        if (evidence := snapshot.evidence.get(lease.id)) is not None
        and evidence.verdict is Verdict.IDLE
        and evidence.before in (Verdict.BUSY, Verdict.QUIET)
        and (snapshot.now - evidence.since).total_seconds() < outs.idle + outs.unknown_hold
    )
    together = _most_within(begun, timedelta(seconds=TOGETHER))
    if together < FAULT_COUNT or together <= FAULT_SHARE * len(watched):
        return None
    return Alert(
        "",
        "mass_idle",
        f"{together} of {say_count(len(watched), 'lease', 'leases')} turned idle in the same "
        "moment: nothing is reclaimed until the monitoring has been looked at.",
        {"together": together, "leases": len(watched)},
    )


def _most_within(times: Sequence[datetime], span: timedelta) -> int:
    """Return how many of these instants, in order, lie within one span at most."""
    most = first = 0
    for last, at in enumerate(times):
        while at - times[first] > span:
            first += 1
        most = max(most, last - first + 1)
    return most


def _silent(snapshot: Snapshot) -> list[Alert]:
    """Return an alert for each lease of which nothing has been heard for too long."""
    alerts = []
    hold = snapshot.policy.time_outs.unknown_hold
    for lease in queue.holding(snapshot):
        evidence = snapshot.evidence.get(lease.id)
        if evidence is None or evidence.unknown_since is None:
            continue
        silent = (snapshot.now - evidence.unknown_since).total_seconds()
        if lease.state in (LeaseState.ACTIVE, LeaseState.WARNED) and silent >= hold:
            alerts.append(
                Alert(
                    lease.id,
                    "no_data",
                    f"There has been no evidence of use of lease {lease.id} of {lease.user} for "
                    f"{say_duration(round(silent))}. It is kept while nobody waits for its GPU.",
                    {"seconds": silent},
                )
            )
    return alerts
