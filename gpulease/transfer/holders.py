"""Which objects of a component something outside it holds.

References are counted against those that come from the component itself, from the namespace and
from our own tables.  A doubt counts as held: that costs, and changes nothing.
"""

from __future__ import annotations

import gc
import itertools
import operator
import types
from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping
from typing import Any

from gpulease.sides.libraries import library

from . import anatomy, in_place, ways
from .groups import Component
from .tables import counted, may_be_inner, references

#: Objects that hold others and are no identity of their own: who holds one, holds what is in it.
_PASSING = (
    tuple, frozenset, types.MethodType, types.MappingProxyType, property, staticmethod, classmethod,
)  # fmt: skip


#: What holds nothing that can change.
_CONSTANT = {type(None), bool, int, float, complex, str, bytes, types.CodeType, type(...)}


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


def held(component: Component, known: Counter[int]) -> list[Any]:
    """Return objects that something outside holds, with what those go on holding.

    ``known`` counts references from the namespace and from our own tables.
    """
    apparent = _apparently_held(component, known)
    if not apparent:
        return []
    members = {key: obj for key, (_, obj) in component.members.items()}
    asked = [key for key in members if key in apparent]
    # The component itself has each of them twice more, but no tuple that was packed as another.
    counts = {key: count - 2 for key, count in references(members, asked).items()}
    inner = _inner_references(component, members)
    unseen = [key for key in members if key not in component.members]
    counts |= references(members, unseen)
    pending = [key for key, count in counts.items() if count > inner[key] + known[key]]
    found: dict[int, Any] = {}
    while pending:
        key = pending.pop()
        if key in component.spaces:  # it is filled by filling the object that it belongs to
            key = id(component.spaces[key])
        if key in found or ways.may_be_held(type(members[key])):
            continue
        obj = found[key] = members[key]
        passes = not in_place.can_be_filled(obj)
        further = gc.get_referents(obj) if passes else in_place.keeps(obj)
        pending += [id(each) for each in further if id(each) in members]
        del obj, further
    return [obj for key, obj in found.items() if component.has(key)]


def still_held(pins: Mapping[str, Any], components: list[Component],
               held_here: Mapping[frozenset[str], list[Any]]) -> dict[str, Any]:  # fmt: skip
    """Return the pins that something outside still holds; the other side gives up the rest, too."""
    in_use = {id(obj) for objects in held_here.values() for obj in objects}
    reached = {pin for pin, obj in pins.items() if any(each.has(id(obj)) for each in components)}
    unheld = references(pins)
    return {
        pin: obj
        for pin, obj in pins.items()
        if (id(obj) in in_use if pin in reached else unheld[pin] > 0)
    }


def _apparently_held(component: Component, known: Counter[int]) -> set[int]:
    """Return the ids of what is referred to more often than what was packed accounts for.

    Few things are: only for these what was not packed is looked for.
    """
    kinds = component.kinds
    passing = {kind for kind in kinds if kind in _PASSING}
    lasting = {kind for kind in kinds if ways.may_be_held(kind)}
    # A plain object was reached through the one reference that it has, if we know of none.
    least = 1 if component.is_plain() else -1
    counts = counted(component.objects)
    asked = {
        key: count
        for key, count in _above(component, counts, least)
        if count > known[key]
        and (
            (type(obj := component.members[key][1]) in passing and not _are_constants(obj))
            or (type(obj) not in lasting and component.has(key))
        )
    }
    if not asked:
        return set()
    inner = _referred(component.objects, component.members, asked)
    return {key for key, count in asked.items() if count > inner[key] + known[key]}


def _are_constants(obj: Any) -> bool:
    """Say whether this is a tuple that leads to nothing that can change, as the constants of code.

    The collector does not show what code holds.
    """
    return type(obj) is tuple and all(
        type(each) in _CONSTANT or issubclass(type(each), type) or _are_constants(each)
        for each in obj
    )


def _above(component: Component, counts: list[int], least: int) -> Iterator[tuple[int, int]]:
    """Yield ids and counts that are above ``least``, less the component's own reference."""
    more = map(operator.gt, counts, itertools.repeat(least + 1))
    for key, count in itertools.compress(zip(component.members, counts, strict=True), more):
        yield key, count - 1


def _counted_ids(objects: list[Any], asked: Container[int] | None) -> Counter[int]:
    ids = map(id, objects)
    return Counter(ids if asked is None else filter(asked.__contains__, ids))


def _no_classes(objects: list[Any]) -> list[Any]:
    metas = {kind for kind in set(map(type, objects)) if issubclass(kind, type)}
    return [obj for obj in objects if type(obj) not in metas] if metas else objects


def _referred(objects: list[Any], members: Mapping[int, Any],
              asked: Container[int] | None = None) -> Counter[int]:  # fmt: skip
    """Count the references that objects hold, as far as the collector shows them.

    ``asked`` are the ids of those that are asked for.
    """
    kinds = set(map(type, objects))
    open_ = _no_classes(objects)
    if not _TWICE:
        return _counted_ids(gc.get_referents(*open_), asked)
    bare = {kind for kind in kinds if anatomy.is_bare(kind)}
    spaces = {id(obj): id(anatomy.space_of(obj)) for obj in open_ if type(obj) in bare}
    spaces = {key: space for key, space in spaces.items() if space in members}
    rest = [obj for obj in open_ if id(obj) not in spaces]
    counts = _counted_ids(gc.get_referents(*rest), asked)
    counts.update(spaces.values())
    _subtract_shared_values(counts, rest)
    return counts


def _inner_references(component: Component, members: dict[int, Any]) -> Counter[int]:
    """Count the references that the component's own objects hold; adds tuples to ``members``."""
    _add_unseen_tuples(members)
    objects = list(members.values())
    counts = _referred(objects, members)
    open_ = _no_classes(objects)
    _add_unseen(counts, gc.get_referents(*open_), members)
    np = library("numpy")
    if np is not None:
        _add_arrays(np, counts, open_)
        for buffer in component.buffers:
            shown = buffer.raw().obj
            counts[id(shown)] += 1
            if isinstance(shown, np.ndarray) and shown.base is not None:
                counts[id(shown.base)] += 1
            del shown
    return counts


def _add_unseen_tuples(members: dict[int, Any]) -> None:
    """Add tuples that objects hold and that were packed as others (of ``zip``, say)."""
    pending = [obj for obj in members.values() if not issubclass(type(obj), type)]
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
        unseen = {key: found[key] for key in fresh if may_be_inner(found[key])}
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


def _subtract_shared_values(counts: Counter[int], objects: list[Any]) -> None:
    kinds = set(filter(anatomy.made_by_python, set(map(type, objects))))
    for obj in objects if kinds else ():
        if type(obj) not in kinds:
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


#: The end of a pin whose object cannot be given another content: of a variable's very value, and
#: of what is within one.
_MARKS = ("k", "i")


def name_and_mark(component: Component, obj: Any, ns: Mapping[str, Any]) -> tuple[str, str]:
    """Return the variable that a held object is, or is within, and what its pin ends with."""
    names = sorted(component.names)
    name = next((name for name in names if ns.get(name) is obj), min(names, default=""))
    mark = "" if in_place.can_be_filled(obj) else _MARKS[obj is not ns.get(name)]
    return name, mark


def is_kept(pin: str) -> bool:
    """Say whether the object of a pin is replaced when another content comes for it."""
    return pin.endswith(_MARKS)


def unsent(components: Collection[Component], base: Collection[bytes]) -> list[Component]:
    """Leave out what no variable leads to, is kept, and the receiver had while one led to it.

    Of what was within a variable that is not known, and nobody can read it by a name.
    """
    return [each for each in components if not _was_sent(each, base)]


def _was_sent(component: Component, base: Collection[bytes]) -> bool:
    pins = [root for root in component.roots if root[0] == "p" and is_kept(root)]
    if len(pins) < len(component.roots):
        return False
    return component.digest in base or all(pin.endswith(_MARKS[1]) for pin in pins)
