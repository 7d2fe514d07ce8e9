"""Whom each leaving lease is taken for, and which idle leases are asked to leave for somebody.

Owns the pairing of requests that lack a device with leases that leave or could leave, in this
order: what leaves anyway, what is idle, what is held over quota (``over_quota``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Set
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heapreplace

from gpulease.policy import queue
from gpulease.policy.admission.admit import Admission, Unmet
from gpulease.policy.batch import gives_way, stands_back
from gpulease.policy.capacity.devices import known_devices
from gpulease.policy.capacity.fitting import node_of, suits
from gpulease.policy.fairness.standing import PREEMPTED
from gpulease.policy.model import EndReason, Lease, LeaseState, Snapshot
from gpulease.policy.reclaim.doubts import Doubts
from gpulease.policy.reclaim.givers import Givers
from gpulease.policy.reclaim.over_quota import Borrowed, Useful
from gpulease.policy.reclaim.unused import why_idle
from gpulease.policy.reservations.seats import claimable, returns_to


@dataclass(frozen=True)
class Taken:
    """Which lease is (to be) taken for which waiting request.

    ``borrowed``: those of them that go although they are used, for they are held over quota.
    """

    by: dict[str, str] = field(default_factory=dict)
    borrowed: set[str] = field(default_factory=set)


def nominations(
    snapshot: Snapshot, admitted: Admission, settled: Set[str], *, doubts: Doubts
) -> Taken:
    """Return what is taken for whom of those who still lack something.

    Leases that leave anyway come first, those already nominated for the request before others;
    then, where nothing is in doubt, idle ones: the most idle first, then the youngest; then those
    of runs, and those that are held over quota by others.  For a run that stands back nothing is
    taken.  A request for several devices takes no lease unless enough
    of them can be had.

    Args:
        snapshot: what is known.
        admitted: who is served in this plan, and who is not.
        settled: leases whose step in this plan is something else.
        doubts: where nothing is reclaimed.
    """
    taken, rest = Taken(), queue.without(snapshot, settled)
    for pool in sorted({each.pool for each in admitted.lacking.values()}):
        if not doubts.reclaims(pool):
            continue
        supply = _Supply(rest, pool, reclaims=doubts.reclaims_at_all)
        wants = _Wants(snapshot, admitted, pool)
        supply.pair(wants)
        taken.borrowed.update(supply.take_of_runs(wants))
        borrowed = Borrowed(snapshot, pool, supply.taken_for, settled)
        for request in () if borrowed.nothing else admitted.started.get(pool, ()):
            borrowed.coming(request)
        taken.borrowed.update(supply.take_over_quota(wants, borrowed))
        taken.by.update(supply.taken_for)
    return taken


class _Wants:
    """Those who lack devices of a pool: ``all`` in any order, itself in the order of turns.

    Runs that stand back are left out: nothing is taken back for them.
    """

    def __init__(self, snapshot: Snapshot, admitted: Admission, pool: str) -> None:
        self._admitted, self._pool = admitted, pool
        lacking = admitted.lacking.values()
        back = {x.request.id for x in lacking if x.request.batch and stands_back(x[0], snapshot)}
        self._back = back
        self.all = [x for x in lacking if x.pool == pool and x.request.id not in back]

    def __iter__(self) -> Iterator[Unmet]:
        back = self._back
        return (x for x in self._admitted.unmet(self._pool) if x.request.id not in back)


class _Supply:
    """What one pool can give besides what is free, handed out request by request."""

    def __init__(self, snapshot: Snapshot, pool: str, *, reclaims: bool) -> None:
        self.taken_for: dict[str, str] = {}
        self._snapshot = snapshot
        self._waiting = queue.waiting_ids(snapshot)
        self._missing: dict[str, int] = {}
        self._near: dict[str, str | None] = {}
        self._least: dict[int, int] = {}  # the fewest that are missing anywhere
        self._devices = known_devices(snapshot)
        leases = [x for x in queue.holding(snapshot) if queue.pool_of(snapshot, x) == pool]
        leaving = sorted((x for x in leases if self._leaves(x)), key=self._leaves_first)
        self._own: dict[str, list[Lease]] = {}
        for lease in leaving:
            self._own.setdefault(lease.nominated_for or "", []).append(lease)
        idle = [x for x in leases if x.state is LeaseState.ACTIVE and why_idle(snapshot, x, True)]
        idle.sort(key=self._most_idle_first)
        self._leaving = Givers(leaving, self._devices)
        # A seat's device comes back to its window: it helps those who may sit there.
        back_to = {lease.id: returns_to(snapshot, lease) for lease in idle if reclaims}
        self._idle = Givers([x for x in idle if back_to.get(x.id, x) is None], self._devices)
        self._seats: dict[str, Givers] = {}
        for key in {window.key for window in back_to.values() if window is not None}:
            seats = [x for x in idle if (own := back_to[x.id]) is not None and own.key == key]
            self._seats[key] = Givers(seats, self._devices)
        runs = [x for x in leases if x.batch and x not in idle and gives_way(x, snapshot)]
        runs.sort(key=self._most_idle_first)
        self._runs = Givers(runs if reclaims else (), self._devices)
        self._ranked: dict[int, list[tuple[bool, int, str]]] = {}

    def take_own(self, want: Unmet) -> None:
        """Give a request what already leaves in its name."""
        request = want.request.id
        self._settle(want)
        for lease in self._own[request]:
            if self._helps(lease, want):
                self._take(lease, request, request)

    def take_leaving(self, want: Unmet) -> None:
        """Give a request what leaves anyway.

        A lease that leaves in the name of somebody who was served by another one keeps that name:
        the two requests only swapped, and both claims stand.
        """
        request = want.request.id
        if request not in self._near:
            self._settle(want)
        for lease in self._enough(self._leaving, want):
            name = lease.nominated_for if lease.nominated_for in self._waiting else None
            self._take(lease, request, name or request)

    def take_idle(self, want: Unmet) -> None:
        """Ask idle leases to leave for a request, if there are enough of them."""
        request = want.request.id
        for givers in (*self._own_seats(want.request), self._idle):
            helping = self._enough(givers, want)
            if sum(len(lease.devices) for lease in helping) >= self._missing[request]:
                for lease in helping:
                    self._take(lease, request, request)

    def pair(self, wants: _Wants) -> None:
        """Hand out what leaves and what is idle, as long as any kind of request gets something."""
        if not self._leaving and not self._idle and not any(self._seats.values()):
            return
        for want in wants.all:
            if want.request.id in self._own:
                self.take_own(want)
        opened = {self._kind(want) for want in wants.all}
        for want in wants:
            kind, request = self._kind(want), want.request.id
            if kind not in opened:
                continue
            before = len(self.taken_for)
            self.take_leaving(want)
            self.take_idle(want)
            if len(self.taken_for) == before and self._missing[request] > 0:
                opened.discard(kind)
            if not opened or not (self._leaving or self._idle or any(self._seats.values())):
                break

    def take_of_runs(self, wants: _Wants) -> set[str]:
        """Ask leases of runs to leave, used or not, for requests of people."""
        found: set[str] = set()
        for want in wants if self._runs else ():
            request = want.request.id
            if want.request.batch or self._missing_of(want) <= 0:
                continue
            if request not in self._near:
                self._settle(want)
            helping = self._enough(self._runs, want)
            if sum(len(lease.devices) for lease in helping) >= self._missing[request]:
                for lease in helping:
                    self._take(lease, request, request)
                    found.add(lease.id)
            if not self._runs:
                break
        return found

    def take_over_quota(self, wants: _Wants, borrowed: Borrowed) -> set[str]:
        """Ask leases to leave that others hold over quota, for those who are entitled to it."""
        found: set[str] = set()
        if borrowed.nothing:
            return found
        for want in wants.all if self.taken_for else ():
            if self._missing_of(want) <= 0:
                borrowed.coming(want.request)
        every = {self._kind(want, borrowed): want.request for want in wants.all}
        of: dict[str, list[Hashable]] = {}  # project -> the kinds of its requests
        for kind, request in every.items():
            of.setdefault(request.project, []).append(kind)
        opened = {kind for kind, request in every.items() if borrowed.may_serve(request)}
        for want in wants if opened else ():
            kind = self._kind(want, borrowed)
            if kind not in opened or self._missing_of(want) <= 0:
                continue
            taken = self._take_borrowed(want, borrowed)
            found.update(lease.id for lease in taken)
            if taken:  # only who gave or got something stands otherwise than before
                touched = {each.project for each in (*taken, want.request)}
                opened.update(other for name in touched for other in of.get(name, ()))
            elif borrowed.hopeless(want.request):
                opened.discard(kind)
                if not opened:
                    break
        return found

    def _take_borrowed(self, want: Unmet, borrowed: Borrowed) -> list[Lease]:
        request, found = want.request.id, list[Lease]()
        if not borrowed.may_take(want.request):
            return found
        if request not in self._near:
            self._settle(want)
        for near in self._places(want):
            self._near[request], self._missing[request] = near
            kind = want.request.gpu_class, want.request.needs, near[0]
            helps = Useful(kind, partial(self._useful, want))
            for lease in borrowed.take(want.request, helps, self._missing[request]):
                self._take(lease, request, request)
                found.append(lease)
            if self._missing[request] <= 0:
                break
        return found

    def _kind(self, want: Unmet, borrowed: Borrowed | None = None) -> Hashable:
        """Return what requests have in common of which none gets anything where one does not.

        Who lacks the same (the very object) asks for as many of the same class.

        Args:
            want: one of them.
            borrowed: of what is held over quota; then their project counts, and not their seats.
        """
        request, missing, own = want.request, id(want.missing), ""
        if self._own and request.id in self._own:
            own = request.id
        if borrowed is not None:
            return missing, own, borrowed.kind(request)
        seats = claimable(self._snapshot, request) if self._seats else None
        return missing, own, seats and seats.key

    def _missing_of(self, want: Unmet) -> int:
        known = self._missing.get(want.request.id)
        if known is None:
            key = id(want.missing)
            known = self._least.get(key)
            if known is None:
                known = self._least[key] = min(want.missing.values(), default=0)
        return known

    def _places(self, want: Unmet) -> list[tuple[str | None, int]]:
        """Return the nodes that a request could gather on, with what it lacks there, best first."""
        request = want.request
        here = self._near[request.id], self._missing[request.id]
        if request.count == 1 or request.id in self.taken_for.values():
            return [here]  # what is taken for it already stands on one node
        others = sorted(want.missing, key=lambda node: self._rank(want, node))
        return [here, *((node, want.missing[node]) for node in others if node != here[0])]

    def _useful(self, want: Unmet, lease: Lease) -> int:
        """Return how many devices of a lease a request could use where it gathers them."""
        return len(lease.devices) if self._helps(lease, want) else 0

    def _own_seats(self, request: Lease) -> list[Givers]:
        """Return the idle seats of the window that a request would sit in."""
        window = claimable(self._snapshot, request) if self._seats else None
        return [self._seats[window.key]] if window and window.key in self._seats else []

    def _enough(self, givers: Givers, want: Unmet) -> list[Lease]:
        """Return the first leases that give a request what it lacks, or all that help it."""
        found: list[Lease] = []
        missing = self._missing[want.request.id]
        for lease in givers.to(want.request, self._near[want.request.id]):
            if missing <= 0:
                break
            found.append(lease)
            missing -= len(lease.devices)
        return found

    def _settle(self, want: Unmet) -> None:
        """Choose the node on which a request for several devices gathers them.

        Where it gathers already, then where enough of them leave or are idle, then where the
        fewest are missing.  One device may come from anywhere.
        """
        request = want.request
        if request.count == 1 or not want.missing:
            self._near[request.id] = None
            self._missing[request.id] = min(want.missing.values(), default=0)
            return
        near = self._gathering(want) or self._nearest(want)
        self._near[request.id], self._missing[request.id] = near, want.missing[near]

    def _gathering(self, want: Unmet) -> str | None:
        """Return the node where most devices leave in a request's name, ``None`` for nowhere."""
        own: Counter[str] = Counter()
        for lease in self._own.get(want.request.id, ()):
            node = node_of(lease, self._devices)
            if node in want.missing and node is not None:
                own[node] += len(lease.devices)
        return min(own, key=lambda node: (-own[node], *self._rank(want, node)), default=None)

    def _nearest(self, want: Unmet) -> str:
        """Return the best node of all.

        What is left only becomes less while it is handed out, so a node's rank only becomes worse:
        requests that lack the same go on in one heap, whose first entry is brought up to date.
        """
        heap = self._ranked.get(id(want.missing))
        if heap is None:
            heap = [self._rank(want, node) for node in want.missing]
            heapify(heap)
            self._ranked[id(want.missing)] = heap
        while (now := self._rank(want, heap[0][-1])) != heap[0]:
            heapreplace(heap, now)
        return heap[0][-1]

    def _rank(self, want: Unmet, node: str) -> tuple[bool, int, str]:
        there = self._leaving.devices[node] + self._idle.devices[node]
        return there < want.missing[node], want.missing[node], node

    def _helps(self, lease: Lease, want: Unmet) -> bool:
        """Whether a request could use what a lease gives up."""
        near = self._near[want.request.id]
        devices = [self._devices[uuid] for uuid in lease.devices if uuid in self._devices]
        return all(
            suits(want.request.gpu_class, device, want.request.needs)
            and near in (None, device.node)
            for device in devices
        )

    def _take(self, lease: Lease, request: str, name: str) -> None:
        if self._missing[request] > 0:
            self.taken_for[lease.id] = name
            self._missing[request] -= len(lease.devices)
            self._leaving.drop(lease)
            self._idle.drop(lease)
            self._runs.drop(lease)
            for seats in self._seats.values():
                seats.drop(lease)

    def _leaves(self, lease: Lease) -> bool:
        if lease.state is LeaseState.DRAINING:
            return True
        if lease.state is not LeaseState.WARNED:
            return False
        if lease.reason == PREEMPTED and lease.nominated_for not in self._waiting:
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
