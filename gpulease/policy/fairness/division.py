"""Divides the units of a pool among siblings: what is guaranteed first, then the rest by weight.

Each sibling gets ``min(guarantee, demand)``; what is left goes
by weight, capped by demand; who weighs nothing gets what nobody else wants.

The rounding is house monotone: units are handed out one after the other in an order that does not
depend on how many there are, so one more takes none from anybody.  Among the siblings that would
not be above their fractional target the one is next that would fall below its own first (the quota
method of Balinski and Young), so everybody stays within one unit of the target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

#: Two levels that differ by less are the same: weights are sums of floats.
_SAME = 1e-9


class Claim(NamedTuple):
    """What one sibling may claim, in units."""

    name: str
    guarantee: int
    weight: float
    demand: int


class _Part(NamedTuple):
    name: str
    weight: float
    most: int


def target(capacity: float, claims: Iterable[Claim]) -> dict[str, float]:
    """Return each sibling's share as a fraction of units, before rounding."""
    every = list(claims)
    return _target(capacity, every, _rounds(every))


def divide(capacity: int, claims: Iterable[Claim]) -> dict[str, int]:
    """Return each sibling's share in whole units."""
    every = list(claims)
    return _divide(capacity, every, _rounds(every))


def shares(capacity: int, claims: Sequence[Claim]) -> tuple[dict[str, int], dict[str, float]]:
    """Return what ``divide`` and ``target`` return."""
    rounds = _rounds(claims)
    return _divide(capacity, claims, rounds), _target(capacity, claims, rounds)


def _target(
    capacity: float, claims: Iterable[Claim], rounds: Iterable[Sequence[_Part]]
) -> dict[str, float]:
    found = dict.fromkeys((each.name for each in claims), 0.0)
    left = float(max(0.0, capacity))
    for parts in rounds:
        given = _level(left, parts)
        for name, units in given.items():
            found[name] += units
        left = max(0.0, left - sum(given.values()))
    return found


def _divide(
    capacity: int, claims: Iterable[Claim], rounds: Iterable[Sequence[_Part]]
) -> dict[str, int]:
    found = dict.fromkeys((each.name for each in claims), 0)
    left = max(0, capacity)
    for parts in rounds:
        given = _in_units(min(left, sum(part.most for part in parts)), parts)
        for name, units in given.items():
            found[name] += units
        left -= sum(given.values())
    return found


def _rounds(claims: Iterable[Claim]) -> tuple[Sequence[_Part], ...]:
    """Return what is handed out, round after round: guarantees, by weight, to who weighs none."""
    own, over, last = list[_Part](), list[_Part](), list[_Part]()
    for name, guarantee, weight, demand in sorted(claims):
        certain = min(guarantee, demand)
        if certain > 0:
            own.append(_Part(name, float(certain), certain))
        if demand > certain:
            rest = demand - certain
            (over if weight > 0 else last).append(_Part(name, weight or 1.0, rest))
    return own, over, last


def _level(capacity: float, parts: Sequence[_Part]) -> dict[str, float]:
    """Return the water level's division: by weight, nobody above the most they take."""
    given = dict.fromkeys((part.name for part in parts), 0.0)
    wanting = sorted((p for p in parts if p.most > 0), key=lambda p: (p.most / p.weight, p.name))
    weight = sum(part.weight for part in wanting)
    for number, part in enumerate(wanting):
        if capacity * part.weight < part.most * weight:
            given |= {p.name: capacity * p.weight / weight for p in wanting[number:]}
            break
        given[part.name] = float(part.most)
        capacity, weight = max(0.0, capacity - part.most), weight - part.weight
    return given


def _in_units(capacity: int, parts: Sequence[_Part]) -> dict[str, int]:
    """Return the same in whole units, handed out one by one while the level rises.

    The n-th unit of a part may be given once the level is above (n - 1) / weight, and is due at
    n / weight: earliest due first.
    """
    given = dict.fromkeys((part.name for part in parts), 0)
    wanting = {part.name: part for part in parts if part.most > 0}
    ahead = [(0.0, name) for name in wanting]
    heapify(ahead)
    due: list[tuple[float, str]] = []
    rising = _Rising(list(wanting.values()))
    for _ in range(capacity):
        level = rising.next()
        while ahead and (ahead[0][0] < level - _SAME or not due):
            _, name = heappop(ahead)
            heappush(due, ((given[name] + 1) / wanting[name].weight, name))
        _, name = heappop(due)
        given[name] += 1
        if given[name] < wanting[name].most:
            heappush(ahead, (given[name] / wanting[name].weight, name))
    return given


class _Rising:
    """The water level after each unit: sum of min(most, weight x level) is the units so far."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        self._full = sorted((part.most / part.weight, part.name, part.weight) for part in parts)
        self._weight = sum(part.weight for part in parts)
        self._level = 0.0
        self._next = 0

    def next(self) -> float:
        """Return the level once one more unit is in."""
        unit = 1.0
        while self._next < len(self._full):
            full, _, weight = self._full[self._next]
            room = (full - self._level) * self._weight
            if room > unit:
                break
            unit -= max(0.0, room)
            self._level = max(self._level, full)
            self._weight -= weight
            self._next += 1
        if self._next < len(self._full):
            self._level += unit / self._weight
        return self._level


def weighed(
    weights: Mapping[str, float], used: Mapping[str, float], strength: float
) -> dict[str, float]:
    """Return the weights as past use changes them: who used more than their part gets less now.

    A weight w (of a sum of 1) becomes w + strength x (w - u), where u is the part of the pool's
    whole capacity that was used, 0 to 1.  Never less than a tenth of w: nobody is shut out.
    """
    total = sum(weights.values())
    if total <= 0:
        return dict(weights)
    changed = {}
    for name, weight in weights.items():
        part = weight / total
        changed[name] = max(part / 10, part + strength * (part - used.get(name, 0.0)))
    return changed
