"""Why those wait who were not looked at one by one: said of all at once who want the same."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence, Set
from dataclasses import dataclass, field

from gpulease.policy import limits, queue
from gpulease.policy.admission.remaining_capacity import Left, Unmet
from gpulease.policy.fairness.fair_order import Line
from gpulease.policy.limits import Limits
from gpulease.policy.model import Action, End, EndReason, Lease, Wait


@dataclass
class Admission:
    """The outcome of one pass over the queue.

    Attributes:
        actions: what is done to the requests.
        started: pool -> the requests that start on its devices.
        limits: what is held by everybody once these have started.
        queues: in which the requests stand.
        lacking: those that nothing but capacity keeps waiting, in groups that lack the same.
    """

    actions: list[Action] = field(default_factory=list)
    started: dict[str, list[Lease]] = field(default_factory=dict)
    queues: Sequence[Line] = ()
    limits: Limits | None = None
    lacking: list[tuple[Unmet, Sequence[Lease]]] = field(default_factory=list)
    _lacks: dict[str, Unmet] = field(default_factory=dict)
    _fewer: dict[str, Lease] = field(default_factory=dict)  # who may have less than they asked for

    def lack(self, unmet: Unmet, requests: Sequence[Lease]) -> None:
        """Note who lacks the same, as far as their limits go; ``unmet`` is of any of them."""
        self.lacking.append((unmet, requests))
        self._lacks.update(dict.fromkeys([request.id for request in requests], unmet))
        if requests[0].min_count:
            self._fewer.update({request.id: request for request in requests})

    def served(self, requests: Set[str]) -> None:
        """Note that some lack nothing any more."""
        left = [
            (unmet, [x for x in found if x.id not in requests]) for unmet, found in self.lacking
        ]
        self.lacking = [(unmet, found) for unmet, found in left if found]
        for each in requests:
            self._lacks.pop(each, None)

    def unmet_of(self, request: Lease) -> Unmet | None:
        """Return what a request lacks, ``None`` where that is nothing, or more than capacity."""
        found = self._lacks.get(request.id)
        if found is None or found.request is request:
            return found
        return Unmet(self._fewer.get(request.id, request), *found[1:])

    def unmet(self, pool: str | None = None) -> Iterator[Unmet]:
        """Yield those that lack devices (of one pool), in the order of turns."""
        for line in self.queues:
            for request in line if pool is None or line.pool in (None, pool) else ():
                found = self.unmet_of(request)
                if found is not None and pool in (None, found.pool):
                    yield found


def tell_rest(left: Left, outcome: Admission, line: Line, seen: Set[str]) -> None:
    """Say to all of a line what they wait for, but to those who were ``seen`` already."""
    known: dict[Hashable, tuple[str, Unmet | None]] = {}
    for whole in line.groups:
        group = [request for request in whole if request.id not in seen] if seen else whole
        if group and queue.class_of(left.snapshot.policy, group[0].gpu_class) is None:
            outcome.actions += [End(x.id, "unknown_class", EndReason.DENIED) for x in group]
            continue
        free, others = left.limits.parted(group) if group else ((), ())
        rest = list(free)
        for request in others:
            why = limits.kept_waiting(request, left.snapshot.now, left.limits)
            if why is None:
                rest.append(request)
            else:
                wait(left, outcome, request, why)
        for kind, requests in _kinds(left, rest):
            if kind not in known:
                known[kind] = _waits_for(left, requests[0])
            reason, lacks = known[kind]
            if lacks is not None:
                outcome.lack(lacks, requests)
            outcome.actions += [Wait(x.id, reason) for x in requests if x.reason != reason]


def wait(left: Left, outcome: Admission, request: Lease, reason: str) -> None:
    """Say what a request waits for, unless it is said already."""
    if reason == request.reason:
        return
    bound = left.limits.bound(request) if reason == limits.QUOTA else None
    detail = bound.detail if bound is not None else ""
    outcome.actions.append(Wait(request.id, reason, detail=detail))


def _kinds(left: Left, group: Sequence[Lease]) -> Iterator[tuple[Hashable, Sequence[Lease]]]:
    """Yield the requests of a group by what they wait for."""
    if not group:
        return
    first = group[0]
    wish = first.gpu_class, first.needs, first.nodes, first.min_count
    if not left.doors.any and not first.min_count:
        yield (*wish, first.count), group
        return
    found: dict[Hashable, list[Lease]] = {}
    for request in group:
        within = left.limits.within(request)
        own = left.doors.kind(request) if left.doors.any else None
        found.setdefault((*wish, within.count, own), []).append(within)
    yield from found.items()


def _waits_for(left: Left, request: Lease) -> tuple[str, Unmet | None]:
    """Return why a request waits that finds nothing, and what it lacks where only that is why."""
    gpu_class = left.snapshot.policy.by_name[request.gpu_class]
    if gpu_class.pool in left.paused:
        return "paused", None
    if gpu_class.queue is not None:
        return "cluster_queue_full", None
    reserved = left.doors.refusal(request, gpu_class.pool)
    if reserved:
        return reserved, None
    return left.why_nothing(request, gpu_class), left.unmet(request, gpu_class)
