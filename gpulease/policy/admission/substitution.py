"""Serves a request by another class when its own is full.

A request gets the fall-backs of the class that it asks for, one after the other, and no further.
Whoever asks for that class itself comes first, and nobody is asked to leave for a fall-back.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace

from gpulease.policy import queue
from gpulease.policy.admission.remaining_capacity import Admission, Left
from gpulease.policy.capacity import fitting
from gpulease.policy.capacity.fitting import Inventory
from gpulease.policy.model import Device, GPUClass, Lease, PolicyDocument


def alternatives(policy: PolicyDocument, request: Lease) -> list[GPUClass]:
    """Return the classes that may serve a request instead of its own, in order."""
    own = queue.class_of(policy, request.gpu_class)
    found = [queue.class_of(policy, name) for name in own.fallback] if own else []
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
