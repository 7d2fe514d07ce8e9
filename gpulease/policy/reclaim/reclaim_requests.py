"""Who may ask for something back, and what each of them lacks where.

That is who lacks nothing but devices, in the order of turns: one after the other, as far as their
limits have room.  Nothing is taken back for runs that let people go first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from gpulease.policy.admission import Admission, Unmet
from gpulease.policy.batch import stands_back
from gpulease.policy.capacity.fitting import nodes_of, suits
from gpulease.policy.limits import Limits
from gpulease.policy.model import Device, Lease, Snapshot


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
