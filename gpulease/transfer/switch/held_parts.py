"""Which parts of replaced values are still held by something that did not travel.

Owns the look into containers and instances of the notebook's classes.  Where all of a value is of
kinds that are updated in place, its parts are: nobody looks.
"""

from __future__ import annotations

import array
import gc
from collections.abc import Iterable, Mapping
from typing import Any

from gpulease.sides.libraries import library
from gpulease.transfer.values.groups import ATOMIC
from gpulease.transfer.values.kinds.arrays_in_place import is_array
from gpulease.transfer.values.kinds.containers import is_container
from gpulease.transfer.values.kinds.units import can_pin, is_unit, own_space
from gpulease.transfer.values.landing.transplant import may_last
from gpulease.transfer.values.pins import is_plain
from gpulease.transfer_next.references import references

from .stale_references import LIMIT, known_references

_OPEN = frozenset({list, dict, set, tuple, frozenset})


def parts_before(olds: Mapping[str, Any]) -> dict[str, dict[int, Any]]:
    """Return the parts of values that may stay the objects that they are while those go."""
    out: dict[str, dict[int, Any]] = {}
    for name, old in olds.items():
        parts: dict[int, Any] = {}
        if may_last(type(old)) and _replaced(old, parts):
            del parts[id(old)]
            out[name] = parts
    return out


def held_parts(
    olds: Mapping[str, Any],
    ns: dict[str, Any],
    before: dict[str, dict[int, Any]],
    aside: Mapping[str, Any],
) -> dict[str, Any]:
    """Return by name a part of its older value that neither old nor new values account for.

    Nor those that are ``aside``, of variables whose newer values are still to come.
    ``before`` is what ``parts_before`` said; it is emptied.
    """
    parts: dict[int, Any] = {}
    owners: dict[str, set[int]] = {}
    tops = set(map(id, olds.values()))
    for name in olds:
        if ns.get(name) is not olds[name]:
            owners[name] = _replaced(olds[name], parts) - tops
        elif name in before:
            owners[name] = set(before[name]) - tops
            parts |= before[name]
    before.clear()
    wanted = set().union(*owners.values())
    if not wanted:
        return {}
    new = _parts(ns[name] for name in owners if name in ns).keys()

    def are_held(waiting: Mapping[str, Any]) -> set[int]:
        known = known_references([*olds.values(), *parts.values()], parts, waiting, ns)
        if len(known) >= LIMIT:
            return set()
        return {
            key
            for key, count in references(parts, wanted).items()
            if count > known[key] and key not in new and _counts(parts[key])
        }

    found = are_held({})
    if found:
        gc.collect()  # what looks like a holder may be garbage that waits for the collector
        found &= are_held(aside)
    return {name: parts[key] for name, keys in owners.items() for key in sorted(keys & found)[:1]}


def _replaced(old: Any, into: dict[int, Any]) -> set[int]:
    """Enter the parts of a value; none where all of them are updated in place.

    An array that shares its memory is not.
    """
    if type(old) in ATOMIC:
        return set()
    parts = _parts([old])
    if len(parts) >= LIMIT or all(map(_is_in_place, parts.values())):
        return set()
    into |= parts
    return set(parts)


def _is_in_place(obj: Any) -> bool:
    return is_plain(obj) and not (is_array(obj) and (obj.base is not None or not can_pin(obj)))


def _parts(values: Iterable[Any]) -> dict[int, Any]:
    out: dict[int, Any] = {}
    spaces: set[int] = set()
    frontier = list(values)
    while frontier and len(out) < LIMIT:
        fresh = {id(o): o for o in frontier if type(o) not in ATOMIC and id(o) not in out}
        out |= fresh
        units = [o for o in fresh.values() if is_unit(type(o))]
        spaces.update(id(space) for o in units if (space := own_space(o)) is not o)
        frontier = gc.get_referents(*(o for o in fresh.values() if _is_open(o)))
    for key in spaces & out.keys():
        del out[key]  # part of its instance
    return out


def _is_open(obj: Any) -> bool:
    kind = type(obj)
    return kind in _OPEN or is_container(obj) or issubclass(kind, tuple) or _is_instance(kind)


def _is_instance(kind: type) -> bool:
    return is_unit(kind) and not issubclass(kind, type)


def _counts(obj: Any) -> bool:
    """Say whether a part is something that a person would hold for itself."""
    kind = type(obj)
    numpy, pandas = library("numpy"), library("pandas")
    known: tuple[type, ...] = (list, dict, set, bytearray, array.array)
    if numpy is not None:
        known += (numpy.ndarray,)
    if pandas is not None:
        known += (pandas.DataFrame, pandas.Series, pandas.Index, pandas.Categorical)
    estimators = getattr(getattr(library("sklearn"), "base", None), "BaseEstimator", None)
    if estimators is not None:
        known += (estimators,)
    return issubclass(kind, known) or is_container(obj) or _is_instance(kind)
