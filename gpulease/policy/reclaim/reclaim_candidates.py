"""Who may ask for something back, and what each holder would lose.

Something may be asked back by who lacks nothing but devices, in the order of turns: one after the
other, as far as their limits have room.  Nothing is taken back for runs that let people go first.

A lease may give all of its devices, or those that it can live without.  It is offered where it
leaves anyway, where nobody uses it, where it executes a run and a person waits, or where it is held
over quota (``over_quota`` says when).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from gpulease.policy import queue
from gpulease.policy.fairness import TAKEN, units_of
from gpulease.policy.fitting import nodes_of, suits
from gpulease.policy.health import observed_of
from gpulease.policy.idleness import idle_case
from gpulease.policy.lifecycle import time_outs_of
from gpulease.policy.limits import Limits
from gpulease.policy.model import Device, EndReason, Lease, LeaseState, Snapshot
from gpulease.policy.queue import gives_way, stands_back
from gpulease.policy.remaining_capacity import Admission, Unmet
from gpulease.policy.reservations.seats import returns_to, time_outs_at
from gpulease.policy.shares import Node


def wants_by_pool(snapshot: Snapshot, admitted: Admission) -> dict[str, list[Unmet]]:
    """Return who lacks devices of each pool, in turn; nothing is taken for runs that stand back."""
    found: dict[str, list[Unmet]] = {}
    for want in admitted.lacking:
        if not stands_back(want.request, snapshot):
            found.setdefault(want.pool, []).append(want)
    return found


class LimitTracker:
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


#: The node to gather on; ``None`` is any.
NodeChoice = str | None


class Places:
    """The nodes on which requests gather, chosen once for each.

    One device may come from anywhere, several come from one node, and those of a request for
    several nodes from as many as it takes to have all its parts.

    Args:
        devices: by identifier.
        gives: how many devices the leases on a node give up without being entitled to keep them.
    """

    def __init__(self, devices: Mapping[str, Device], gives: Callable[[str], int]) -> None:
        self._devices, self._gives = devices, gives
        self._left: dict[str, dict[NodeChoice, int]] = {}  # request -> what is missing where
        #: lease and devices that count of it -> how many on each node
        self._where: dict[tuple[str, tuple[str, ...]], Mapping[str, int]] = {}

    def left(self, want: Unmet) -> Mapping[NodeChoice, int]:
        """Return what is missing where a request gathers; it was settled before."""
        return self._left[want.request.id]

    def missing(self, want: Unmet) -> int:
        """Return how many devices are missing in all."""
        left = self._left.get(want.request.id)
        return min(want.missing.values(), default=0) if left is None else sum(left.values())

    def settle(self, want: Unmet, own: Iterable[Lease] = ()) -> None:
        """Choose where a request gathers, unless that is done.

        Where leases leave in its name (``own``), then where enough of them leave or are idle, then
        where the fewest are missing.
        """
        request = want.request
        if request.id in self._left:
            return
        if request.count == 1 or not want.missing:
            self._left[request.id] = {None: min(want.missing.values(), default=0)}
            return
        mine: Counter[str] = Counter()
        for lease in own:
            mine.update(self.where(lease))
        if request.nodes > 1:
            chosen = self._parts(want, mine)[: request.nodes]
            self._left[request.id] = _together(chosen)
        else:
            node = self._gathering(want, mine)
            self._left[request.id] = {node: want.missing[node]}

    def choices(self, want: Unmet, *, begun: bool) -> tuple[list[tuple[NodeChoice, int]], int]:
        """Return where a request could gather with what it lacks there, best first, and at how
        many of these places it has to.

        Args:
            begun: something is taken for it already: it stays where it is.
        """
        request = want.request
        here = [(place, n) for place, n in self.left(want).items() if n > 0]
        if request.count == 1 or begun:
            return here, len(here)
        if request.nodes > 1:
            parts = self._parts(want, {})
            done = sum(not lacks for _, lacks in parts)
            return [(node, n) for node, n in parts if n], max(0, request.nodes - done)
        others = sorted(want.missing, key=lambda node: self._rank(want, node))
        return [*here, *((n, want.missing[n]) for n in others if n not in self.left(want))], 1

    def aim(self, want: Unmet, chosen: Sequence[tuple[NodeChoice, int]]) -> None:
        """Let a request gather at these places of its choices."""
        self._left[want.request.id] = _together(chosen)

    def where(self, lease: Lease) -> Mapping[str, int]:
        """Return how many of a lease's devices stand on each node."""
        key = lease.id, lease.devices
        known = self._where.get(key)
        if known is None:
            known = self._where[key] = nodes_of(lease, self._devices)
        return known

    def useful(self, want: Unmet, lease: Lease, place: NodeChoice) -> int:
        """Return how many devices of a lease a request could use at a place."""
        given = len(lease.devices) if place is None else self.where(lease).get(place, 0)
        devices = [self._devices[uuid] for uuid in lease.devices if uuid in self._devices]
        good = all(
            suits(want.request.gpu_class, device, want.request.needs)
            for device in devices
            if place in (None, device.place)
        )
        return given if good else 0

    def helps(self, want: Unmet, lease: Lease) -> bool:
        """Whether a request could use what a lease gives up where it lacks something."""
        return any(
            n > 0 and self.useful(want, lease, place) for place, n in self.left(want).items()
        )

    def without(self, left: Mapping[NodeChoice, int], lease: Lease) -> dict[NodeChoice, int]:
        """Return what is missing where once a lease has given up its devices."""
        there = self.where(lease)
        return {
            place: n - (len(lease.devices) if place is None else there.get(place, 0))
            for place, n in left.items()
        }

    def take(self, want: Unmet, lease: Lease) -> None:
        """Count the devices of a lease as a request's; what is too many helps nowhere else."""
        left = self.without(self.left(want), lease)
        self._left[want.request.id] = {place: max(0, n) for place, n in left.items()}

    def _gathering(self, want: Unmet, mine: Mapping[str, int]) -> str:
        """Return the node where most devices leave in a request's name, else the best of all."""
        return min(want.missing, key=lambda n: (-mine.get(n, 0), *self._rank(want, n)))

    def _rank(self, want: Unmet, node: str) -> tuple[bool, int, str]:
        return self._gives(node) < want.missing[node], want.missing[node], node

    def _parts(self, want: Unmet, mine: Mapping[str, int]) -> list[tuple[NodeChoice, int]]:
        """Return the parts of a request for several nodes: where, and what is missing; best first.

        Of one node's parts the one that lacks least comes first, so they are taken in their order.
        """
        ranked = []
        for node, parts in want.parts.items():
            gives, so_far = self._gives(node), 0
            for number, lacks in enumerate(parts):
                so_far += lacks
                ranked.append((lacks > 0, node not in mine, gives < so_far, lacks, node, number))
        return [(node, lacks) for *_, lacks, node, _ in sorted(ranked)]


def _together(chosen: Iterable[tuple[NodeChoice, int]]) -> dict[NodeChoice, int]:
    left: dict[NodeChoice, int] = {}
    for place, lacks in chosen:
        left[place] = left.get(place, 0) + lacks
    return left


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
