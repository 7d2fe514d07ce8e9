"""Grants what is free, in the order of turns.

Here it is decided which waiting request gets which free device in this plan, and why the others
wait.  It is work-conserving: a request under its limits that fits what is free and not held never
waits.  A request that its own class cannot serve gets the fall-backs of that class, one after the
other, and no further: a request for the class itself comes first, and nobody leaves for a
fall-back.

By the same rules ``within_reach`` finds out what of a lease's wish is free by now: the class
that was asked for, or more devices of its own.  The lease is treated as if it asked again, with its
own devices kept for it.  Nobody leaves for a wish, and the lease is drained for it, so its holder
has to say so.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

from gpulease.errors import GPULeaseError
from gpulease.policy import capacity, fitting, limits, queue
from gpulease.policy.fairness import turns
from gpulease.policy.fitting import Inventory
from gpulease.policy.model import (
    Device,
    End,
    EndReason,
    GPUClass,
    Lease,
    LeaseState,
    PolicyDocument,
    Shape,
    Snapshot,
    Start,
    Wait,
)
from gpulease.policy.pods import ClusterQueue
from gpulease.policy.remaining_capacity import Admission, Left, Unmet, gathers, holds
from gpulease.texts import Text


def admit(
    snapshot: Snapshot, held: Mapping[str, str], ending: frozenset[str] = frozenset()
) -> Admission:
    """Go through the queue once, in order, and grant what is free.

    Args:
        snapshot: what is known.
        held: device -> the request that it is kept for (``holds``).
        ending: the leases that end in this same plan.
    """
    through = _Pass(Left(snapshot, held, ending))
    for request in turns(snapshot):
        through.serve(request)
    through.substitute()
    through.tell_why()
    return through.outcome


class _Pass:
    """One pass over the queue, with what is left at each step."""

    def __init__(self, left: Left) -> None:
        self._left = left
        self.outcome = Admission(left.limits)
        self._expecting = {each.nominated_for for each in queue.holding(left.snapshot)}
        #: What the next one lacks who asks for the same (``_same``), as long as nothing is taken,
        #: or why it is not let in.
        self._found_nothing: dict[Hashable, Unmet | str] = {}

    def serve(self, request: Lease) -> None:
        """Grant a request what it asks for, or say what it waits for."""
        gpu_class = self._left.snapshot.policy.by_name.get(request.gpu_class)
        if gpu_class is None:
            self.outcome.actions.append(End(request.id, "unknown_class", EndReason.DENIED))
            return
        why = self._kept_waiting(request, gpu_class)
        if why is not None:
            self._wait(request, why)
            return
        request = self._left.limits.within(request)
        if gpu_class.queue is not None:
            self._hand_over(request, gpu_class, gpu_class.queue)
            return
        same = self._same(request)
        if self._finds_nothing(request, same):
            return
        free = self._left.free[gpu_class.pool]
        goes_on = request.kept and len(free.kept_for(request)) >= request.count
        reserved = "" if goes_on else self._left.doors.refusal(request, gpu_class.pool)
        if reserved:
            if not self._grow(request, gpu_class):
                self._found_nothing[same] = reserved
                self._wait(request, reserved)
            return
        # A seat that is reserved comes before what was taken back for somebody else.
        seat = self._left.doors.window_for(request) is not None
        line = free.line(request)
        if seat:
            line = free.whole(request, queue.becoming(self._left.snapshot) - {request.id})
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

    def _same(self, request: Lease) -> Hashable:
        """Return what is the same for requests of which one finds nothing where another does."""
        left = self._left
        own = request.id in left.keepers or request.id in self._expecting
        gathering = gathers(request, left.snapshot)
        return request.wish, gathering, left.doors.kind(request), request.id if own else ""

    def _finds_nothing(self, request: Lease, same: Hashable) -> bool:
        """Let a request wait where it is known already that it finds nothing."""
        nothing = self._found_nothing.get(same)
        if isinstance(nothing, str):
            self._wait(request, nothing)
        elif nothing is not None:
            self.outcome.lacking.append(nothing._replace(request=request))
        return nothing is not None

    def _kept_waiting(self, request: Lease, gpu_class: GPUClass) -> str | None:
        """Return why a request waits whatever is free, or ``None``."""
        why = limits.kept_waiting(request, self._left.snapshot.now, self._left.limits)
        if why is not None:
            return why
        if not request.kept:
            return "paused" if gpu_class.pool in self._left.paused else None
        # What it was has not ended: two of one lease would end each other.
        return request.reason if request.id in self._left.living else None

    def _takes_fewer(self, request: Lease, gpu_class: GPUClass, number: int) -> bool:
        """Whether a request starts with fewer devices than it asked for.

        With as many as there are, if it allows it; but not while all of them come by themselves,
        or somebody leaves in its name.
        """
        if not request.fit(number) or request.id in self._expecting:
            return False
        missing = self._left.unmet(request, gpu_class).missing
        return min(missing.values(), default=1) > 0

    def _hand_over(self, request: Lease, gpu_class: GPUClass, line: ClusterQueue) -> None:
        """Let the cluster's own queue decide, whatever is free; it takes so many at once."""
        if self._left.pending[gpu_class.name] >= line.max_pending:
            self._wait(request, "cluster_queue_full")
            return
        self._left.pending[gpu_class.name] += 1
        self.outcome.actions.append(self._grant(request, (), gpu_class))

    def _grow(self, request: Lease, gpu_class: GPUClass) -> bool:
        """Let a request wait for a node to be added, where its pool may grow so far."""
        if not self._left.growth.allows(gpu_class.pool, request.count):
            return False
        self._left.growth.ask(gpu_class.pool, request.count)
        self.outcome.actions.append(self._grant(request, (), gpu_class))
        return True

    def substitute(self) -> None:
        """Serve by a fall-back who lacks a device that does not come free by itself."""
        left, served = self._left, dict[str, Start]()
        for request, gpu_class, chosen in substitutes(left, self.outcome):
            instead = left.limits.within(served_by(request, gpu_class))
            if left.limits.exceeded(request) or left.limits.exceeded(instead):
                continue
            if left.limits.bound(instead) is None:
                devices = chosen[: instead.count]
                served[request.id] = self._grant(request, devices, gpu_class, gpu_class.name)
        self.outcome.actions += served.values()
        self.outcome.lacking = [x for x in self.outcome.lacking if x.request.id not in served]

    def tell_why(self) -> None:
        """Say what those wait for who lack devices, once all is granted."""
        for want in self.outcome.lacking:
            gpu_class = self._left.snapshot.policy.by_name[want.request.gpu_class]
            self._wait(want.request, self._left.why_nothing(want.request, gpu_class))

    def _preferred_node(self, request: Lease) -> str:
        return self._left.snapshot.preferred_nodes.get(request.id, "")

    def _grant(
        self, request: Lease, chosen: Sequence[Device], gpu_class: GPUClass, fallback: str = ""
    ) -> Start:
        pool = gpu_class.pool
        self._found_nothing.clear()
        self._left.free[pool].take(chosen)
        served = served_by(request, gpu_class)
        if 0 < len(chosen) < request.count:
            request = replace(request, count=len(chosen))
            served = replace(served, count=len(chosen))
        self._left.limits.start(served)
        window = self._left.doors.window_for(served)
        terms = self._left.snapshot.policy.reservations
        image = terms.of_group(window.of.group).image if window is not None else ""
        beyond = not chosen and gpu_class.queue is None  # a node has to be added first
        self._left.doors.let_in(served, pool, beyond=beyond)
        if not beyond:
            self.outcome.started.setdefault(pool, []).append(request)
        devices = tuple([d.uuid for d in chosen])
        reason = "adding_node" if beyond else "starting"
        count = len(devices) or request.count
        return Start(
            request.id, reason, devices, fallback, gpu_class.device_price, pool, image, count
        )

    def _leave_waiting(self, request: Lease, gpu_class: GPUClass) -> None:
        free, coming = self._left.free[gpu_class.pool], self._left.coming[gpu_class.pool]
        unmet = self._left.unmet(request, gpu_class)
        if min(unmet.missing.values(), default=1) > 0 and self._grow(request, gpu_class):
            return  # what comes free by itself is not enough
        self.outcome.lacking.append(unmet)
        line = self._left.line(request, gpu_class)
        if request.count > 1:  # on a node without room for it it would hope, and hold, in vain
            room = self._left.rooms(request, gpu_class)
            line = {node: there for node, there in line.items() if node in room}
        preferred = fitting.Preference(node=self._preferred_node(request))
        hoped = fitting.for_request(line, request, preferred)
        keeps = gathers(request, self._left.snapshot)
        taken = [device for device in hoped if keeps or device in coming]
        if not taken:
            self._found_nothing[self._same(request)] = unmet
            return
        self._found_nothing.clear()
        if keeps:
            free.keep(taken, request)
        coming.take(taken)

    def _wait(self, request: Lease, reason: str) -> None:
        """Say what a request waits for, unless it is said already."""
        if reason == request.reason:
            return
        bound = self._left.limits.bound(request) if reason == limits.QUOTA else None
        detail = bound.detail if bound is not None else ""
        self.outcome.actions.append(Wait(request.id, reason, detail=detail))


def alternatives(policy: PolicyDocument, request: Lease) -> list[GPUClass]:
    """Return the classes that may serve a request instead of its own, in order."""
    own = policy.by_name.get(request.gpu_class)
    found = [policy.by_name.get(name) for name in own.fallback] if own else []
    allowed = policy.projects.home(request.project).classes
    return [
        each
        for each in found
        if each is not None and each.most >= request.least and (not allowed or each.name in allowed)
    ]


def substitute(
    policy: PolicyDocument,
    request: Lease,
    free: Mapping[str, Inventory],
    preferred_node: str = "",
) -> tuple[GPUClass, list[Device]] | None:
    """Return the first fall-back with room, and the devices, ``None`` when there is none.

    They are fewer than were asked for only where the request allows it.

    Args:
        policy: the classes on offer.
        request: one that its own class cannot serve now.
        free: what is left of each pool once everybody was served who asked for it.
        preferred_node: the node of its notebook server, "" where that is not known.
    """
    for other in alternatives(policy, request):
        left = free.get(other.pool)
        if left is None:
            continue
        chosen = fitting.for_request(
            left.loose(other.name, request.needs),
            request,
            fitting.Preference(node=preferred_node, versatile=left.versatile),
        )
        number = request.fit(min(len(chosen), other.most))
        if number:
            return other, chosen[:number]
    return None


def substitutes(left: Left, outcome: Admission) -> Iterator[tuple[Lease, GPUClass, list[Device]]]:
    """Yield who lacks a device that does not come free by itself, in turn, with a fall-back.

    Args:
        left: what is left once everybody was served who asked for it; less after each.
        outcome: who lacks what.
    """
    policy, found_nothing = left.snapshot.policy, set[Hashable]()
    for want in outcome.lacking if any(left.free.values()) else ():
        request = want.request
        # What is left only becomes less: who asks for the same finds nothing either.
        classes = policy.projects.home(request.project).classes
        same = request.wish, left.doors.kind(request), classes
        if same in found_nothing or min(want.missing.values(), default=1) == 0:
            continue
        near = left.snapshot.preferred_nodes.get(request.id, "")
        other = substitute(policy, request, left.free, near)
        if other is None or left.doors.refusal(served_by(request, other[0]), other[0].pool):
            found_nothing.add(same)
            continue
        yield request, *other


def served_by(request: Lease, gpu_class: GPUClass) -> Lease:
    """Return a request as it would be served by a class."""
    if request.gpu_class == gpu_class.name:
        return request
    return replace(request, gpu_class=gpu_class.name)


def has_wish(lease: Lease) -> bool:
    """Whether an active lease is less than what was asked for."""
    return lease.state is LeaseState.ACTIVE and bool(lease.asked_class or lease.asked_count)


def within_reach(snapshot: Snapshot) -> dict[str, Shape]:
    """Return the best of what was asked for that each lease could be now, all of them at once.

    The class comes first, then the number of devices; no lease has fewer of them than now.  A
    device is offered to one of them only: to whoever asked first, as everywhere.
    """
    if not snapshot.capacity_known:
        return {}
    first = sorted(filter(has_wish, snapshot.leases), key=lambda lease: lease.ticket)
    wishing = {lease.id: lease for lease in first}
    left = {name: options for name, x in wishing.items() if (options := _better(snapshot, x))}
    found: dict[str, Shape] = {}
    while left:  # as often as one of them has options
        asked = [(wishing[name], *options[0]) for name, options in left.items()]
        found |= _admitted(snapshot, asked, found)
        left = {
            name: options[1:]
            for name, options in left.items()
            if name not in found and len(options) > 1
        }
    return found


def granted(snapshot: Snapshot, lease: Lease) -> Shape:
    """Return what a lease becomes at its holder's word.

    Raises:
        GPULeaseError: ``nothing_wished``, ``wish_not_free`` (status 409).
    """
    if not has_wish(lease):
        raise GPULeaseError(
            "nothing_wished",
            Text("There is nothing to change: this lease is what you requested."),
            next_step=Text("For another GPU, release this one first, then request it."),
        )
    found = _first(snapshot, lease)
    if found is None:
        raise GPULeaseError(
            "wish_not_free",
            Text("What you asked for is not free at present."),
            next_step=Text("You get a note when it is. Keep working with what you have."),
            numbers={
                "gpu_class": lease.asked_class or lease.gpu_class,
                "count": lease.asked_count or lease.count,
            },
        )
    return found


def _first(snapshot: Snapshot, lease: Lease) -> Shape | None:
    """Return what one lease could be now, whatever others wish."""
    for option in _better(snapshot, lease) if snapshot.capacity_known else ():
        found = _admitted(snapshot, [(lease, *option)], {})
        if found:
            return found[lease.id]
    return None


def _better(snapshot: Snapshot, lease: Lease) -> list[tuple[str, int]]:
    """Return what would be nearer to the wish and may have enough devices, best first."""
    free = capacity.free_devices(snapshot)
    most, found = lease.asked_count or lease.count, []
    for name in filter(None, (lease.asked_class, lease.gpu_class)):
        gpu_class = snapshot.policy.by_name.get(name)
        if gpu_class is None or gpu_class.queue is not None:  # the cluster's queue promises nothing
            continue
        mine = queue.pool_of(snapshot, lease) == gpu_class.pool
        there = len(free.get(gpu_class.pool, ())) + (len(lease.devices) if mine else 0)
        least = lease.count + (name == lease.gpu_class)
        counts = range(min(most, there, gpu_class.most), least - 1, -1)
        found += [(name, count) for count in counts if _may_be(lease, count, most)]
    return found


def _may_be(lease: Lease, count: int, most: int) -> bool:
    """Whether a lease can be of so many devices: equal parts of its nodes, a step of its class."""
    return count % lease.nodes == 0 and (not lease.steps or count in (most, *lease.steps))


def _admitted(
    snapshot: Snapshot, asked: Sequence[tuple[Lease, str, int]], before: Mapping[str, Shape]
) -> dict[str, Shape]:
    """Return what a plan would grant if these waited for a class and count, last of all.

    Their own devices are kept for each, and what is found ``before`` for others.
    """
    asks = {
        lease.id: replace(
            lease,
            state=LeaseState.QUEUED,
            gpu_class=gpu_class,
            asked_class="",
            count=count,
            asked_count=0,
            min_count=0,
            devices=(),
            reason="",
            ticket=(snapshot.now, sys.maxsize - len(asked) + place),
        )
        for place, (lease, gpu_class, count) in enumerate(asked)
    }
    own = {uuid: lease.id for lease, _, _ in asked for uuid in lease.devices}
    devices = [replace(d, occupied_by=None) if d.uuid in own else d for d in snapshot.devices]
    leases = [asks.get(each.id, each) for each in snapshot.leases]
    then = replace(snapshot, devices=tuple(devices), leases=tuple(leases))
    taken = {uuid: name for name, shape in before.items() for uuid in shape.devices}
    return {
        action.lease_id: Shape(asks[action.lease_id].gpu_class, action.devices)
        for action in admit(then, {**holds(then), **taken, **own}).actions
        if isinstance(action, Start)
        and action.lease_id in asks
        and action.devices
        and action.gpu_class in ("", asks[action.lease_id].gpu_class)
    }
