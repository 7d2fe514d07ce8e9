"""What differs in the run of a whole notebook, where nobody sits: its errors, and how it gives way.

Nobody is there to run a cell again, so the run's worker decides by the name of what failed beneath
a cell whether the run is tried again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from gpulease.errors import GPULeaseError
from gpulease.kernel.inbox import Inbox
from gpulease.kernel.lease import LeaseLink


class GPUReclaimed(GPULeaseError):  # noqa: N818 - the name that people read
    """The GPU was taken back while a cell ran; ``lab.run_worker`` knows it by its name."""


class GPUTimeOver(GPUReclaimed):
    """So the time for which the GPU was granted: the same cell would be stopped again."""


class GPULost(GPULeaseError):  # noqa: N818 - as above
    """The lease failed beneath a run: its node, its device, or the process that held it."""


class CompanionDied(GPULeaseError):  # noqa: N818 - as above
    """The process on the GPU died under a run, as a kernel does."""


#: What a run's end is called by the reason of its cell's error.
_LOST: dict[str, type[GPULeaseError]] = {
    "lease_ended": GPULost,
    "lease_lost": GPULost,
    "failed": GPULost,
    "companion_died": CompanionDied,
    "companion_gone": CompanionDied,
}


@contextmanager
def told_apart(*, unattended: bool) -> Iterator[None]:
    """In a run (``unattended``), give what failed beneath a cell the name that says so.

    What could be done next is left out: nobody is there to do it.
    """
    try:
        yield
    except GPULeaseError as error:
        kind = _LOST.get(error.reason) if type(error) is GPULeaseError else None
        if isinstance(error, GPUReclaimed) and error.reason == "reclaimed":
            kind = type(error)
        kind = kind if unattended else None
        if kind is None:
            raise
        raise kind(
            error.reason, error.sentence, numbers=error.numbers, status=error.status
        ) from None


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
