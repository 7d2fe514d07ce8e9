"""Leases that were touched while the machine's clock was ahead, once it is right again."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from gpulease.policy import queue
from gpulease.policy.model import Lease, SetBack, Snapshot

#: A clock that is set by less is none that was wrong: leases live with that.
FAR: Final = timedelta(hours=1)
#: What is noted as it happens, so never later than now.
_NOTED: Final = (
    "state_since", "stage_since", "active_since", "claimed", "idle_from", "charged_from",
)  # fmt: skip


def set_back(snapshot: Snapshot) -> dict[str, SetBack]:
    """Return for each lease whose notes are of the future by how much they are moved back.

    Else its hard end would be years ahead.
    """
    found = {}
    for lease in queue.holding(snapshot):
        ahead = [at for at in _noted(lease) if at > snapshot.now + FAR]
        if ahead:
            first = min(ahead)
            seconds = (first - snapshot.now).total_seconds()
            found[lease.id] = SetBack(lease.id, "clock_set", first, seconds)
    return found


def _noted(lease: Lease) -> list[datetime]:
    return [at for name in _NOTED if (at := getattr(lease, name)) is not None]
