"""Units that are held although nothing here leads to them.

A closure that stayed on the other side may hold a part of what travelled: the list in a tuple, say.
Of such a closure the content came along, and is held as long as anything here shares a part of it:
without it nobody could tell any more that something is shared.
"""

from __future__ import annotations

import enum
import gc
import types
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from gpulease.transfer import frameworks
from gpulease.transfer.registry import Registry
from gpulease.transfer.values.groups import (
    ATOMIC,
    Survey,
    are_atomic,
    name_root,
    names_of,
    unit_root,
)
from gpulease.transfer.values.kinds.imported import Imported
from gpulease.transfer_next.references import references

from .ledger import Base, Ledger

#: Of more objects than these nobody counts who refers to them: they are held.
_LIMIT = 20_000
#: A function is held by its name, and is a unit of its own, as a class is.
_is_imported = Imported()
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
        wanted = set(chosen)
        return {
            oid for oids, names in self._agreed() if self._here(names) <= wanted for oid in oids
        }

    def partners_of_lost(self) -> set[str]:
        """Return the names that were agreed on with a unit of which another name is gone."""
        found = ((self._here(names), names) for _, names in self._agreed())
        return {name for here, names in found if len(here) < len(names) for name in here}

    def _here(self, names: Iterable[str]) -> set[str]:
        return {name for name in names if name in self._ns}

    def _agreed(self) -> Iterator[tuple[set[str], list[str]]]:
        """Return what is held, by what was agreed on together, with the names in that.

        One group may have thousands of units: its roots are gone through once.
        """
        groups: dict[int, tuple[Base, set[str]]] = {}
        for oid in self._registry.borrowed.kept():
            base = self._ledger.base.get(unit_root(oid))
            if base is not None:
                groups.setdefault(id(base), (base, set()))[1].add(oid)
        for base, oids in groups.values():
            yield oids, names_of(base.roots)


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
    inner: dict[int, Any] = {}
    known: Counter[int] = Counter()
    found = gc.get_referents(*parts)
    while found:
        known.update(map(id, found))
        fresh = {id(obj): obj for obj in found if id(obj) not in inner and not _is_common(obj)}
        inner |= fresh
        if len(inner) > _LIMIT:
            return True
        found = gc.get_referents(*fresh.values()) if fresh else []
    fresh = {}
    return any(count > known[key] for key, count in references(inner).items())


def _is_common(obj: Any) -> bool:
    """Say whether many refer to ``obj``, or to one that is as good: it says nothing of who does."""
    kind = type(obj)
    if kind in (tuple, frozenset):
        return are_atomic(obj)
    known = kind in ATOMIC or kind is object or isinstance(obj, _COMMON)
    return known or _is_imported(obj) or frameworks.is_imported(obj)
