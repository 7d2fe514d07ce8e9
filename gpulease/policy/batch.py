"""Runs of whole notebooks in the queue: they take what is left, and give way first.

Nobody sits at a run, so it can wait.  Its request *stands back*: every request of a person comes
before it, and nothing is taken back for it, however idle.  So that it does not wait for ever it
does so for ``batch_wait`` at most; from then on it is a request like any other, with the ticket it
has had from the beginning.  Then, whatever others ask, only those who asked before it are served
before it.  Without projects, or where its project is guaranteed a GPU, it has one after the longest
of the leases that run by then.

Its lease *gives way* to a person's request however busy it is, after its minimum runtime, with the
ordinary warning; a cell that runs is let finish, for ``batch_cell`` at most.
"""

from __future__ import annotations

from datetime import timedelta

from gpulease.policy.lifecycle import time_outs_of
from gpulease.policy.model import Lease, LeaseState, Snapshot


def stands_back(request: Lease, snapshot: Snapshot) -> bool:
    """Whether a request lets everybody else go first."""
    waited = snapshot.now - request.ticket[0]
    return request.batch and waited < timedelta(seconds=snapshot.policy.batch_wait)


def gives_way(lease: Lease, snapshot: Snapshot) -> bool:
    """Whether a lease goes, used or not, where a person waits."""
    if not lease.batch or lease.state is not LeaseState.ACTIVE or lease.active_since is None:
        return False
    least = time_outs_of(snapshot.policy, lease).minimum_runtime
    return snapshot.now - lease.active_since >= timedelta(seconds=least)


def finishes_cell(lease: Lease, snapshot: Snapshot) -> bool:
    """Whether the drain of a lease that gives way is put off until its running cell has ended.

    Never beyond its hard end: that is nobody's to move.
    """
    evidence = snapshot.evidence.get(lease.id)
    if not lease.batch or evidence is None or not evidence.cells or lease.warned_until is None:
        return False
    until = lease.warned_until + timedelta(seconds=snapshot.policy.batch_cell)
    return snapshot.now < min(until, lease.hard_end or until)
