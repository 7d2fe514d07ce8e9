"""Grants what is free, in the order of turns.

Owns who of the waiting gets which free device in this plan, and why the others wait.  It is
work-conserving: a request under its limits that fits what is free and not held never waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpulease.policy import capacity, limits, queue
from gpulease.policy.admission import substitution
from gpulease.policy.admission.holds import gathers
from gpulease.policy.capacity import fitting
from gpulease.policy.capacity.inventory import Inventory, joined
from gpulease.policy.fairness import turns
from gpulease.policy.model import (
    Action,
    Device,
    End,
    EndReason,
    GPUClass,
    Lease,
    LeaseState,
    Snapshot,
    Start,
    Wait,
)
from gpulease.policy.pods import ClusterQueue
from gpulease.policy.reservations.seats import Doors


@dataclass(frozen=True)
class Unmet:
    """A request that nothing but capacity keeps waiting.

    ``missing`` is how many devices it lacks on each node that could serve it at all: what is free
    or comes free there by itself is counted.
    """

    request: Lease
    pool: str
    missing: Mapping[str, int]


@dataclass
class Admission:
    """The outcome of one pass over the queue."""

    actions: list[Action] = field(default_factory=list)
    unmet: list[Unmet] = field(default_factory=list)


def served(snapshot: Snapshot, admitted: Admission) -> dict[str, list[Lease]]:
    """Return the requests that start in this plan, by the pool that they are granted from."""
    requests = {request.id: request for request in queue.waiting(snapshot)}
    found: dict[str, list[Lease]] = {}
    for action in admitted.actions:
        if isinstance(action, Start) and action.lease_id in requests:
            found.setdefault(action.pool, []).append(requests[action.lease_id])
    return found


def admit(
    snapshot: Snapshot, held: Mapping[str, str], ending: frozenset[str] = frozenset()
) -> Admission:
    """Go through the queue once, in order, and grant what is free.

    Args:
        snapshot: what is known.
        held: device -> the request that it is kept for (``holds``).
        ending: the leases that end in this same plan.
    """
    through = _Pass(snapshot, held, ending)
    for request in through.requests:
        through.serve(request)
    through.substitute()
    return through.outcome


class _Pass:
    """One pass over the queue, with what is left at each step."""

    def __init__(self, snapshot: Snapshot, held: Mapping[str, str], ending: frozenset[str]) -> None:
        self.outcome = Admission()
        self.requests = turns(snapshot)
        self._snapshot = snapshot
        self._limits = limits.Limits.of(snapshot, bounds=True)
        free = capacity.free_devices(snapshot)
        coming = capacity.coming_devices(snapshot, ending)
        pools = free.keys() | coming.keys() | {each.pool for each in snapshot.policy.classes}
        self._free = {pool: Inventory(free.get(pool, ()), held) for pool in pools}
        self._coming = {pool: Inventory(coming.get(pool, ()), held) for pool in pools}
        self._doors = Doors(snapshot, {pool: len(found) for pool, found in free.items()})
        self._rooms: dict[tuple[str, int], Mapping[str, int]] = {}
        #: Pods of each class that a queue of the cluster's has not let in yet.
        self._pending = Counter(
            each.gpu_class
            for each in queue.holding(snapshot)
            if each.state is LeaseState.STARTING and each.reason in ("starting", "cluster_queue")
        )

    def serve(self, request: Lease) -> None:
        """Grant a request what it asks for, or say what it waits for."""
        gpu_class = queue.class_of(self._snapshot.policy, request.gpu_class)
        if gpu_class is None:
            self.outcome.actions.append(End(request.id, "unknown_class", EndReason.DENIED))
            return
        why = self._kept_waiting(request)
        if why is not None:
            bound = self._limits.bound(request) if why == limits.QUOTA else None
            self._wait(request, why, bound.detail if bound is not None else "")
            return
        if gpu_class.queue is not None:
            self._hand_over(request, gpu_class, gpu_class.queue)
            return
        reserved = self._doors.refusal(request, gpu_class.pool)
        if reserved:
            self._wait(request, reserved)
            return
        free = self._free[gpu_class.pool]
        # A seat that is reserved comes before what was taken back for somebody else.
        seat = self._doors.window_for(request) is not None
        line = free.whole(gpu_class.name) if seat else free.line(request)
        # Of one node: what is held for it first, then by identifier.
        chosen = fitting.of_one_node(
            line, request.count, free.kept_for(request), self._preferred_node(request)
        )
        if len(chosen) == request.count:
            self.outcome.actions.append(self._grant(request, chosen, gpu_class))
        else:
            self._leave_waiting(request, gpu_class)

    def _hand_over(self, request: Lease, gpu_class: GPUClass, line: ClusterQueue) -> None:
        """Let the cluster's own queue decide, whatever is free; it takes so many at once."""
        if self._pending[gpu_class.name] >= line.max_pending:
            self._wait(request, "queue_full")
            return
        self._pending[gpu_class.name] += 1
        self.outcome.actions.append(self._grant(request, (), gpu_class))

    def substitute(self) -> None:
        """Serve by a fall-back who lacks a device that does not come free by itself."""
        served: dict[str, Start] = {}
        for want in self.outcome.unmet:
            request = want.request
            if min(want.missing.values(), default=1) == 0 or self._limits.exceeded(request):
                continue
            other = substitution.substitute(
                self._snapshot.policy, request, self._free, self._preferred_node(request)
            )
            if other is None or self._doors.refusal(_as(request, other[0]), other[0].pool):
                continue
            gpu_class, chosen = other
            instead = _as(request, gpu_class)
            if not self._limits.exceeded(instead) and self._limits.bound(instead) is None:
                served[request.id] = self._grant(request, chosen, gpu_class, gpu_class.name)
        found = self.outcome
        found.unmet = [each for each in found.unmet if each.request.id not in served]
        found.actions = [each for each in found.actions if each.lease_id not in served]
        found.actions += served.values()

    def _kept_waiting(self, request: Lease) -> str | None:
        return limits.kept_waiting(request, self._snapshot.now, self._limits)

    def _preferred_node(self, request: Lease) -> str:
        return self._snapshot.preferred_nodes.get(request.id, "")

    def _grant(
        self, request: Lease, chosen: Sequence[Device], gpu_class: GPUClass, fallback: str = ""
    ) -> Start:
        self._free[gpu_class.pool].take(chosen)
        served = _as(request, gpu_class)
        self._limits.start(served)
        self._doors.let_in(served, gpu_class.pool)
        devices = tuple(d.uuid for d in chosen)
        price, pool = gpu_class.price, gpu_class.pool
        return Start(request.id, "starting", devices, fallback, price, pool)

    def _leave_waiting(self, request: Lease, gpu_class: GPUClass) -> None:
        free, coming = self._free[gpu_class.pool], self._coming[gpu_class.pool]
        lines = joined(free.line(request), coming.line(request))
        hoped = fitting.of_one_node(
            lines, request.count, preferred_node=self._preferred_node(request)
        )
        room = self._room(gpu_class, request.count)
        missing = room
        if lines:
            missing = {node: max(0, n - len(lines.get(node, ()))) for node, n in room.items()}
        self.outcome.unmet.append(Unmet(request, gpu_class.pool, missing))
        lacking = "no_capacity" if room else "quarantined"
        if free.has_room(gpu_class.name, request.count):
            lacking = "held"
        self._wait(request, self._doors.lacking(request) or lacking)
        if gathers(request, self._snapshot):
            free.keep(hoped, request)
        coming.take(hoped)

    def _room(self, gpu_class: GPUClass, count: int) -> Mapping[str, int]:
        """Return the nodes that could serve so many devices of a class at all, each with ``count``.

        It is what is missing there for a request that finds nothing free.
        """
        key = gpu_class.name, count
        if key not in self._rooms:
            good = capacity.in_service(self._snapshot).get(gpu_class.pool, ())
            suiting = [device for device in good if fitting.suits(gpu_class.name, device)]
            self._rooms[key] = dict.fromkeys(sorted(fitting.room(suiting, count)), count)
        return self._rooms[key]

    def _wait(self, request: Lease, reason: str, detail: str = "") -> None:
        if reason != request.reason:
            self.outcome.actions.append(Wait(request.id, reason, detail=detail))


def _as(request: Lease, gpu_class: GPUClass) -> Lease:
    """Return a request as it would be served by a class."""
    return replace(request, gpu_class=gpu_class.name)
