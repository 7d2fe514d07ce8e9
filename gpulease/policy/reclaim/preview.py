"""Whom another policy would warn at once."""

from __future__ import annotations

from dataclasses import replace

from gpulease.policy.model import Lease, LeaseState, PolicyDocument, Snapshot
from gpulease.policy.reclaim.unused import why_idle


def warned_by(snapshot: Snapshot, policy: PolicyDocument) -> list[Lease]:
    """Return the active leases that count as unused under a policy and do not today.

    A lease is under pressure where somebody waits for its pool.
    """
    after = replace(snapshot, policy=policy)
    return [
        lease
        for lease in snapshot.leases
        if lease.state is LeaseState.ACTIVE
        and why_idle(after, lease, _pressed(after, lease))
        and not why_idle(snapshot, lease, _pressed(snapshot, lease))
    ]


def _pressed(snapshot: Snapshot, lease: Lease) -> bool:
    pools = {each.name: each.pool for each in snapshot.policy.classes}
    pool = pools.get(lease.gpu_class)
    return any(
        each.state is LeaseState.QUEUED and pools.get(each.gpu_class) == pool
        for each in snapshot.leases
    )
