"""Which components are one: those that share an object that can change."""

from __future__ import annotations

import enum
import math
import pickle
import re
import types
import typing
from collections.abc import Collection, Iterable, Iterator
from itertools import compress
from typing import Any, Protocol

from gpulease.sides.libraries import library

from . import anatomy, in_place, ways
from .by_class import is_loose, travels_by_value
from .memory import InFrame
from .pickler import KINDS, Pickler
from .refuse import RefusedError

_PLAIN = frozenset((
    str, bytes, tuple, int, float, complex, bool, frozenset, type(None), range, slice,
    types.CodeType, pickle.PickleBuffer, types.BuiltinFunctionType,
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
            found.update(id(o) for o in objects if type(o) in asked and _is_made_here(o))
        found.difference_update(self.named)
        return found

    def can_change(self, obj: Any) -> bool:
        """Say whether it can be seen which object this is, and what is in it can change."""
        known = self._kind(type(obj))
        if known is None:
            return _is_made_here(obj)
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
    if kind is types.FunctionType or kind is types.ModuleType:
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
    pandas = library("pandas")
    if pandas is not None and issubclass(kind, pandas.api.extensions.ExtensionDtype):
        return False
    if ways.is_value(kind):
        return False
    return kind.__name__ not in _DESCRIPTORS


def _is_made_here(obj: Any) -> bool:
    """Say whether a function or module is the notebook's: no import finds it."""
    return is_loose(obj) if type(obj) is types.ModuleType else travels_by_value(obj)


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


TOO_DEEP = "objects that hold each other too deeply"
_FLAT = (list, dict, set)


class Asked(Pickler):
    """For NaNs, each of which is itself only, and for ``vars`` of a namespace or a module.

    Such a dictionary cannot be replaced by another, so its other names mean the object.
    """

    def persistent_id(self, obj: Any) -> Any:
        """Return what stands for an object."""
        if type(obj) is dict and (owner := self.spaces.get(id(obj))) is not None:
            return "vars", owner
        if type(obj) is not float or obj == obj:  # noqa: PLR0124 - that is what a NaN is
            return None
        np = library("numpy")
        if obj is math.nan:  # noqa: PLW0177 - which one it is
            return "math"
        if np is not None and obj is np.nan:
            return "numpy"
        return self.met.others.id_of(obj)


class Token:
    """Stands for an object whose content has a place of its own in the stream."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Deep(Asked):
    """For objects that hold each other more deeply than a pickler may call itself.

    First come empty objects, then the content of each, the innermost first, then the roots.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        #: Id -> place in ``order``; -1 while the objects inside are looked at.
        self.numbers: dict[int, int] = {}
        self.order: list[Any] = []
        self._written = 0

    def lay_out(self, roots: Iterable[Any]) -> None:
        """Find the objects, the innermost first; what both sides know is left out."""
        numbers, known = self.numbers, self.memo.copy()
        for root in roots:
            pending = [iter((root,))]
            path: list[Any] = [None]
            while pending:
                each = next(pending[-1], self)
                if each is self:
                    pending.pop()
                    self._close(path.pop())
                elif type(each) is tuple:
                    pending.append(iter(each))
                    path.append(None)
                elif id(each) not in numbers and id(each) not in known and self._is_flat(each):
                    numbers[id(each)] = -1
                    pending.append(_inside(each))
                    path.append(each)

    def _close(self, obj: Any) -> None:
        if obj is not None:
            self.numbers[id(obj)] = len(self.order)
            self.order.append(obj)

    def _is_flat(self, obj: Any) -> bool:
        kind = type(obj)
        if kind in _FLAT or kind in in_place.NAMED:
            return id(obj) not in self.spaces
        if kind in KINDS or not self.is_raw(kind) or not travels_by_value(kind):
            return False
        return in_place.can_be_filled(obj)

    def dump_flat(self) -> None:
        """Write the empty objects and what is in them."""
        self.dump([(type(obj), anatomy.take_apart(obj)[0]) for obj in self.order])
        for number, obj in enumerate(self.order):
            self._written = number
            self.dump(self._content(obj))
        self._written = len(self.order)

    def _content(self, obj: Any) -> Any:
        content, direct = in_place.content_of(obj), self._direct
        if type(obj) is dict:
            return {direct(key): direct(value) for key, value in content.items()}
        if type(obj) in _FLAT:
            return type(obj)(map(direct, content))
        space, slots, inner = content
        slots = slots and {name: direct(value) for name, value in slots.items()}
        if type(inner) is list:
            inner = list(map(direct, inner))
        elif type(inner) is tuple:
            inner = tuple(
                list(map(direct, part)) if type(part) is list else direct(part) for part in inner
            )
        return direct(space), slots, inner

    def _direct(self, value: Any) -> Any:
        if type(value) is tuple:
            return tuple(map(self._direct, value))
        number = self.numbers.get(id(value))
        return value if number is None else Token(number)

    def persistent_id(self, obj: Any) -> Any:
        """Return what stands for an object."""
        if type(obj) is Token:
            return "deep", obj.number
        number = self.numbers.get(id(obj))
        if number is None:
            return super().persistent_id(obj)
        if number >= self._written:  # what is made from it may look into it, and it is empty yet
            raise RefusedError(TOO_DEEP, obj)
        return "deep", number


def _inside(obj: Any) -> Iterator[Any]:
    """Return what an object holds directly."""
    content = in_place.content_of(obj)
    if type(obj) is dict:
        return (part for pair in content.items() for part in pair)
    if type(obj) in _FLAT:
        return iter(content)
    space, slots, inner = content
    parts = inner if type(inner) is tuple else (inner,)
    held = [each for part in parts for each in (part if type(part) is list else (part,))]
    return iter([space, *(slots or {}).values(), *held])
