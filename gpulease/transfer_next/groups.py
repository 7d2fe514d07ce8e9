"""Which components are one: those that share an object that can change."""

from __future__ import annotations

import enum
import pickle
import re
import types
import typing
from collections.abc import Collection, Iterable
from itertools import compress
from typing import Any, Protocol

from gpulease.sides.libraries import library

from . import ways
from .memory import InFrame
from .pickler import travels_by_value

_PLAIN = frozenset((
    str, bytes, tuple, int, float, complex, bool, frozenset, type(None), range, slice,
    types.CodeType, pickle.PickleBuffer, types.ModuleType, types.BuiltinFunctionType,
    types.MethodType, type(Ellipsis), re.Pattern, property, staticmethod, classmethod, InFrame,
    types.GenericAlias, types.UnionType, types.MappingProxyType, object,
))  # fmt: skip
_PLAIN_MODULES = frozenset((
    "datetime", "decimal", "fractions", "pathlib", "uuid", "zoneinfo", "typing", "logging",
    "ipaddress", "operator", "_operator", "inspect",
))  # fmt: skip

_DESCRIPTORS = frozenset((
    "getset_descriptor", "member_descriptor", "method_descriptor", "wrapper_descriptor",
    "cython_function_or_method",
))  # fmt: skip


class ToldApart:
    """Says which objects can be told from their equals, and can change."""

    def __init__(self, named: Collection[int]) -> None:
        #: Ids of objects that are found again by a module and a name.
        self.named = named
        self._kinds: dict[type, bool | None] = dict.fromkeys(_PLAIN, False)

    def ids(self, members: Iterable[int], objects: list[Any]) -> set[int]:
        """Return the ids of such objects; ``members`` are the ids of all ``objects``."""
        of_kind = {kind: self._kind(kind) for kind in set(map(type, objects))}
        found = set(compress(members, map(of_kind.__getitem__, map(type, objects))))
        if asked := [kind for kind, known in of_kind.items() if known is None]:
            found.update(id(o) for o in objects if type(o) in asked and travels_by_value(o))
        found.difference_update(self.named)
        return found

    def can_change(self, obj: Any) -> bool:
        """Say whether it can be seen which object this is, and what is in it can change."""
        known = self._kind(type(obj))
        if known is None:
            return travels_by_value(obj)
        return bool(known) and id(obj) not in self.named

    def _kind(self, kind: type) -> bool | None:
        known = self._kinds.get(kind, self)
        if known is self:
            try:
                known = _kind_can_change(kind)
            except Exception:  # noqa: BLE001 - a metaclass may raise anything; packing names it
                known = True
            self._kinds[kind] = known
        return known  # type: ignore[return-value]


def _kind_can_change(kind: type) -> bool | None:  # noqa: PLR0911 - one a kind
    if kind is types.FunctionType:
        return None
    if kind is typing.NewType:
        return True
    if issubclass(kind, type | enum.Enum | types.ModuleType):
        return False
    if kind.__module__ in _PLAIN_MODULES:
        return travels_by_value(kind)
    np = library("numpy")
    if np is not None and issubclass(kind, np.dtype | np.generic | np.ufunc):
        return bool(issubclass(kind, np.void))
    if ways.is_value(kind):
        return False
    return kind.__name__ not in _DESCRIPTORS


#: A larger component's ids are not put into a set: what it has met is looked up.
_MANY = 1000


class Member(Protocol):
    """A component (see ``survey.Component``)."""

    roots: frozenset[str]
    members: dict[int, Any]
    kept_spaces: frozenset[int]

    @property
    def ids(self) -> set[int]:
        """Return the ids of its objects that can change."""

    def has(self, key: int) -> bool:
        """Say whether an object that can change is in it."""


def joined(components: Iterable[Member]) -> list[frozenset[str]] | None:
    """Return the roots of each group with those joined that share an object, None if none do."""
    groups: list[tuple[frozenset[str], list[Member]]] = []
    seen: set[int] = set()
    large: list[Member] = []
    any_shared = False
    for component in components:
        roots, parts = component.roots, [component]
        is_large = len(component.members) > _MANY
        if _meets(component, seen) or any(_share(component, each) for each in large):
            any_shared = True
            shared = [each for each in groups if any(_share(component, one) for one in each[1])]
            roots = roots.union(*(each[0] for each in shared))
            groups = [each for each in groups if not each[0] <= roots]
            parts += [one for each in shared for one in each[1]]
        groups.append((roots, parts))
        if is_large:
            large.append(component)
        else:
            seen |= component.ids
    return [roots for roots, _ in groups] if any_shared else None


def _meets(component: Member, ids: set[int]) -> bool:
    """Say whether a component has one of these objects, each of which can change."""
    return not (component.members.keys().isdisjoint(ids) and component.kept_spaces.isdisjoint(ids))


def _share(one: Member, other: Member) -> bool:
    less, more = sorted((one, other), key=lambda each: len(each.members))
    if len(less.members) <= _MANY:
        return _meets(more, less.ids)
    both = less.members.keys() & more.members.keys() | less.kept_spaces & more.kept_spaces
    both.update(key for key in less.kept_spaces if key in more.members)
    both.update(key for key in more.kept_spaces if key in less.members)
    return any(less.has(key) or key in more.kept_spaces for key in both)
