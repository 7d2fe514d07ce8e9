"""How evenly capacity was given, seen from outside: shares by max-min, and Jain's index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

K = TypeVar("K")


def max_min(wanted: Mapping[K, float], capacity: float) -> dict[K, float]:
    """Return each one's fair share: nobody gets more than wanted, what is left is split evenly."""
    shares: dict[K, float] = {}
    left, rest = capacity, len(wanted)
    for key, want in sorted(wanted.items(), key=lambda item: item[1]):
        shares[key] = min(want, left / rest)
        left -= shares[key]
        rest -= 1
    return shares


def jain(values: Iterable[float]) -> float | None:
    """Return Jain's index of fairness, from 1/n (one has all) to 1 (even); ``None`` of nothing."""
    each = list(values)
    squares = sum(value * value for value in each)
    return sum(each) ** 2 / (len(each) * squares) if squares else None
