"""What may be taken back of a lease: all of it, or the devices that it can live without."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from gpulease.policy import queue
from gpulease.policy.fairness.standing import units_of
from gpulease.policy.fairness.tree import Node
from gpulease.policy.lifecycle import time_outs_of
from gpulease.policy.model import Lease, LeaseState, Snapshot


@dataclass(frozen=True)
class Useful:
    """How many devices of a lease a request could use; ``kind`` says who uses the same."""

    kind: Hashable
    of: Callable[[Lease], int]


@dataclass(frozen=True)
class Loan:
    """A lease that may go; ``rank``: told already, most idle, youngest first.

    One that can live with fewer devices is one loan for each of those, and then one for the rest.
    """

    lease: Lease
    leaf: Node
    units: int
    rank: tuple[bool, float, float, object]
    part: int = 0

    def gives(self, useful: Useful) -> int:
        """Return how many of its devices a request could use."""
        return min(self.units, useful.of(self.lease))


@dataclass(frozen=True)
class Given:
    """A lease that goes, or so many devices of it."""

    lease: Lease
    units: int


def may_go(snapshot: Snapshot, lease: Lease) -> bool:
    """Whether a lease that is held over quota may be taken: after its minimum runtime."""
    if lease.active_since is None or lease.in_quota_only:
        return False
    least = time_outs_of(snapshot.policy, lease).minimum_runtime
    return snapshot.now - lease.active_since >= timedelta(seconds=least)


def loans_of(snapshot: Snapshot, lease: Lease, leaf: Node) -> list[Loan]:
    """Return the parts in which a lease may go."""
    rank = _rank(snapshot, lease)
    if lease.becomes is not None:  # told already what it gives
        return [Loan(lease, leaf, len(lease.giving), rank)]
    spares, gone, fewer = lease.spares, 0, list[Loan]()
    while gone < spares:
        units = lease.giving_up(gone + 1) - gone
        fewer.append(Loan(lease, leaf, units, rank, gone))
        gone += units
    return [*fewer, Loan(lease, leaf, units_of(lease) - spares, rank, spares)]


def _rank(snapshot: Snapshot, lease: Lease) -> tuple[bool, float, float, object]:
    evidence = snapshot.evidence.get(lease.id)
    age = (snapshot.now - (lease.active_since or snapshot.now)).total_seconds()
    told = lease.state is LeaseState.WARNED
    return not told, -(evidence.quiet_for if evidence else 0.0), age, queue.order(lease)


def within_project(loan: Loan) -> tuple[object, ...]:
    """Sort key of a project's loans: told already, most idle, most over the share, youngest."""
    told, idle, age, order = loan.rank
    return told, idle, loan.leaf.target - loan.leaf.held, age, order, loan.part


def next_parts(loans: Iterable[Loan]) -> Iterator[Loan]:
    """Yield loans in order, but of a lease that gives in steps only its next step."""
    seen: set[str] = set()
    for loan in loans:
        if loan.lease.steps:
            if loan.lease.id in seen:
                continue
            seen.add(loan.lease.id)
        yield loan
