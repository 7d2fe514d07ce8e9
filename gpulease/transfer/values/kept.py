"""Units that are held although nothing here leads to them.

A closure that stayed on the other side may hold a part of what travelled: the list in a tuple, say.
Of such a closure the content came along, and is held as long as anything here shares a part of it:
without it nobody could tell any more that something is shared.
"""

from __future__ import annotations

import enum
import gc
import sys
import types
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

from gpulease.transfer.registry import Registry

from .groups import ATOMIC, Survey, name_root, names_of, unit_root
from .ledger import Ledger

#: Of more objects than these nobody counts who refers to them: they are held.
_LIMIT = 20_000
#: A function is held by its name, and is a unit of its own, as a class is.
_COMMON = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, enum.Enum)


class Kept:
    """What one side, whose user namespace is ``ns``, holds."""

    def __init__(self, ns: dict[str, Any], registry: Registry, ledger: Ledger) -> None:
        self._ns = ns
        self._registry = registry
        self._ledger = ledger

    def hold(
        self,
        names: Mapping[str, Any],
        contents: Collection[str],
        survey: Survey,
        aside: Mapping[str, Any],
    ) -> None:
        """Hold those of the units that came (``contents``) that share something with a name."""
        values = {name: id(value) for name, value in names.items()}
        groups = [g for n in values if (g := survey.by_root.get(name_root(n))) is not None]
        near = {root for group in groups for root in group.roots}
        parts = {oid: survey.units[oid] for oid in contents if unit_root(oid) in near}
        if parts:
            needed = partial(_are_shared, [*parts.values()], values, (self._ns, aside))
            self._registry.borrowed.keep(parts, needed)

    def units(self, chosen: Collection[str]) -> set[str]:
        """Return the units that were agreed on with these names and no others that are here."""
        return {oid for oid, near in self._near() if near <= set(chosen)}

    def partners_of_lost(self) -> set[str]:
        """Return the names that were agreed on with a unit of which another name is gone."""
        base = self._ledger.base
        return {
            name
            for oid, near in self._near()
            for name in near
            if len(near) < len(names_of(base[unit_root(oid)].roots))
        }

    def _near(self) -> Iterator[tuple[str, set[str]]]:
        for oid in self._registry.borrowed.kept():
            base = self._ledger.base.get(unit_root(oid))
            if base is not None:
                yield oid, {name for name in names_of(base.roots) if name in self._ns}


def _are_shared(
    parts: list[Any], values: Mapping[str, int], spaces: Collection[Mapping[str, Any]]
) -> bool:
    """Say whether a name is still bound to the object of this ``id``, or else whether any shares.

    Another thread may take a name away at any time.
    """
    gone = object()
    bound = (id(space.get(n, gone)) == number for n, number in values.items() for space in spaces)
    return any(bound) or _is_held_besides(parts)


def _is_held_besides(parts: list[Any]) -> bool:
    """Say whether anything but ``parts`` refers to what they lead to; when in doubt, yes.

    Any thread may ask: it runs nothing of the objects' own.
    """
    only_here: list[Any] = [[]]  # an object of which that is known
    inner: dict[int, Any] = {}
    known: Counter[int] = Counter()
    found = gc.get_referents(*parts, only_here)
    while found:
        known.update(map(id, found))
        fresh = {id(obj): obj for obj in found if id(obj) not in inner and not _is_common(obj)}
        inner |= fresh
        if len(inner) > _LIMIT:
            return True
        found = gc.get_referents(*fresh.values()) if fresh else []
    fresh = {}
    more = {key: sys.getrefcount(obj) - known[key] for key, obj in inner.items()}
    return max(more.values()) > more[id(only_here[0])]


def _is_common(obj: Any) -> bool:
    """Say whether many refer to ``obj``, or to one that is as good: it says nothing of who does."""
    kind = type(obj)
    if kind in (tuple, frozenset):
        return all(type(x) in ATOMIC for x in obj)
    return kind in ATOMIC or kind is object or isinstance(obj, _COMMON)
