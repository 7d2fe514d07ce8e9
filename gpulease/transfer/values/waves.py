"""In which order the groups of a shipment are put in place.

While a value is loaded, code of the notebook may run (``__setstate__``, ``__hash__``, a function of
its ``__reduce__``), which reads names of the notebook: a module, a constant, another value.  Where
these travel with it they are in place before it is loaded, in an earlier *wave*, or that code would
miss them or take their older values.  Of its own group it would take those too: they are hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .groups import Group, Survey, name_root
from .kinds.units import is_unit

#: Values that read each other's names have no order; this ends the search for one.
_MOST = 6


@dataclass
class Order:
    """By ``id`` of a group: its wave, and which of its own names code reads while it is loaded."""

    waves: dict[int, int] = field(default_factory=dict)
    hidden: dict[int, tuple[str, ...]] = field(default_factory=dict)


def order_of(
    survey: Survey, groups: Sequence[Group], packed_with: Callable[[Group], Iterable[str]]
) -> Order:
    """Return the order of these groups; ``packed_with`` tells which units one refers to."""
    order = Order()
    chosen = {id(group) for group in groups}
    known: dict[frozenset[str], frozenset[str]] = {}
    waits: dict[int, set[int]] = {}
    for group in groups:
        read = _read_by(survey, group, known) if _runs_code(group, survey.values) else frozenset()
        if own := tuple(sorted(read.intersection(group.names))):
            order.hidden[id(group)] = own
        found = {
            id(survey.by_root[root]) for root in map(name_root, read) if root in survey.by_root
        }
        if before := found & chosen - {id(group)}:
            waits[id(group)] = before
    if waits:
        order.waves = dict.fromkeys(chosen, 0)
        for _ in range(_MOST):
            for each, before in waits.items():
                order.waves[each] = max(order.waves[each], 1 + max(order.waves[b] for b in before))
        _with_units(order.waves, survey, groups, packed_with)
    return order


def _with_units(
    waves: dict[int, int],
    survey: Survey,
    groups: Sequence[Group],
    packed_with: Callable[[Group], Iterable[str]],
) -> None:
    """Put no group before a unit that it refers to."""
    needs = {
        id(group): [id(unit) for unit in _units(survey, packed_with(group)) if id(unit) in waves]
        for group in groups
    }
    again = True
    while again:
        again = False
        for group, units in needs.items():
            wave = max((waves[unit] for unit in units), default=0)
            if wave > waves[group]:
                waves[group] = wave
                again = True


def _runs_code(group: Group, values: Mapping[str, Any]) -> bool:
    """Say whether the notebook's code may run while it is loaded.

    Functions and classes are made without; what they hold may be an instance.
    """
    if group.names and not all(is_unit(values.get(name)) for name in group.names):
        return bool(group.needs)
    return any(is_unit(type(value)) for value in group.inner.values())


def _read_by(
    survey: Survey, group: Group, known: dict[frozenset[str], frozenset[str]]
) -> frozenset[str]:
    """Return the names that code reached from a group reads, and what these lead to reads."""
    key = frozenset((*group.needs, *map(name_root, group.reads)))
    if key in known:  # thousands of values are of one class
        return known[key]
    seen: set[int] = set()
    names = set(group.reads)
    queue, fresh = [*_units(survey, group.needs)], set(names)
    while queue or fresh:
        queue += [g for name in fresh if (g := survey.by_root.get(name_root(name))) is not None]
        fresh = set()
        while queue:
            part = queue.pop()
            if id(part) not in seen:
                seen.add(id(part))
                fresh |= part.reads - names
                queue += _units(survey, part.needs)
        names |= fresh
    known[key] = frozenset(names)
    return known[key]


def _units(survey: Survey, oids: Iterable[str]) -> Iterator[Group]:
    for oid in oids:
        group = survey.by_root.get("u:" + oid)
        if group is not None:
            yield group
