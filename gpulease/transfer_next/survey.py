"""Which components there are: what roots share, found while they are packed.

One pickler of C for each root; its memo holds the objects that it met.  Roots whose memos share an
object that can change are packed again, together.  All picklers live until the end: the address of
something that was made for one would else be another's.
"""

from __future__ import annotations

import enum
import io
import pickle
import re
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from gpulease.transfer.libraries import library
from gpulease.transfer.refuse import RefusedError
from gpulease.transfer.values.kinds.hashing import buffer_digest, combine
from gpulease.transfer.values.names.analysis import SUBCLASSES, code_use

from . import classes, in_place, lasting, ways
from .asked import TOO_DEEP, Asked, Deep
from .memory import EXPORTERS, InFrame
from .pickler import Met, Pickler, shows_memory, travels_by_value
from .rebuild import seed

#: A float that is no number: the usual one, or another that is not within a negative integer.
_NAN = re.compile(
    rb"G[\x7f\xff](?:\xf8\0{6}|(?<!J..)(?<!J...)(?:[\xf1-\xff]|\xf0(?!\0{6})))", re.DOTALL
)
_PLAIN = frozenset((
    str, bytes, tuple, int, float, complex, bool, frozenset, type(None), range, slice,
    types.CodeType, pickle.PickleBuffer, types.ModuleType, types.BuiltinFunctionType,
    types.MethodType, type(Ellipsis), re.Pattern, property, staticmethod, classmethod, InFrame,
    types.GenericAlias, types.UnionType, object,
))  # fmt: skip
_PLAIN_MODULES = frozenset((
    "datetime", "decimal", "fractions", "pathlib", "uuid", "zoneinfo", "typing", "logging",
    "ipaddress", "operator", "_operator",
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
    digest: bytes = b""
    #: Everything that the pickler met, by ``id``; which of it can change; where it is in the memo.
    members: dict[int, Any] = field(default_factory=dict)
    ids: set[int] = field(default_factory=set)
    #: The roots as they follow each other in the stream.
    order: tuple[str, ...] = ()
    #: While a survey runs, where more roots can be written; None where that cannot be.
    writes: Writing | None = None
    index: dict[int, int] = field(default_factory=dict)
    #: Dictionaries with names of their own that belong to an object for good: id -> that object.
    spaces: dict[int, Any] = field(default_factory=dict)
    #: Lists of a library's settings that are in it, by key.
    settings: dict[str, Any] = field(default_factory=dict)
    #: Ids of the classes that it refers to.
    classes: frozenset[str] = frozenset()
    error: RefusedError | None = None
    #: How many objects have places of their own in the stream.
    deep: int = 0
    #: Pins of the other side whose contents follow the roots.
    filled: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The variables among the roots."""
        return [root[2:] for root in self.roots if root[0] == "n"]

    @property
    def nbytes(self) -> int:
        """Size of the stream and the memory beside it."""
        sizes: list[int] = [buffer.raw().nbytes for buffer in self.buffers]
        return len(self.stream) + sum(sizes)

    def reads(self) -> set[str] | None:
        """Return the global names that its code may touch; None where that cannot be told."""
        found: set[str] = set()
        for obj in self.members.values():
            if type(obj) is types.CodeType:
                use = code_use(obj)
                if use.unbounded or SUBCLASSES in use.reads:
                    return None
                found |= use.reads | use.writes
        return found


class Survey:
    """One look at all roots."""

    def __init__(self, met: Met, values: dict[str, Any], known: Mapping[str, Any]) -> None:
        self.met = met
        #: Roots: "n:" and a name, "c:" and a class's id, "p:" and a pin of the other side's.
        self.values = values
        self.known = known
        self._preamble = Preamble(known)
        self._settings = lasting.settings()
        self._kinds: dict[type, bool | None] = dict.fromkeys(_PLAIN, False)
        self._picklers: list[Any] = []
        self.components: list[Component] = []

    def run(self, lone: Mapping[str, Any]) -> None:
        """Find all components; ``lone`` are roots where nothing else leads to their object."""
        ways.open_rooms()
        packed: dict[frozenset[str], Component] = {}
        groups = self._first_groups()
        while True:
            for group in groups:
                if group not in packed:
                    packed[group] = self._joined(group, packed)
            groups, more = self._more_classes(groups)
            merged = None if more else _merge([packed[group] for group in groups])
            if merged is not None:
                groups, more = merged, True
            more = more or self._cross(groups, packed) or self._pack_again(groups, packed)
            more = more or self._add_lone(groups, packed, lone)
            if not more:
                break
        self.components = [packed[group] for group in groups]
        self._picklers.clear()
        for component in self.components:
            component.writes = None
        self.met.named.clear()

    def _first_groups(self) -> list[frozenset[str]]:
        same: dict[int, set[str]] = {}
        for root, value in self.values.items():
            key = id(value) if self._can_change(value) else -1 - len(same)
            same.setdefault(key, set()).add(root)
        return list(map(frozenset, same.values()))

    def _joined(
        self, roots: frozenset[str], packed: Mapping[frozenset[str], Component]
    ) -> Component:
        """Pack roots together: the small parts are written after the largest, where that can be."""
        below = [each for each in packed.values() if each.roots < roots]
        parts = [part for part in below if not any(part.roots < each.roots for each in below)]
        parts.sort(key=lambda each: (-len(each.index), each.order))
        if not parts or frozenset().union(*(each.roots for each in parts)) != roots:
            return self.pack(roots)
        more = sorted(roots - parts[0].roots)
        if any(each.writes is None for each in parts) or any(root[0] == "c" for root in more):
            return self.pack(roots)
        return self._extended(parts, more) or self.pack(roots)

    def _extended(self, parts: list[Component], more: list[str]) -> Component | None:
        """Write more roots after those of the first part; None where that gives another stream."""
        base = parts[0]
        if any(each.settings.keys() - base.settings.keys() for each in parts):
            return None
        writes, base.writes = base.writes, None
        assert writes is not None
        component = Component(base.roots.union(more), order=(*base.order, *more), writes=writes)
        component.settings = base.settings
        component.ids = set().union(*(each.ids for each in parts))
        component.classes = frozenset().union(*(each.classes for each in parts))
        try:
            for root in more:
                writes.pickler.dump(self.values[root])
        except Exception:  # noqa: BLE001 - it is packed as a whole then, which says why
            return None
        self._note(component, writes, {})
        return None if component.spaces else component

    def _more_classes(self, groups: list[frozenset[str]]) -> tuple[list[frozenset[str]], bool]:
        known = {root[2:] for group in groups for root in group if root[0] == "c"}
        new = self.met.met_classes - known
        return groups + [frozenset(["c:" + oid]) for oid in sorted(new)], bool(new)

    def _cross(self, groups: list[frozenset[str]], packed: dict[frozenset[str], Component]) -> bool:
        """Pack what holds frames and images again where their memory is an array's, too."""
        members = (each for group in groups for each in packed[group].members.values())
        if not self.met.memory.crossing(each for each in members if type(each) in EXPORTERS):
            return False
        for group in list(packed):
            if any(shows_memory(type(each)) for each in packed[group].members.values()):
                del packed[group]
        return True

    def _pack_again(self, groups: list[frozenset[str]],
                    packed: dict[frozenset[str], Component]) -> bool:  # fmt: skip
        """Pack groups again of which a library found out more since: what shares memory, say."""

        def members() -> Iterator[Any]:
            return (obj for group in groups for obj in packed[group].members.values())

        stale = set[int]().union(*(look(self.met, members()) for look in ways.after_packing))
        again = [group for group in groups if not stale.isdisjoint(packed[group].members)]
        for group in again:
            del packed[group]
        return bool(again)

    def _add_lone(self, groups: list[frozenset[str]], packed: dict[frozenset[str], Component],
                  lone: Mapping[str, Any]) -> bool:  # fmt: skip
        reached: set[int] = set().union(*(packed[group].ids for group in groups))
        new = {
            root: obj
            for root, obj in lone.items()
            if id(obj) not in reached and root not in self.values
        }
        self.values.update(new)
        groups += [frozenset([root]) for root in new]
        return bool(new)

    def pack(self, roots: frozenset[str], pinned: Mapping[str, Any] | None = None) -> Component:
        """Pack roots together; ``pinned`` are objects that the receiver has, with new contents."""
        component = Component(roots, order=tuple(sorted(roots)))
        pinned = pinned or {}
        classes_before, self.met.met_classes = self.met.met_classes, set()
        try:
            try:
                self._pack(component, Pickler, pinned)
                if met := self._settings.keys() & component.members.keys():
                    found = {self._settings[key]: component.members[key] for key in met}
                    component.settings = dict(sorted(found.items()))
                    self._pack(component, Pickler, pinned)
                if component.spaces or _may_hold_nan(component.stream):
                    self._pack(component, Asked, pinned)
            except RecursionError:
                self._pack(component, Deep, pinned)
            for key in self.met.refused.keys() & component.members.keys():
                raise RefusedError(self.met.refused[key])
        except RefusedError as error:
            component = Component(roots, error=error)
        except RecursionError:
            component = Component(roots, error=RefusedError(TOO_DEEP))
        except Exception as error:  # noqa: BLE001 - a value's own way of being pickled
            kind = type(error).__name__
            component = Component(
                roots, error=RefusedError(f"it cannot be packed ({kind}: {error})")
            )
        component.classes = frozenset(self.met.met_classes)
        self.met.met_classes |= classes_before
        return component

    def _pack(self, component: Component, kind: type[Pickler], pinned: Mapping[str, Any]) -> None:
        out, buffers = io.BytesIO(), list[Any]()
        pickler = kind(out, buffers, self.met)
        self._picklers.append(pickler)
        start = self._preamble
        if pinned or component.settings:
            pins = {"p:" + pin: obj for pin, obj in pinned.items()}
            start = Preamble({**self.known, **component.settings, **pins})
        pickler.memo = dict(start.memo)
        pickler.spaces = component.spaces
        if isinstance(pickler, Deep):
            held = map(in_place.content_of, pinned.values())
            pickler.lay_out([self.values[r] for r in component.roots if r[0] != "c"] + [*held])
            pickler.dump_flat()
            component.deep = len(pickler.order)
        self._dump(component, pickler, pinned)
        writing = Writing(pickler, out, buffers, start)
        self._note(component, writing, pinned)
        component.ids = self._ids(component.members)
        component.ids.update(pickler.kept_spaces)
        component.writes = writing if kind is Pickler and not pinned else None

    def _dump(self, component: Component, pickler: Pickler, pinned: Mapping[str, Any]) -> None:
        """Write the roots, and new contents of what is pinned."""
        for root in component.order:
            if root[0] == "c":
                for part in classes.parts_of(self.met.classes.get(root[2:])):
                    pickler.dump(part)
            elif root[0] == "n" or not pinned:
                pickler.dump(self.values[root])
        for obj in pinned.values():
            pickler.note_space(obj)
            pickler.dump(in_place.content_of(obj))
        component.filled = tuple(pinned)

    def _note(self, component: Component, writing: Writing, pinned: Mapping[str, Any]) -> None:
        """Note what was written, and what was met; only ids are kept of the memo."""
        pickler, start = writing.pickler, writing.start
        component.stream = start.stream + writing.out.getvalue()
        component.buffers = writing.buffers
        parts = (buffer_digest(buffer.raw()) for buffer in component.buffers)
        component.digest = combine([component.stream, *parts])
        memo = pickler.memo.copy()
        component.spaces |= {
            key: owner for key, owner in pickler.kept_spaces.items() if key in memo
        }
        component.index = dict(zip(memo, map(itemgetter(0), memo.values()), strict=True))
        component.members = dict(zip(memo, map(itemgetter(1), memo.values()), strict=True))
        for key in start.memo:
            del component.members[key]
        component.members |= {id(obj): obj for obj in pinned.values()}
        for key, owner in component.spaces.items():
            component.members[key] = vars(owner)
        if isinstance(pickler, Deep):
            component.members |= {id(obj): obj for obj in pickler.order}
            component.index |= {key: -1 - number for key, number in pickler.numbers.items()}

    def _ids(self, members: Mapping[int, Any]) -> set[int]:
        """Return the ids of objects of which each can be told from its equals, and can change."""
        kinds = {kind: self._kind(kind) for kind in set(map(type, members.values()))}
        asked = [kind for kind, known in kinds.items() if known is None]
        found = {key for key, obj in members.items() if kinds[type(obj)]}
        if asked:
            found |= {
                key
                for key, obj in members.items()
                if kinds[type(obj)] is None and travels_by_value(obj)
            }
        return found - self.met.named.keys()

    def _kind(self, kind: type) -> bool | None:
        known = self._kinds.get(kind, self)
        if known is self:
            known = self._kinds[kind] = self._kind_can_change(kind)
        return known  # type: ignore[return-value]

    def _can_change(self, obj: Any) -> bool:
        """Say whether it can be seen which object this is, and what is in it can change."""
        known = self._kind(type(obj))
        if known is None:
            return travels_by_value(obj)
        return bool(known) and id(obj) not in self.met.named

    def _kind_can_change(self, kind: type) -> bool | None:  # noqa: PLR0911 - one a kind
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


_DESCRIPTORS = frozenset((
    "getset_descriptor", "method_descriptor", "wrapper_descriptor", "cython_function_or_method",
))  # fmt: skip


def _may_hold_nan(stream: bytes) -> bool:
    return (b"G\x7f" in stream or b"G\xff" in stream) and _NAN.search(stream) is not None


def _merge(components: list[Component]) -> list[frozenset[str]] | None:
    """Return the groups with those joined that share an object, None where none do."""
    groups: list[tuple[frozenset[str], set[int]]] = []
    seen: set[int] = set()
    for component in components:
        roots, ids = component.roots, component.ids
        if not seen.isdisjoint(ids):
            shared = [each for each in groups if not each[1].isdisjoint(ids)]
            groups = [each for each in groups if each[1].isdisjoint(ids)]
            roots = roots.union(*(each[0] for each in shared))
            ids = ids.union(*(each[1] for each in shared))
        groups.append((roots, ids))
        seen |= ids
    return None if len(groups) == len(components) else [roots for roots, _ in groups]
