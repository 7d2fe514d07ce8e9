"""What each holder would lose: the leases that may give something up, and what of them.

A lease may give all of its devices, or those that it can live without.  It is offered where it
leaves anyway, where nobody uses it, where it executes a run and a person waits, or where it is held
over quota (``over_quota`` says when).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from gpulease.policy import queue
from gpulease.policy.batch import gives_way
from gpulease.policy.capacity.fitting import nodes_of, suits
from gpulease.policy.evidence.idleness import idle_case
from gpulease.policy.fairness.standing import TAKEN, units_of
from gpulease.policy.fairness.tree import Node
from gpulease.policy.health import observed_of
from gpulease.policy.lifecycle import time_outs_of
from gpulease.policy.model import Device, EndReason, Lease, LeaseState, Snapshot
from gpulease.policy.reclaim.reclaim_requests import NodeChoice
from gpulease.policy.reservations.seats import returns_to, time_outs_at


def why_idle(snapshot: Snapshot, lease: Lease, under_pressure: bool) -> str:
    """Return why the lease counts as unused for long enough, or ``""``; see ``idle_case``."""
    return idle_case(
        lease,
        snapshot.evidence.get(lease.id),
        observed_of(snapshot, lease),
        snapshot.now,
        time_outs_at(snapshot, lease),
        under_pressure=under_pressure,
    )


class Givers:
    """Leases that give up what they hold, in the order in which they are taken.

    Attributes:
        devices: how many devices each node's leases give up.
    """

    def __init__(self, leases: Iterable[Lease], known: Mapping[str, Device]) -> None:
        self.devices: Counter[str] = Counter()
        self._known = known
        self._leases: dict[str, Lease] = {}
        self._there: dict[NodeChoice, dict[str, Lease]] = {None: self._leases}
        for lease in leases:
            self._leases[lease.id] = lease
            for node, devices in nodes_of(lease, known).items():
                self._there.setdefault(node, {})[lease.id] = lease
                self.devices[node] += devices

    def __len__(self) -> int:
        return len(self._leases)

    def to(self, request: Lease, node: NodeChoice) -> Iterator[Lease]:
        """Yield those that suit a request, on one node or (``None``) anywhere."""
        for lease in self._there.get(node, {}).values():
            known = [self._known[uuid] for uuid in lease.devices if uuid in self._known]
            here = [device for device in known if node in (None, device.place)]
            if all(suits(request.gpu_class, device, request.needs) for device in here):
                yield lease

    def drop(self, lease: Lease) -> None:
        """Leave a lease out from now on; one that is not here changes nothing."""
        gone = self._leases.get(lease.id)
        if gone is not None:
            there = nodes_of(gone, self._known)
            self.devices.subtract(there)
            for node in (None, *there):
                del self._there[node][gone.id]


class Candidates:
    """The leases of a pool that may give something up without being entitled to keep it.

    Args:
        snapshot: what is known, without the leases whose step in this plan is something else.
        pool: whose leases.
        devices: by identifier.
        reclaims: whether what is not leaving anyway may be taken.

    Attributes:
        leaving: what leaves anyway; ``own`` has the same by whom it leaves for.
        idle: what nobody uses.
        seats: the same on seats of a window, by the window: its members alone get them.
        runs: what gives way to people, used or not; ``spares`` is what of these can be spared.
        by_id: the leases themselves.
    """

    def __init__(
        self, snapshot: Snapshot, pool: str, devices: Mapping[str, Device], *, reclaims: bool
    ) -> None:
        leases = [x for x in queue.holding(snapshot) if queue.pool_of(snapshot, x) == pool]
        self.by_id = {lease.id: lease for lease in leases}
        waiting = queue.waiting_ids(snapshot)

        def leaves_first(lease: Lease) -> tuple[bool, bool, object]:
            """In nobody's name before in somebody's, what drains before what is warned."""
            warned = lease.state is not LeaseState.DRAINING
            return lease.nominated_for in waiting, warned, queue.order(lease)

        def most_idle_first(lease: Lease) -> tuple[bool, float, float, object]:
            return not lease.batch, *_idleness(snapshot, lease), queue.order(lease)

        leaving = [given_up(x) for x in leases if _leaves(snapshot, x)]
        leaving = sorted([x for x in leaving if x.devices], key=leaves_first)
        self.leaving = Givers(leaving, devices)
        self.own: dict[str, list[Lease]] = {}
        for lease in leaving:
            self.own.setdefault(lease.nominated_for or "", []).append(lease)
        leases.sort(key=most_idle_first)
        idle = [x for x in leases if x.state is LeaseState.ACTIVE and why_idle(snapshot, x, True)]
        # A seat's device comes back to its window: it helps those who may sit there.
        back_to: dict[str | None, list[Lease]] = {}
        for lease in idle:
            window = returns_to(snapshot, lease) if reclaims else None
            back_to.setdefault(window.key if window is not None else None, []).append(lease)
        self.idle = Givers(back_to.pop(None, ()), devices)
        self.seats = {key: Givers(seats, devices) for key, seats in back_to.items() if key}
        runs = [x for x in leases if x.batch and x not in idle and gives_way(x, snapshot)]
        self.runs = Givers(runs if reclaims else (), devices)
        spares = [part_of(run, run.giving_up(run.spares)) for run in runs if run.spares]
        self.spares = Givers(spares if reclaims else (), devices)

    def on_node(self, node: str) -> int:
        """Return how many devices leave or are idle on a node."""
        return self.leaving.devices[node] + self.idle.devices[node]

    def drop(self, lease: Lease) -> None:
        """Leave a lease out from now on."""
        for givers in (self.leaving, self.idle, self.runs, self.spares, *self.seats.values()):
            givers.drop(lease)


def _leaves(snapshot: Snapshot, lease: Lease) -> bool:
    """Whether a lease leaves anyway."""
    if lease.state is LeaseState.DRAINING:
        return True
    if lease.state is not LeaseState.WARNED:
        return False
    if lease.reason in TAKEN and lease.nominated_for not in queue.waiting_ids(snapshot):
        return False  # whom it was taken for needs it no more
    wanted = lease.end_reason_wanted
    return wanted is not EndReason.IDLE or bool(why_idle(snapshot, lease, True))


def _idleness(snapshot: Snapshot, lease: Lease) -> tuple[float, float]:
    """Sort key: the most idle first, then the youngest."""
    evidence = snapshot.evidence.get(lease.id)
    age = (snapshot.now - (lease.active_since or snapshot.now)).total_seconds()
    return -(evidence.quiet_for if evidence else 0.0), age


def part_of(lease: Lease, units: int) -> Lease:
    """Return a lease with those devices only that it gives where it becomes so much smaller."""
    return replace(lease, devices=lease.devices[-units:])


def given_up(lease: Lease) -> Lease:
    """Return a lease with those devices only that it gives up."""
    return lease if lease.becomes is None else replace(lease, devices=lease.giving)


@dataclass(frozen=True)
class Useful:
    """How many devices of a lease a request could use; ``kind`` says who uses the same."""

    kind: Hashable
    of: Callable[[Lease], int]


@dataclass(frozen=True)
class Loan:
    """A lease that may go; ``rank``: told already, most idle, youngest first.

    One that can live with fewer devices is one loan for each of those, and then one for the rest.
    """

    lease: Lease
    leaf: Node
    units: int
    rank: tuple[bool, float, float, object]
    part: int = 0

    def gives(self, useful: Useful) -> int:
        """Return how many of its devices a request could use."""
        return min(self.units, useful.of(self.lease))


@dataclass(frozen=True)
class Given:
    """A lease that goes, or so many devices of it."""

    lease: Lease
    units: int


def may_go(snapshot: Snapshot, lease: Lease) -> bool:
    """Whether a lease that is held over quota may be taken: after its minimum runtime."""
    if lease.active_since is None or lease.in_quota_only:
        return False
    least = time_outs_of(snapshot.policy, lease).minimum_runtime
    return snapshot.now - lease.active_since >= timedelta(seconds=least)


def loans_of(snapshot: Snapshot, lease: Lease, leaf: Node) -> list[Loan]:
    """Return the parts in which a lease may go."""
    rank = _rank(snapshot, lease)
    if lease.becomes is not None:  # told already what it gives
        return [Loan(lease, leaf, len(lease.giving), rank)]
    spares, gone, fewer = lease.spares, 0, list[Loan]()
    while gone < spares:
        units = lease.giving_up(gone + 1) - gone
        fewer.append(Loan(lease, leaf, units, rank, gone))
        gone += units
    return [*fewer, Loan(lease, leaf, units_of(lease) - spares, rank, spares)]


def _rank(snapshot: Snapshot, lease: Lease) -> tuple[bool, float, float, object]:
    told = lease.state is LeaseState.WARNED
    return not told, *_idleness(snapshot, lease), queue.order(lease)


def within_project(loan: Loan) -> tuple[object, ...]:
    """Sort key of a project's loans: told already, most idle, most over the share, youngest."""
    told, idle, age, order = loan.rank
    return told, idle, loan.leaf.target - loan.leaf.held, age, order, loan.part


def next_parts(loans: Iterable[Loan]) -> Iterator[Loan]:
    """Yield loans in order, but of a lease that gives in steps only its next step."""
    seen: set[str] = set()
    for loan in loans:
        if loan.lease.steps:
            if loan.lease.id in seen:
                continue
            seen.add(loan.lease.id)
        yield loan
