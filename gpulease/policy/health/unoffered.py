"""Devices that no class of the policy draws on, while one of its classes finds none."""

from __future__ import annotations

from gpulease.policy.model import Alert, Snapshot
from gpulease.policy.units import say_count


def unoffered(snapshot: Snapshot) -> list[Alert]:
    """Return an alert where both is so: most likely a pool has another name than was meant.

    Devices alone that nothing is offered of may be kept back on purpose, and a class alone whose
    pool has no device may wait for its node.
    """
    if not snapshot.capacity_known:
        return []
    asked = {each.pool for each in snapshot.policy.classes}
    there = {each.pool for each in snapshot.devices}
    lacking, unused = sorted(asked - there - set(snapshot.policy.elastic)), sorted(there - asked)
    if not lacking or not unused:
        return []
    count = sum(each.pool in unused for each in snapshot.devices)
    return [
        Alert(
            "",
            "no_such_pool",
            f"The policy's classes draw on {_pools(lacking)}, where there are no GPUs, and no "
            f"class draws on {_pools(unused)}, where there {'is' if count == 1 else 'are'} "
            f"{say_count(count, 'GPU', 'GPUs')}. "
            "Give the pool in the policy the name that it has here.",
            {"devices": count},
        )
    ]


def _pools(names: list[str]) -> str:
    return f"{'pool' if len(names) == 1 else 'the pools'} {', '.join(names)}"
