"""Components, and which are one: those that share an object that can change."""

from __future__ import annotations

import argparse
import enum
import io
import itertools
import math
import pickle
import re
import types
import typing
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gpulease.sides.libraries import library
from gpulease.sides.names.analysis import SUBCLASSES, code_use

from . import anatomy, faces, in_place, leaves, pieces, ways
from .by_class import is_loose, takes_raw, travels_by_value
from .memory import InFrame
from .pickler import KINDS, Pickler
from .pieces import buffer_digest, combine
from .rebuild import seed
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
        found = set(itertools.compress(members, map(of_kind.__getitem__, map(type, objects))))
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
        try:
            if kind not in self._kinds:
                self._kinds[kind] = _kind_can_change(kind)
            return self._kinds[kind]
        except Exception:  # noqa: BLE001 - a metaclass may raise anything; packing names it
            return True


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


#: What is packed as what it refers to, besides instances that are their attributes.
_AS_THEY_ARE = frozenset((
    list, dict, set, tuple, frozenset, str, bytes, bytearray, int, float, complex, bool, type(None),
    InFrame,
))  # fmt: skip


class Seed:
    """Stands for something that both sides know while the beginning of a stream is packed."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __reduce__(self) -> tuple[Any, ...]:
        return seed, (self.key,)


class Preamble:
    """The beginning of a stream, after which a pickler's memo holds what both sides know."""

    def __init__(self, known: Mapping[str, Any]) -> None:
        out = io.BytesIO()
        pickler = pickle.Pickler(out, protocol=5)
        pickler.dump([Seed(key) for key in known])
        self.memo: dict[int, tuple[int, Any]] = {}
        for key, (index, obj) in pickler.memo.copy().items():
            if type(obj) is Seed:
                self.memo[id(known[obj.key])] = (index, known[obj.key])
            else:
                self.memo[key] = (index, obj)
        self.stream = out.getvalue()


@dataclass(frozen=True)
class Writing:
    """A pickler at work."""

    pickler: Pickler
    out: io.BytesIO
    buffers: list[Any]
    start: Preamble


@dataclass
class Component:
    """Roots that share something, packed."""

    roots: frozenset[str]
    stream: bytes = b""
    buffers: list[Any] = field(default_factory=list)
    #: By id, what has memory that travels in pieces.
    large: dict[str, Any] = field(default_factory=dict)
    #: By ``id``, everything that the pickler met: its place in the memo, and the object.
    members: dict[int, tuple[int | None, Any]] = field(default_factory=dict)
    #: The objects once more, and their types.
    objects: list[Any] = field(default_factory=list)
    kinds: set[type] = field(default_factory=set)
    #: Ids of dictionaries that belong to an object for good, whether they were met or not.
    kept_spaces: frozenset[int] = frozenset()
    told_apart: ToldApart = field(default_factory=lambda: ToldApart({}))
    #: The roots as they follow each other in the stream.
    order: tuple[str, ...] = ()
    #: While a survey runs, where more roots can be written; None where that cannot be.
    writes: Writing | None = None
    #: Dictionaries with names of their own that belong to an object for good: id -> that object.
    spaces: dict[int, Any] = field(default_factory=dict)
    #: Lists of a library's settings that are in it, by key.
    settings: dict[str, Any] = field(default_factory=dict)
    #: Ids of the classes that it refers to.
    classes: frozenset[str] = frozenset()
    error: RefusedError | None = None
    #: Whether it was not looked at (see ``sending.rest``); then its size, and what its code reads.
    rests: bool = False
    known_reads: set[str] | None = None
    known_size: int = 0
    #: How many objects have places of their own in the stream.
    deep: int = 0
    #: Pins of the other side whose contents follow the roots.
    filled: tuple[str, ...] = ()

    def written(self, writing: Writing) -> None:
        """Take what a pickler has written."""
        self.stream = writing.start.stream + writing.out.getvalue()
        self.buffers = list(writing.buffers)  # the pickler's own grows where more is written
        self.large = dict(writing.pickler.large)

    @cached_property
    def pieces(self) -> dict[str, bytes]:
        """By id, the digests of the pieces of large memory."""
        return {oid: pieces.digests(found) for oid, found in self.large.items()}

    @cached_property
    def digest(self) -> bytes:
        """The digest of all that is in it, now: it is asked for while nothing changes that."""
        parts = (buffer_digest(buffer.raw()) for buffer in self.buffers)
        # Names that are exchanged may have been written in another order, into the same bytes.
        order = repr(sorted(range(len(self.order)), key=self.order.__getitem__)).encode()
        return combine([order, self.stream, *parts, *self.pieces.values()])

    @property
    def names(self) -> list[str]:
        """The variables among the roots."""
        return [root[2:] for root in self.roots if root[0] == "n"]

    @cached_property
    def ids(self) -> set[int]:
        """The ids of objects that can change; ``has`` asks for one of them."""
        return self.told_apart.ids(self.members, self.objects) | self.kept_spaces

    def has(self, key: int) -> bool:
        """Say whether an object that can change is in it."""
        if key in self.kept_spaces:
            return True
        return key in self.members and self.told_apart.can_change(self.members[key][1])

    @property
    def nbytes(self) -> int:
        """Size of the stream and the memory beside it."""
        sizes: list[int] = [buffer.raw().nbytes for buffer in self.buffers]
        sizes += map(pieces.size, self.large.values())
        return self.known_size + len(self.stream) + sum(sizes)

    def is_plain(self, also: Collection[type] = ()) -> bool:
        """Say whether all objects were packed as what they refer to, and nothing else.

        ``also`` are kinds for which that does not matter.
        """
        bare = {kind for kind in self.kinds if anatomy.is_bare(kind) and takes_raw(kind)}
        by_name = {kind for kind in self.kinds if issubclass(kind, type | types.ModuleType)}
        by_name.discard(types.ModuleType)
        kinds = self.kinds.difference(_AS_THEY_ARE, bare, by_name, also)
        if not kinds <= {types.FunctionType, types.ModuleType}:
            return False
        return not any(self.has(id(obj)) for obj in self.of_kinds(kinds))

    def is_in_order(self) -> bool:
        """Say whether another process that has loaded it packs it into the same bytes."""
        if self.deep or any(len(each) > 1 for each in self.of_kinds((set, frozenset))):
            return False
        np = library("numpy")
        arrays = {kind for kind in self.kinds if np and issubclass(kind, np.ndarray | np.dtype)}
        also = {kind for kind in arrays if kind.__module__.startswith("numpy")}
        also |= faces.of_one_frame(self.kinds, self.of_kinds)
        entered = {kind: said for kind in self.kinds if (said := ways.in_order(kind)) is not None}
        if not self.is_plain({*also, *entered, OrderedDict, defaultdict}):
            return False
        return all(entered[type(obj)](obj) for obj in self.of_kinds(entered))

    def of_kinds(self, kinds: Collection[type]) -> list[Any]:
        """Return what is of one of these types."""
        if self.kinds.isdisjoint(kinds):
            return []
        return [obj for obj in self.objects if type(obj) in kinds]

    def reads(self) -> set[str] | None:
        """Return the global names that its code may touch; None where that cannot be told."""
        if self.rests:
            return self.known_reads
        found: set[str] = set()
        staying = self.of_kinds(leaves.RUNNING)
        for code in itertools.chain(self.of_kinds((types.CodeType,)), leaves.code_within(staying)):
            use = code_use(code)
            if use.unbounded or SUBCLASSES in use.reads:
                return None
            found |= use.reads | use.writes
        return found


#: A larger component's ids are not put into a set: what it has met is looked up.
MANY = 1000


def joined(components: Iterable[Component]) -> list[frozenset[str]] | None:
    """Return the roots of each group with those joined that share an object, None if none do."""
    groups: list[tuple[frozenset[str], list[Component]]] = []
    seen: set[int] = set()
    large: list[Component] = []
    any_shared = False
    for component in components:
        roots, parts = component.roots, [component]
        is_large = len(component.members) > MANY
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


def _meets(component: Component, ids: set[int]) -> bool:
    """Say whether a component has one of these objects, each of which can change."""
    return not (component.members.keys().isdisjoint(ids) and component.kept_spaces.isdisjoint(ids))


def _share(one: Component, other: Component) -> bool:
    less, more = sorted((one, other), key=lambda each: len(each.members))
    if len(less.members) <= MANY:
        return _meets(more, less.ids)
    both = less.members.keys() & more.members.keys() | less.kept_spaces & more.kept_spaces
    both.update(key for key in less.kept_spaces if key in more.members)
    both.update(key for key in more.kept_spaces if key in less.members)
    return any(less.has(key) or key in more.kept_spaces for key in both)


class LeadsError(Exception):
    """What is packed leads to an object of a large component, which is the argument."""


class Probe(Pickler):
    """Packs what does not lead to one of ``others``, or goes on with what stands for that."""

    others: Collection[Component] = ()
    goes_on = False

    def reducer_override(self, obj: Any) -> Any:
        """Reduce one object; raises LeadsError."""
        for each in self.others:
            if id(obj) in each.members and each.has(id(obj)):
                if self.goes_on:
                    return object, ()
                raise LeadsError(each)
        return super().reducer_override(obj)


TOO_DEEP = "objects that hold each other too deeply"
_FLAT = (list, dict, set)


class Asked(Pickler):
    """For values that are told by ``is``, and for ``vars`` of a namespace or a module.

    Such a dictionary cannot be replaced by another, so its other names mean the object.
    """

    def persistent_id(self, obj: Any) -> Any:
        """Return what stands for an object."""
        if type(obj) is dict and (owner := self.spaces.get(id(obj))) is not None:
            return "vars", owner
        if obj is argparse.SUPPRESS:
            return "argparse"
        if type(obj) is float and obj != obj:  # noqa: PLR0124 - that is what a NaN is
            np = library("numpy")
            names = {id(math.nan): "math", id(np and np.nan): "numpy"}
            return names.get(id(obj)) or self.met.others.id_of(obj)
        return None


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
