"""Which objects of a component something outside it holds.

References are counted against those that come from the component itself, from the namespace and
from our own tables.  A doubt counts as held: that costs, and changes nothing.
"""

from __future__ import annotations

import gc
import types
from collections import Counter
from typing import Any

from gpulease.transfer.libraries import library
from gpulease.transfer.references import references

from . import anatomy, in_place, ways
from .survey import Component

#: Objects that hold others and are no identity of their own: who holds one, holds what is in it.
_PASSING = (tuple, frozenset, types.MethodType, property, staticmethod, classmethod)


class _Probe:
    pass


def _shows_twice() -> bool:
    """Say whether the collector shows attributes under the object as well as its dictionary.

    So it is from 3.13 on, where both share one memory.
    """
    probe, mark = _Probe(), [0]
    probe.__dict__["mark"] = mark
    return any(each is mark for each in gc.get_referents(probe))


_TWICE = _shows_twice()


def held(component: Component, known: Counter[int], unheld: dict[frozenset[str], Any]) -> list[Any]:
    """Return objects that something outside holds, with what those go on holding.

    ``known`` counts references from the namespace and from our own tables.  ``unheld`` has marks of
    components of which nothing was held: where content and counts are the same, nothing is now.
    """
    members = component.members
    candidates = [
        key
        for key, obj in members.items()
        if (key in component.ids and not ways.is_lasting(type(obj))) or type(obj) in _PASSING
    ]
    where = component.index
    candidates.sort(key=lambda key: where.get(key, 0))  # a memo is in no order
    counts = references(members, candidates)
    mark = component.digest, hash(tuple(counts[key] - known[key] for key in candidates))
    if unheld.pop(component.roots, None) == mark:
        unheld[component.roots] = mark
        return []
    inner = _inner_references(component)
    inner.update(known)
    # Tuples that were packed as others are members by now.
    unseen = [key for key, obj in members.items() if key not in counts and type(obj) is tuple]
    counts |= references(members, unseen)
    pending = [key for key, count in counts.items() if count > inner[key]]
    found: dict[int, Any] = {}
    while pending:
        key = pending.pop()
        if key in found or ways.is_lasting(type(members[key])):
            continue
        if key in component.spaces:  # it is filled by filling the object that it belongs to
            key = id(component.spaces[key])
        obj = found[key] = members[key]
        passes = not in_place.can_be_filled(obj)
        further = gc.get_referents(obj) if passes else in_place.keeps(obj)
        pending += [id(each) for each in further if id(each) in members]
        del obj, further
    held_here = [obj for key, obj in found.items() if key in component.ids]
    if not held_here:
        unheld[component.roots] = mark
    return held_here


def _inner_references(component: Component) -> Counter[int]:
    """Count the references that the component's own objects hold."""
    members = component.members
    _add_unseen_tuples(members)
    open_ = [obj for obj in members.values() if not isinstance(obj, type)]
    referents = gc.get_referents(*open_)
    counts = Counter(map(id, referents))
    _add_unseen(counts, referents, members)
    if _TWICE:
        _subtract_shared_values(counts, open_)
    np = library("numpy")
    if np is not None:
        _add_arrays(np, counts, open_)
        for buffer in component.buffers:
            shown = buffer.raw().obj
            if isinstance(shown, np.ndarray) and shown.base is not None:
                counts[id(shown.base)] += 1
            del shown
    return counts


def _add_unseen_tuples(members: dict[int, Any]) -> None:
    """Add tuples that objects hold and that were packed as others (of ``zip``, say)."""
    pending = [obj for obj in members.values() if not isinstance(obj, type)]
    while pending:
        found = {id(each): each for each in gc.get_referents(*pending) if type(each) is tuple}
        pending = [each for key, each in found.items() if key not in members]
        members.update((id(each), each) for each in pending)


def _add_unseen(counts: Counter[int], referents: list[Any], members: dict[int, Any]) -> None:
    """Add what objects hold that were not packed, and that only members or such objects hold."""
    shown, kept, inner = Counter(map(id, referents)), [referents], dict[int, Any]()
    while referents:
        found = dict(zip(map(id, referents), referents, strict=True))
        fresh = found.keys() - members.keys() - inner.keys()
        unseen = {key: found[key] for key in fresh if _may_be_inner(found[key])}
        found.clear()
        # Besides those that hold it, ``kept`` has each as often as they do.
        outer = references(unseen)
        new = {
            key: each
            for key, each in unseen.items()
            if type(each) is dict or outer[key] <= 2 * shown[key]
        }
        inner |= new
        referents = gc.get_referents(*new.values())
        kept.append(referents)
        shown.update(map(id, referents))
        counts.update(map(id, referents))


def _may_be_inner(obj: Any) -> bool:
    if type(obj) is dict:
        return "__builtins__" not in obj
    return gc.is_tracked(obj) and not isinstance(obj, type | types.ModuleType)


def _subtract_shared_values(counts: Counter[int], objects: list[Any]) -> None:
    for obj in objects:
        if not anatomy.made_by_python(type(obj)):
            continue
        space = anatomy.space_of(obj)
        if type(space) is not dict or not space:
            continue
        shown = Counter(map(id, gc.get_referents(obj)))
        values = Counter(map(id, space.values()))
        if all(shown[key] >= count for key, count in values.items()):
            counts.subtract(values)


def _add_arrays(np: Any, counts: Counter[int], objects: list[Any]) -> None:
    """Add what arrays hold, which the collector does not show."""
    shown = (np.ndarray, np.void, np.flatiter)
    kinds = {kind for kind in set(map(type, objects)) if issubclass(kind, shown)}
    for obj in objects if kinds else ():
        if type(obj) not in kinds:
            continue
        if isinstance(obj, np.ndarray):
            if obj.base is not None:
                counts.update((id(obj.base), *map(id, _under(obj.base))))
            elif obj.dtype == object:
                counts.update(map(id, obj.view(np.ndarray).ravel(order="K").tolist()))
        elif isinstance(obj, np.void | np.flatiter) and obj.base is not None:
            counts[id(obj.base)] += 1


def _under(base: Any) -> list[Any]:
    """Return what the memory under an array belongs to, where that is no array."""
    owner = base.obj if type(base) is memoryview else base
    keep = getattr(owner, "_gpulease_keep", None)  # of what shows an image's memory
    return [each for each in (owner if owner is not base else None, keep) if each is not None]
