"""What may be taken back of a lease: all of it, or the devices that it can live without."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from gpulease.policy.fairness.standing import Node
from gpulease.policy.model import Lease


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
