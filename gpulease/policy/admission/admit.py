"""Grants what is free, in the order of turns.

Owns who of the waiting gets which free device in this plan, and why the others wait.  It is
work-conserving: a request under its limits that fits what is free and not held never waits.

Of a long queue only the beginning is gone through one by one.  Free devices and open seats only
become fewer while a plan is made, so requests that want the same are of one *kind*: where one of
them cannot be served, none after it can.  Once all kinds are settled so, the rest is told why it
waits kind by kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from gpulease.policy import capacity, limits, queue
from gpulease.policy.admission import substitution
from gpulease.policy.admission.holds import gathers
from gpulease.policy.admission.lacking import Rooms, Unmet
from gpulease.policy.admission.outcome import Admission
from gpulease.policy.capacity import fitting
from gpulease.policy.capacity.growth import Growth
from gpulease.policy.capacity.inventory import Inventory, Nodes, joined
from gpulease.policy.fairness.turns import Line, lines
from gpulease.policy.model import (
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
    for line in through.outcome.queues:
        through.serve_line(line)
    through.substitute()
    return through.outcome


class _Pass:
    """One pass over the queue, with what is left at each step."""

    def __init__(self, snapshot: Snapshot, held: Mapping[str, str], ending: frozenset[str]) -> None:
        self._limits = limits.Limits.of(snapshot, bounds=True)
        self.outcome = Admission(queues=lines(snapshot), limits=self._limits)
        self._snapshot = snapshot
        self._keepers = frozenset(held.values())
        free = capacity.free_devices(snapshot)
        coming = capacity.coming_devices(snapshot, ending)
        self._paused = {each.name for each in snapshot.policy.pools if each.paused}
        mine = queue.becoming(snapshot)  # what runs goes on, be it in another shape
        free = {
            pool: found
            if pool not in self._paused
            else [device for device in found if held.get(device.uuid) in mine]
            for pool, found in free.items()
        }
        pools = free.keys() | coming.keys() | {each.pool for each in snapshot.policy.classes}
        self._free = {pool: Inventory(free.get(pool, ()), held) for pool in pools}
        self._coming = {pool: Inventory(coming.get(pool, ()), held) for pool in pools}
        self._growth = Growth(snapshot)
        self._doors = Doors(snapshot, {pool: len(found) for pool, found in free.items()})
        self._kinds: dict[str, Hashable] = {}
        self._expecting = {each.nominated_for for each in queue.holding(snapshot)}
        self._rooms = Rooms(snapshot)
        self._living = {each.occupied_by for each in snapshot.devices} if mine else set()
        #: Pods of each class that a queue of the cluster's has not let in yet.
        self._pending = Counter(
            each.gpu_class
            for each in queue.holding(snapshot)
            if each.state is LeaseState.STARTING and each.reason in ("starting", "cluster_queue")
        )

    def serve_line(self, line: Line) -> None:
        """Grant in turn what is free, as long as any kind of request could be served."""
        opened = self._open(line)
        keepers = {x.id for x in line.all if x.id in self._keepers} if self._keepers else set()
        seen: set[str] = set()
        if opened or keepers:
            for request in line:
                seen.add(request.id)
                keepers.discard(request.id)
                self._serve(request)
                kind = self._kind(request)
                if kind in opened and self._is_settled(request):
                    opened.discard(kind)
                if not opened and not keepers:
                    break
        self._tell_rest(line, seen)

    def _kind(self, request: Lease) -> Hashable:
        """Return what all requests have in common of which none is served where one is not."""
        if self._doors.any:  # whoever sits in a window is of a kind of their own from then on
            return self._kind_of(request)
        known = self._kinds.get(request.id)
        if known is None:
            known = self._kinds[request.id] = self._kind_of(request)
        return known

    def _kind_of(self, request: Lease) -> Hashable:
        if request.count == 1 and not self._doors.any:
            return (request.gpu_class, request.needs) if request.needs else request.gpu_class
        waits = request.count > 1 and gathers(request, self._snapshot)
        wish = request.gpu_class, request.needs, request.count, request.nodes, request.min_count
        return *wish, waits, self._doors.kind(request)

    def _open(self, line: Line) -> set[Hashable]:
        """Return the kinds of which something could be served, or kept, at all."""
        some = {pool for pool, left in self._free.items() if left}
        some |= {pool for pool, left in self._coming.items() if left}
        classes = self._snapshot.policy.by_name.values()
        some |= {each.pool for each in classes if each.queue is not None}
        some |= {pool for pool in self._snapshot.policy.elastic if self._growth.allows(pool)}
        names = {each.name for each in classes if each.pool in some - self._paused}
        if not names:
            return set()
        return {self._kind(request) for request in line.all if request.gpu_class in names}

    def _is_settled(self, request: Lease) -> bool:
        """Whether nothing is left for any request of this kind, neither to take nor to keep."""
        gpu_class = queue.class_of(self._snapshot.policy, request.gpu_class)
        if gpu_class is None or gpu_class.pool in self._paused:
            return True
        if gpu_class.queue is not None:
            return self._pending[gpu_class.name] >= gpu_class.queue.max_pending
        free, coming = self._free[gpu_class.pool], self._coming[gpu_class.pool]
        grows = self._growth.allows(gpu_class.pool, request.count)
        if grows or coming.loose(gpu_class.name, request.needs):
            return False
        if self._doors.refusal(request, gpu_class.pool):
            return True
        if self._doors.window_for(request) is not None:
            return not free.has_room(replace(request, count=request.least))
        gathering = request.count > 1 and gathers(request, self._snapshot)
        least, parts = (1, 1) if gathering else (request.per_node, request.nodes)
        least = min(least, request.least)
        loose = free.loose(gpu_class.name, request.needs).values()
        enough = (there for there in loose if len(there) >= least)
        return (
            next(enough, None) is None
            if parts == 1
            else sum(len(x) // least for x in enough) < parts
        )

    def _tell_rest(self, line: Line, seen: set[str]) -> None:
        """Say to all who were not looked at one by one what they wait for."""
        known: dict[tuple[Hashable, int], tuple[str, Unmet | None]] = {}
        actions, lacking = self.outcome.actions, self.outcome.lacking
        rest = [request for request in line.all if request.id not in seen] if seen else line.all
        for request, why in self._limits.looked_through(rest, self._snapshot.now):
            if why is not None:
                self._wait(request, why)
                continue
            kind = self._kind(request), (request := self._limits.within(request)).count
            if kind not in known:
                known[kind] = self._waits_for(request)
            reason, lacks = known[kind]
            if lacks is not None:
                lacking[request.id] = lacks._replace(request=request)
            if not reason:
                actions.append(End(request.id, "unknown_class", EndReason.DENIED))
            elif reason != request.reason:
                actions.append(Wait(request.id, reason))

    def _waits_for(self, request: Lease) -> tuple[str, Unmet | None]:
        """Return why a request waits that finds nothing ("": there is no such class), and what it
        lacks where only capacity is missing.
        """
        gpu_class = queue.class_of(self._snapshot.policy, request.gpu_class)
        if gpu_class is None:
            return "", None
        if gpu_class.pool in self._paused:
            return "paused", None
        if gpu_class.queue is not None:
            return "cluster_queue_full", None
        reserved = self._doors.refusal(request, gpu_class.pool)
        if reserved:
            return reserved, None
        lacks = self._rooms.unmet(gpu_class, request, self._line(request, gpu_class))
        return self._lacking(request, gpu_class), lacks

    def _serve(self, request: Lease) -> None:
        """Grant a request what it asks for, or say what it waits for."""
        gpu_class = queue.class_of(self._snapshot.policy, request.gpu_class)
        if gpu_class is None:
            self.outcome.actions.append(End(request.id, "unknown_class", EndReason.DENIED))
            return
        why = self._kept_waiting(request, gpu_class)
        if why is not None:
            self._wait(request, why)
            return
        request = self._limits.within(request)
        if gpu_class.queue is not None:
            self._hand_over(request, gpu_class, gpu_class.queue)
            return
        free = self._free[gpu_class.pool]
        goes_on = request.kept and len(free.kept_for(request)) >= request.count
        reserved = "" if goes_on else self._doors.refusal(request, gpu_class.pool)
        if reserved:
            if not self._grow(request, gpu_class):
                self._wait(request, reserved)
            return
        # A seat that is reserved comes before what was taken back for somebody else.
        seat = self._doors.window_for(request) is not None
        line = free.line(request)
        if seat:
            line = free.whole(request, queue.becoming(self._snapshot) - {request.id})
        # Of one node each: what is held for it first, then by identifier.
        choose = fitting.warm_first if free.warm else fitting.for_request
        node, kept = self._preferred_node(request), frozenset(free.kept_for(request))
        chosen = choose(line, request, fitting.Preference(kept, node, free.versatile))
        if len(chosen) < request.count and self._takes_fewer(request, gpu_class, len(chosen)):
            request = replace(request, count=request.fit(len(chosen)))
            chosen = choose(line, request, fitting.Preference(kept, node, free.versatile))
        if len(chosen) == request.count:
            self.outcome.actions.append(self._grant(request, chosen, gpu_class))
        else:
            self._leave_waiting(request, gpu_class)

    def _kept_waiting(self, request: Lease, gpu_class: GPUClass) -> str | None:
        """Return why a request waits whatever is free, or ``None``."""
        why = limits.kept_waiting(request, self._snapshot.now, self._limits)
        if why is not None:
            return why
        if not request.kept:
            return "paused" if gpu_class.pool in self._paused else None
        # What it was has not ended: two of one lease would end each other.
        return request.reason if request.id in self._living else None

    def _takes_fewer(self, request: Lease, gpu_class: GPUClass, number: int) -> bool:
        """Whether a request starts with fewer devices than it asked for.

        With as many as there are, if it allows it; but not while all of them come by themselves,
        or somebody leaves in its name.
        """
        if not request.fit(number) or request.id in self._expecting:
            return False
        line = self._line(request, gpu_class)
        missing = self._rooms.unmet(gpu_class, request, line).missing
        return min(missing.values(), default=1) > 0

    def _hand_over(self, request: Lease, gpu_class: GPUClass, line: ClusterQueue) -> None:
        """Let the cluster's own queue decide, whatever is free; it takes so many at once."""
        if self._pending[gpu_class.name] >= line.max_pending:
            self._wait(request, "cluster_queue_full")
            return
        self._pending[gpu_class.name] += 1
        self.outcome.actions.append(self._grant(request, (), gpu_class))

    def _grow(self, request: Lease, gpu_class: GPUClass) -> bool:
        """Let a request wait for a node to be added, where its pool may grow so far."""
        if not self._growth.allows(gpu_class.pool, request.count):
            return False
        self._growth.ask(gpu_class.pool, request.count)
        self.outcome.actions.append(self._grant(request, (), gpu_class))
        return True

    def substitute(self) -> None:
        """Serve by a fall-back who lacks a device that does not come free by itself."""
        classes, lacking = self._snapshot.policy.by_name, self.outcome.lacking
        falls = {name for name, each in classes.items() if each.fallback}
        if not falls or not any(self._free.values()):
            return
        opened = {
            self._may_fall(x)
            for line in self.outcome.queues
            for x in line.all
            if x.gpu_class in falls and x.id in lacking
        }
        served: dict[str, Start] = {}
        for want in self.outcome.unmet() if opened else ():
            request = want.request
            kind = self._may_fall(request)
            if kind not in opened or min(want.missing.values(), default=1) == 0:
                continue
            other = substitution.substitute(
                self._snapshot.policy, request, self._free, self._preferred_node(request)
            )
            if other is None or self._doors.refusal(_as(request, other[0]), other[0].pool):
                opened.discard(kind)
                if not opened:
                    break
                continue
            gpu_class, chosen = other
            instead = self._limits.within(_as(request, gpu_class))
            if self._limits.exceeded(request) or self._limits.exceeded(instead):
                continue
            if self._limits.bound(instead) is None:
                served[request.id] = self._grant(
                    request, chosen[: instead.count], gpu_class, gpu_class.name
                )
        if served:
            self.outcome.lacking = {k: v for k, v in lacking.items() if k not in served}
            actions = [each for each in self.outcome.actions if each.lease_id not in served]
            self.outcome.actions = [*actions, *served.values()]

    def _may_fall(self, request: Lease) -> Hashable:
        """Return the kind of a request, and the classes that it may be served by at all."""
        return self._kind(request), self._snapshot.policy.projects.home(request.project).classes

    def _preferred_node(self, request: Lease) -> str:
        return self._snapshot.preferred_nodes.get(request.id, "")

    def _grant(
        self, request: Lease, chosen: Sequence[Device], gpu_class: GPUClass, fallback: str = ""
    ) -> Start:
        pool = gpu_class.pool
        self._free[pool].take(chosen)
        served = _as(request, gpu_class)
        if 0 < len(chosen) < request.count:
            request = replace(request, count=len(chosen))
            served = replace(served, count=len(chosen))
        self._limits.start(served)
        window = self._doors.window_for(served)
        terms = self._snapshot.policy.reservations
        image = terms.of_group(window.of.group).image if window is not None else ""
        beyond = not chosen and gpu_class.queue is None  # a node has to be added first
        self._doors.let_in(served, pool, beyond=beyond)
        if not beyond:
            self.outcome.started.setdefault(pool, []).append(request)
        devices = tuple([d.uuid for d in chosen])
        reason = "adding_node" if beyond else "starting"
        count = len(devices) or request.count
        return Start(
            request.id, reason, devices, fallback, gpu_class.device_price, pool, image, count
        )

    def _leave_waiting(self, request: Lease, gpu_class: GPUClass) -> None:
        free, coming = self._free[gpu_class.pool], self._coming[gpu_class.pool]
        line = self._line(request, gpu_class)
        unmet = self._rooms.unmet(gpu_class, request, line)
        if min(unmet.missing.values(), default=1) > 0 and self._grow(request, gpu_class):
            return  # what comes free by itself is not enough
        self.outcome.lacking[request.id] = unmet
        self._wait(request, self._lacking(request, gpu_class))
        if request.count > 1:  # on a node without room for it it would hope, and hold, in vain
            room = self._rooms.nodes(gpu_class, request)
            line = {node: there for node, there in line.items() if node in room}
        preferred = fitting.Preference(node=self._preferred_node(request))
        hoped = fitting.for_request(line, request, preferred)
        if gathers(request, self._snapshot):
            free.keep(hoped, request)
        coming.take(hoped)

    def _line(self, request: Lease, gpu_class: GPUClass) -> Nodes:
        """Return what is free or comes on each node, for a request."""
        free, coming = self._free[gpu_class.pool], self._coming[gpu_class.pool]
        return joined(free.line(request), coming.line(request))

    def _lacking(self, request: Lease, gpu_class: GPUClass) -> str:
        """Return the reason of a request that found nothing."""
        grows = self._growth.grows(gpu_class.pool)  # what is not there is not out of order
        lacking = "no_capacity" if grows or self._rooms.nodes(gpu_class, request) else "quarantined"
        if self._free[gpu_class.pool].has_room(request):
            lacking = "held"
        return self._doors.lacking(request) or lacking

    def _wait(self, request: Lease, reason: str) -> None:
        if reason == request.reason:
            return
        bound = self._limits.bound(request) if reason == limits.QUOTA else None
        detail = bound.detail if bound is not None else ""
        self.outcome.actions.append(Wait(request.id, reason, detail=detail))


def _as(request: Lease, gpu_class: GPUClass) -> Lease:
    """Return a request as it would be served by a class."""
    if request.gpu_class == gpu_class.name:
        return request
    return replace(request, gpu_class=gpu_class.name)
