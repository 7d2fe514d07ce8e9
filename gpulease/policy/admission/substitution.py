"""Serves a request by another class when its own is full.

Owns the order of fall-backs: those of the class the request asks for, one after the other, and no
further.  Whoever asks for that class itself comes first, and nobody is asked to leave for a
fall-back.  Refuses to know why the request waits.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpulease.policy import queue
from gpulease.policy.capacity import fitting
from gpulease.policy.capacity.inventory import Inventory
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
