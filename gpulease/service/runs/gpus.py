"""When a whole notebook's run had a GPU, and why that left: rows of its log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpulease.policy.explanation.audited import audited
from gpulease.policy.model import EndReason, Lease, LeaseState
from gpulease.runs.model import Run
from gpulease.store import TransitionRecord
from gpulease.store.runs import RunEvent


def rows(
    run: Run, lease: Lease, history: Sequence[TransitionRecord], sentence: str
) -> Iterator[RunEvent]:
    """Tell when a GPU came, when it went on with others, and when and why the GPU left.

    What happens once the run is over is not told.

    ``sentence``: what is said of the lease's end.  A run that is warned hands its GPU back by
    itself, between two cells: why is then what it was warned of.
    """
    if lease.active_since is None:
        return
    yield RunEvent(run.id, lease.active_since, "", "gpu", "")
    yield from _reshaped(run, history)
    if lease.ended is None or (run.ended is not None and lease.ended >= run.ended):
        return
    why = _warned_of(history) if lease.end_reason is EndReason.RETURNED else sentence
    yield RunEvent(run.id, lease.ended, "", "gpu_left", why)


def _reshaped(run: Run, history: Sequence[TransitionRecord]) -> Iterator[RunEvent]:
    warned = ""
    for row in history:
        if row.target == LeaseState.WARNED.value:
            warned = audited(row.why)
        elif (row.target, row.why) == (LeaseState.QUEUED.value, "reshaped"):
            yield RunEvent(run.id, row.at, "", "gpu_changed", warned)


def _warned_of(history: Sequence[TransitionRecord]) -> str:
    """Return what a lease was warned of when it was given back, ``""`` where it was not."""
    warned, leaves = LeaseState.WARNED.value, LeaseState.DRAINING.value
    if (warned, leaves) not in {(row.source, row.target) for row in history}:
        return ""
    return next((audited(row.why) for row in reversed(history) if row.target == warned), "")
