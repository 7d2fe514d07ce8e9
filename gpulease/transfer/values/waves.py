"""In which order the groups of a shipment are put in place.

While a value is loaded, code of the notebook may run (``__setstate__``, ``__hash__``, a function of
its ``__reduce__``), which reads names of the notebook: a module, a constant, another value.  Where
these travel with it they are in place before it is loaded, in an earlier *wave*, or that code would
miss them or take their older values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from .groups import Group, Survey, name_root
from .kinds.units import is_unit

#: Values that read each other's names have no order; this ends the search for one.
_MOST = 6


def waves_of(
    survey: Survey, groups: Sequence[Group], packed_with: Callable[[Group], Iterable[str]]
) -> dict[int, int]:
    """Return by ``id`` the wave of each group that is not of the first, which is 0.

    ``packed_with`` tells which units a group turned out to refer to.
    """
    chosen = {id(group) for group in groups}
    known: dict[frozenset[str], frozenset[int]] = {}
    waits = {
        id(group): before
        for group in groups
        if _runs_code(group, survey.values)
        and (before := _read_by(survey, group, known) & chosen - {id(group)})
    }
    if not waits:
        return {}
    needs = {
        id(group): [id(unit) for unit in _units(survey, packed_with(group)) if id(unit) in chosen]
        for group in groups
    }
    waves = dict.fromkeys(chosen, 0)
    for _ in range(_MOST):
        for group in groups:
            after = (waves[other] + 1 for other in waits.get(id(group), ()))
            waves[id(group)] = max(waves[id(group)], *after, 0)
    _with_units(waves, needs)
    return {each: wave for each, wave in waves.items() if wave}


def _with_units(waves: dict[int, int], needs: Mapping[int, Iterable[int]]) -> None:
    """Put no group before a unit that it refers to."""
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
    survey: Survey, group: Group, known: dict[frozenset[str], frozenset[int]]
) -> frozenset[int]:
    """Return the groups of all names that code reached from a group reads, by ``id``."""
    key = frozenset((*group.needs, *map(name_root, group.reads)))
    if key in known:  # thousands of values are of one class
        return known[key]
    found: set[int] = set()
    seen: set[int] = set()
    queue = [*_units(survey, group.needs)]
    names = set(group.reads)
    while queue or names:
        read = [survey.by_root.get(name_root(name)) for name in names]
        named = [each for each in read if each is not None]
        found.update(map(id, named))
        queue += named
        names = set()
        while queue:
            part = queue.pop()
            if id(part) not in seen:
                seen.add(id(part))
                names |= part.reads
                queue += _units(survey, part.needs)
    known[key] = frozenset(found)
    return known[key]


def _units(survey: Survey, oids: Iterable[str]) -> Iterator[Group]:
    for oid in oids:
        group = survey.by_root.get("u:" + oid)
        if group is not None:
            yield group
