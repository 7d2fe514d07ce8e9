"""How a run of a whole notebook leaves GPUs that a person waits for, between two of its cells."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from gpulease.kernel.inbox import Inbox
from gpulease.kernel.lease import LeaseLink

_IN_PART = frozenset({"preempted_in_part", "reserved_in_part"})
#: Seconds that the service may take to see that no cell runs; after that the next one begins.
_SEEN_BY = 30.0


def give_way(link: LeaseLink, inbox: Inbox) -> None:
    """Give back a lease that is warned for a person's sake, or wait while some of it leaves.

    A run's cells follow each other so closely that the service would see no end of one: it would
    put the drain off, and interrupt a cell in the end.  A lease that was given back is asked for
    again at once, and the run goes on when there is one: nobody else is hurried for it.

    Raises:
        GPULeaseError: what cannot be copied to the notebook; it is parked when the drain ends.
    """
    lease = link.mine()
    if lease is None or lease["state"] != "warned":
        return
    if lease["reason"] == "preempted":
        link.departure.give_back()
    elif lease["reason"] in _IN_PART and _is_over(lease["warned_until"]):
        inbox.wait_for(lambda: not _is_warned(link, lease["id"]), time.monotonic() + _SEEN_BY)


def _is_over(warned_until: str | None) -> bool:
    return warned_until is not None and datetime.now(UTC) >= datetime.fromisoformat(warned_until)


def _is_warned(link: LeaseLink, lease_id: str) -> bool:
    now = link.leases.get(lease_id)
    return now is not None and now["state"] == "warned"
