"""Lets a plan that fails on some leases go on with the others, and says so.

Owns the search for the leases on which it fails.  They are set aside: what they hold stays theirs,
nothing is decided about them, and an admin is told.  Pure.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace

from gpulease.policy import queue
from gpulease.policy.model import Action, Alert, Lease, Snapshot

Planner = Callable[[Snapshot], list[Action]]


def isolated(steps: Planner, snapshot: Snapshot) -> list[Action]:
    """Return what ``steps`` plans, without the leases on which it fails.

    Raises:
        Exception: what ``steps`` raises, where no single lease is to blame.
    """
    try:
        return steps(snapshot)
    except Exception:
        # A fault in what is decided of one lease; which one it is, plans without each tell.
        leases = sorted(snapshot.leases, key=queue.order)
        failing = _failing(steps, snapshot, leases)
        if not failing:
            raise
    planned = steps(_without(snapshot, frozenset(failing)))
    return [*planned, *(_alert(lease_id, error) for lease_id, error in failing.items())]


def _failing(
    steps: Planner, snapshot: Snapshot, leases: Sequence[Lease]
) -> dict[str, BaseException]:
    """Return the leases on which a plan fails alone, with how; halves that are sound are done."""
    try:
        steps(replace(snapshot, leases=tuple(leases)))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told of this lease
        if len(leases) <= 1:
            return {each.id: error for each in leases}
        half = len(leases) // 2
        first, second = leases[:half], leases[half:]
        return _failing(steps, snapshot, first) | _failing(steps, snapshot, second)
    return {}


def _without(snapshot: Snapshot, failing: frozenset[str]) -> Snapshot:
    """Return the snapshot without some leases; their devices count as somebody else's."""
    theirs = {uuid for x in snapshot.leases if x.id in failing for uuid in x.devices}
    return replace(
        snapshot,
        leases=tuple(x for x in snapshot.leases if x.id not in failing),
        devices=tuple(
            replace(d, occupied_by="foreign") if d.uuid in theirs else d for d in snapshot.devices
        ),
    )


def _alert(lease_id: str, error: BaseException) -> Alert:
    where = traceback.extract_tb(error.__traceback__)
    place = f" ({where[-1].name}, line {where[-1].lineno})" if where else ""
    sentence = (
        f"Nothing can be planned for lease {lease_id}: {type(error).__name__}: {error}{place}. It "
        "stays as it is, and all others go on. End it, and report this."
    )
    return Alert(lease_id, "not_plannable", sentence)
