"""Which replaced values are still held by something that did not travel.

Owns the count of references.  A value that cannot be updated in place is replaced under its names;
whoever else holds it (a callback, an installed module, another object) keeps the old one, and the
person is told.  IPython's own results do not count.
"""

from __future__ import annotations

import enum
import gc
import logging
import sys
import types
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from gpulease.sides import last_error
from gpulease.sides.caches import LRU_CACHE
from gpulease.sides.libraries import library
from gpulease.sides.looks import is_a
from gpulease.transfer.registry import Registry
from gpulease.transfer.values.groups import ATOMIC
from gpulease.transfer.values.kinds.imported import Imported
from gpulease.transfer_next.api import Note
from gpulease.transfer_next.faces import show_the_same
from gpulease.transfer_next.references import references

from .our_tables import references_of_ours
from .shown import own_results

#: Larger values are not looked into.
LIMIT = 20_000
#: Who holds what only gpulease's own tables hold.
NOBODY = "nobody"
_CUT = (type, types.ModuleType, types.FunctionType, logging.Logger)


def kept_notes(
    olds: dict[str, Any], ns: dict[str, Any], registry: Registry, aside: Mapping[str, Any]
) -> list[Note]:
    """Return a note for each name of ``olds`` whose older value is held outside; empties it.

    ``aside`` are older values of variables whose newer ones are still to come.
    """
    last_error.follow(olds, ns)
    is_imported = Imported()
    for name in list(olds):
        new = ns.get(name)
        if (
            new is olds[name]
            or _is_bound_anew(olds[name], new)
            or is_imported(olds[name])
            or show_the_same(olds[name], new)
            or not may_be_held(olds, name)
        ):
            del olds[name]
    notes = []
    ours = borrowed_of(olds, registry)
    if olds and held(olds, ns, ours, aside):
        # What looks like a holder may be garbage that waits for the collector (a figure's manager).
        gc.collect()
        ours = references_of_ours(olds, registry, (ns, aside))
        names = sorted(held(olds, ns, ours, aside))
        who = {name: holder(olds, name, aside) for name in names}
        notes = [_note(name, words) for name, words in who.items() if words != NOBODY]
    olds.clear()
    return notes


def _is_bound_anew(old: Any, new: Any) -> bool:
    """Say whether the cell gave the name another object: whoever has the old one shall keep it."""
    return type(old) is not type(new) or is_a(old, enum.Enum)


def borrowed_of(olds: Mapping[str, Any], registry: Registry) -> dict[str, int]:
    """Return how often the table of what cannot be referred to weakly has each object."""
    return {name: int(registry.borrows(obj)) for name, obj in olds.items()}


def may_be_held(olds: Mapping[str, Any], name: str) -> bool:
    """Say whether it matters who holds the object of before; not where nobody does."""
    kind = type(olds[name])
    if kind in ATOMIC or kind in (tuple, frozenset) or issubclass(kind, _CUT):
        return False
    return references(olds, (name,))[name] > 0


def held(
    olds: Mapping[str, Any],
    ns: dict[str, Any],
    ours: Mapping[str, int],
    aside: Mapping[str, Any],
) -> list[str]:
    """Return the keys whose object has more references than we know of; ``ours`` has further."""

    def are_held(waiting: Mapping[str, Any]) -> list[str]:
        known = known_references(olds.values(), olds, waiting, ns)
        known.update(map(id, olds.values()))
        counts = references(olds)
        return [n for n in olds if counts[n] + 1 > known[id(olds[n])] + ours.get(n, 0)]

    return are_held({}) and are_held(aside)  # which costs a look into all of it


def known_references(
    values: Iterable[Any], wanted: Mapping[Any, Any], aside: Mapping[str, Any], ns: dict[str, Any]
) -> Counter[int]:
    """Return how often each object is referred to from within values and results, and ``aside``.

    Of results only references to the ``wanted`` are counted.
    """
    seen: set[int] = set()
    known = inside([*values, *aside.values()], seen)
    known.update(map(id, aside.values()))
    known.update(own_results(ns, set(map(id, wanted.values())), seen))
    return known


def inside(values: list[Any], seen: set[int]) -> Counter[int]:
    """Return how often each object is referred to from within these values.

    ``seen`` gets the ids of those that were looked into.
    """
    numpy = library("numpy")
    count: Counter[int] = Counter()
    frontier = values
    while frontier and len(seen) < LIMIT:
        fresh = [o for o in {id(o): o for o in frontier}.values() if id(o) not in seen]
        seen.update(map(id, fresh))
        if not fresh:
            break
        found = gc.get_referents(*fresh)
        if numpy is not None:  # the collector does not see what an array is a view of
            found += [
                o.base for o in fresh if issubclass(type(o), numpy.ndarray) and o.base is not None
            ]
        count.update(map(id, found))
        frontier = [o for o in found if type(o) not in ATOMIC and not is_a(o, _CUT)]
    return count


def holder(olds: Mapping[str, Any], name: str, *own: Any) -> str:
    """Say in words what still refers to an older value, but for tables of our ``own``.

    ``NOBODY`` where only gpulease itself does, which lets go of it by and by.
    """
    words = "something"
    for found in gc.get_referrers(olds[name]):
        if is_a(found, types.FrameType) or any(found is each for each in (olds, *own)):
            continue
        if type(found) is LRU_CACHE:  # one of a library: it gives that object to nobody by a name
            words = NOBODY
            continue
        if is_a(found, dict):
            module = sys.modules.get(str(dict.get(found, "__name__", "")))
            if module is not None and vars(module) is found:
                return f"the module {module.__name__}"
            for owner in gc.get_referrers(found):
                if _is_ours(owner):
                    words = NOBODY
                    break
                if type(owner).__dictoffset__:  # the dictionary is its attributes
                    return called(owner)
            else:
                return called(found)
            continue
        if is_a(found, types.CellType | types.FunctionType | types.MethodType):
            return "a function"
        return called(found)
    return words


def _is_ours(owner: Any) -> bool:
    """Say whether an object is one of gpulease's own."""
    return type(owner).__module__.startswith("gpulease.")


def called(obj: Any) -> str:
    """Say in words what kind of object this is."""
    kind = type(obj).__name__
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"


def _note(name: str, holder: str) -> Note:
    sentence = (
        f"{name} is another object here than before the GPU cell, and {holder} that is in none of "
        f"your variables still has the one from before. Give it {name} again where it matters."
    )
    return Note("kept_old_object", sentence, (name,))
