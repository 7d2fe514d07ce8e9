"""The first step of a plan: what each lease's health asks for, with its devices put right."""

from __future__ import annotations

from dataclasses import replace

from gpulease.policy import queue
from gpulease.policy.health.binding import bindings
from gpulease.policy.health.checks import check
from gpulease.policy.health.clock import set_back
from gpulease.policy.model import (
    Action,
    Activate,
    Bind,
    End,
    EndReason,
    Lease,
    Progress,
    Snapshot,
)


def reactions(snapshot: Snapshot) -> dict[str, Action]:
    """Return the step of each lease that its own health settles in this plan, by lease."""
    right = bindings(snapshot)
    found = {
        lease.id: _bound(lease, check(snapshot, lease), right) for lease in queue.holding(snapshot)
    }
    settled = {lease_id: action for lease_id, action in found.items() if action is not None}
    settled |= {
        each.id: End(each.id, "hard_end", EndReason.EXPIRED) for each in reshaped_too_late(snapshot)
    }
    return settled | set_back(snapshot)


def reshaped_too_late(snapshot: Snapshot) -> list[Lease]:
    """Return the leases in another shape whose time ran out before they were back."""
    return [
        each
        for each in queue.reshaping(snapshot)
        if each.hard_end is not None and each.hard_end <= snapshot.now
    ]


def _bound(lease: Lease, action: Action | None, right: dict[str, tuple[str, ...]]) -> Action | None:
    """Return the lease's step with its devices put right; one that ends it needs no devices."""
    devices = right.get(lease.id)
    if devices is None:
        return action
    if action is None:
        return Bind(lease.id, lease.reason, devices)
    if isinstance(action, Activate | Progress) and devices:
        return replace(action, devices=devices)
    return action
