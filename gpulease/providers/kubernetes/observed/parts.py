"""The parts of a lease: what each of its pods is for, and which of its slots are whose.

A lease has a pod for each of its nodes, told apart by their rank; nearly every lease has one.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gpulease.policy.model import Lease


class Part(NamedTuple):
    """What one pod is for: a node, by its rank, of an attempt of a lease."""

    lease: str
    attempt: int
    rank: int = 0


#: The slots of each part.
Granted = Mapping[Part, tuple[str, ...]]


def slots_of(lease: Lease) -> dict[Part, tuple[str, ...]]:
    """Return the slots that each part of a lease's attempt was granted: equal parts, in order."""
    each = lease.per_node
    return {
        Part(lease.id, lease.attempt, rank): lease.devices[rank * each : (rank + 1) * each]
        for rank in range(lease.nodes)
    }


def devices_of(held: Granted, lease_id: str, attempt: int, nodes: int) -> tuple[str, ...]:
    """Return the slots on which all pods of an attempt are, none while one is not bound."""
    found = [held.get(Part(lease_id, attempt, rank), ()) for rank in range(nodes)]
    return tuple(slot for slots in found for slot in slots) if all(found) else ()


def granted_node(lease: Lease, rank: int = 0) -> str:
    """Return the node of the slots that a part was granted, "" where it was granted none."""
    mine = slots_of(lease)[Part(lease.id, lease.attempt, rank)]
    return mine[0].partition("/")[0] if mine else ""
