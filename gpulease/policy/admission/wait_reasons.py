"""Why those wait who were not looked at one by one: said of all at once who want the same."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence, Set

from gpulease.policy import limits, queue
from gpulease.policy.admission.lacking import Unmet
from gpulease.policy.admission.outcome import Admission
from gpulease.policy.admission.remaining_capacity import Left
from gpulease.policy.fairness.fair_order import Line
from gpulease.policy.model import End, EndReason, Lease, Wait


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
