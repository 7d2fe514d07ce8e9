"""The names of errors that say what failed beneath a cell of a whole notebook's run.

Nobody is there to run a cell again, so the run's worker decides by the name whether the run is
tried again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpulease.errors import GPULeaseError


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
