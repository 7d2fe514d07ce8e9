"""Which components there are: what roots share, found while they are packed.

One pickler of C for each root; its memo holds the objects that it met.  Roots whose memos share an
object that can change are packed again, together.  All picklers live until the end: the address of
something that was made for one would else be another's.
"""

from __future__ import annotations

import gc
import io
import itertools
import pickle
import re
import types
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import Any

from gpulease.sides.libraries import library
from gpulease.sides.names.analysis import SUBCLASSES, code_use

from . import anatomy, classes, in_place, lasting, leaves, pieces, stayed, ways
from .by_class import takes_raw
from .groups import TOO_DEEP, Asked, Deep, ToldApart, joined
from .memory import EXPORTERS
from .pickler import Met, Pickler, StandsIn, shows_memory
from .pieces import buffer_digest, combine
from .rebuild import seed
from .refuse import LimitedBuffers, LimitedFile, RefusedError

#: A float that is no number: the usual one, or another that is not within a negative integer.
_NAN = re.compile(
    rb"G[\x7f\xff](?:\xf8\0{6}|(?<!J..)(?<!J...)(?:[\xf1-\xff]|\xf0(?!\0{6})))", re.DOTALL
)
#: What is packed as what it refers to, besides instances that are their attributes.
_AS_THEY_ARE = frozenset((
    list, dict, set, tuple, frozenset, str, bytes, bytearray, int, float, complex, bool, type(None),
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
    #: By id, what has memory that travels in pieces, and the digests of these.
    large: dict[str, Any] = field(default_factory=dict)
    pieces: dict[str, bytes] = field(default_factory=dict)
    digest: bytes = b""
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
        self.buffers = writing.buffers
        self.large = dict(writing.pickler.large)
        self.pieces = {oid: pieces.digests(found) for oid, found in self.large.items()}
        parts = (buffer_digest(buffer.raw()) for buffer in self.buffers)
        self.digest = combine([self.stream, *parts, *self.pieces.values()])

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
        np = library("numpy")
        arrays = {kind for kind in self.kinds if np and issubclass(kind, np.ndarray | np.dtype)}
        if self.deep or not self.kinds.isdisjoint((set, frozenset)):
            return False
        return self.is_plain({kind for kind in arrays if kind.__module__.startswith("numpy")})

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


class Survey:
    """One look at all roots."""

    def __init__(self, met: Met, values: dict[str, Any], known: Mapping[str, Any]) -> None:
        self.met = met
        #: Roots: "n:" and a name, "c:" and a class's id, "p:" and a pin of the other side's.
        self.values = values
        self.known = known
        self._preamble = Preamble(known)
        self._settings = lasting.settings()
        self._picklers: list[Any] = []
        self._told_apart = ToldApart(met.named)
        self.components: list[Component] = []
        #: Roots of which the value stays here, and something travels that stands for it.
        self._standing: set[str] = set()

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
            merged = None if more else joined([packed[group] for group in groups])
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
        self._told_apart.named = frozenset(self.met.named)
        self.met.named.clear()

    def _first_groups(self) -> list[frozenset[str]]:
        same: dict[int, set[str]] = {}
        for root, value in self.values.items():
            key = id(value) if self._told_apart.can_change(value) else -1 - len(same)
            same.setdefault(key, set()).add(root)
        return list(map(frozenset, same.values()))

    def _joined(self, roots: frozenset[str], packed: dict[frozenset[str], Component]) -> Component:
        """Pack roots together: the small parts are written after the largest, where that can be."""
        below = [each for each in packed.values() if each.roots < roots]
        parts = [part for part in below if not any(part.roots < each.roots for each in below)]
        parts.sort(key=lambda each: (-len(each.members), each.order))
        if not parts or frozenset().union(*(each.roots for each in parts)) != roots:
            return self.pack(roots)
        more = sorted(roots - parts[0].roots)
        if any(each.writes is None for each in parts) or any(root[0] == "c" for root in more):
            return self.pack(roots)
        for part in parts:
            del packed[part.roots]
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
        component.classes = frozenset().union(*(each.classes for each in parts))
        try:
            for root in more:
                writes.pickler.dump(self.values[root])
        except Exception:  # noqa: BLE001 - it is packed as a whole then, which says why
            return None
        # What is met is known of the parts: a look at the memo would cost as much as packing.
        component.members, component.objects = base.members, base.objects
        component.kept_spaces = frozenset(writes.pickler.kept_spaces)
        component.told_apart = self._told_apart
        component.kinds = set().union(*(each.kinds for each in parts))
        for part in parts[1:]:
            for key in part.members.keys() - component.members.keys():
                obj = part.members[key][1]
                component.members[key] = None, obj
                component.objects.append(obj)
        component.written(writes)
        return None if self._spaces(component, writes.pickler) else component

    def _spaces(self, component: Component, pickler: Pickler) -> dict[int, Any]:
        """Return dictionaries that belong to an object for good and have another name, too."""
        kept = pickler.kept_spaces
        return {key: owner for key, owner in kept.items() if key in component.members}

    def _more_classes(self, groups: list[frozenset[str]]) -> tuple[list[frozenset[str]], bool]:
        known = {root[2:] for group in groups for root in group if root[0] == "c"}
        new = self.met.met_classes - known
        return groups + [frozenset(["c:" + oid]) for oid in sorted(new)], bool(new)

    def _cross(self, groups: list[frozenset[str]], packed: dict[frozenset[str], Component]) -> bool:
        """Pack what holds frames and images again where their memory is an array's, too."""
        if not self.met.memory.crossing(_exporters(groups, packed)):
            return False
        for group in list(packed):
            if any(map(shows_memory, packed[group].kinds)):
                del packed[group]
        return True

    def _pack_again(self, groups: list[frozenset[str]],
                    packed: dict[frozenset[str], Component]) -> bool:  # fmt: skip
        """Pack groups again of which a library found out more since: what shares memory, say."""
        looks = (look(self.met, _exporters(groups, packed)) for look in ways.after_packing)
        stale = set[int]().union(*looks)
        again = [group for group in groups if not stale.isdisjoint(packed[group].members)]
        for group in again:
            del packed[group]
        return bool(again)

    def _add_lone(self, groups: list[frozenset[str]], packed: dict[frozenset[str], Component],
                  lone: Mapping[str, Any]) -> bool:  # fmt: skip
        new = {
            root: obj
            for root, obj in lone.items()
            if root not in self.values and not any(packed[each].has(id(obj)) for each in groups)
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
                    found = {self._settings[key]: component.members[key][1] for key in met}
                    component.settings = dict(sorted(found.items()))
                    self._pack(component, Pickler, pinned)
                if component.spaces or _may_hold_nan(component.stream):
                    self._pack(component, Asked, pinned)
            except RecursionError:
                self._pack(component, Deep, pinned)
            for key in self.met.refused.keys() & component.members.keys():
                raise RefusedError(self.met.refused[key])
        except RefusedError as error:
            # One without a traceback, whose frames would keep what a cell deletes.
            component = Component(roots, error=RefusedError(error.kind, error.blocker))
        except RecursionError:
            component = Component(roots, error=RefusedError(TOO_DEEP))
        except Exception as error:  # noqa: BLE001 - a value's own way of being pickled
            kind = type(error).__name__
            component = Component(
                roots, error=RefusedError(f"it cannot be packed ({kind}: {error})")
            )
        component.classes = frozenset(self.met.met_classes)
        self.met.met_classes |= classes_before
        # A module cannot be without what it holds: a name of the notebook can.
        if component.error is not None and any(r[0] == "m" for r in roots - self._standing):
            self._standing |= roots
            return self.pack(roots, pinned)
        return component

    def _value(self, root: str) -> Any:
        value = self.values[root]
        return StandsIn(value) if root in self._standing else value

    def _pack(self, component: Component, kind: type[Pickler], pinned: Mapping[str, Any]) -> None:
        limit = self.met.limit
        out = io.BytesIO() if limit is None else LimitedFile(limit)
        buffers = list[Any]() if limit is None else LimitedBuffers(limit)
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
        component.kept_spaces = frozenset(pickler.kept_spaces)
        component.told_apart = self._told_apart
        component.writes = writing if kind is Pickler and not pinned else None

    def _dump(self, component: Component, pickler: Pickler, pinned: Mapping[str, Any]) -> None:
        """Write the roots, and new contents of what is pinned."""
        for root in component.order:
            if root[0] == "c":
                cls: Any = self.met.classes.get(root[2:])
                self.met.note_class_space(cls)
                for part in classes.parts_of(cls):
                    pickler.dump(part)
            elif root[0] != "p" or not pinned:
                pickler.dump(self._value(root))
        for obj in pinned.values():
            pickler.note_space(obj)
            pickler.dump(in_place.content_of(obj))
        component.filled = tuple(pinned)

    def _note(self, component: Component, writing: Writing, pinned: Mapping[str, Any]) -> None:
        """Note what was written, and what was met; only ids are kept of the memo."""
        pickler = writing.pickler
        component.written(writing)
        members: dict[int, tuple[int | None, Any]] = pickler.memo.copy()
        component.members = members
        component.spaces |= self._spaces(component, pickler)
        for key in writing.start.memo:
            del members[key]
        for obj in pinned.values():
            members[id(obj)] = writing.start.memo[id(obj)]
        for key, owner in component.spaces.items():
            members.setdefault(key, (None, vars(owner)))
        if isinstance(pickler, Deep):
            members |= {id(obj): (-1 - place, obj) for place, obj in enumerate(pickler.order)}
        component.objects = list(map(itemgetter(1), members.values()))
        component.kinds = set(map(type, component.objects))


def _may_hold_nan(stream: bytes) -> bool:
    return (b"G\x7f" in stream or b"G\xff" in stream) and _NAN.search(stream) is not None


def _exporters(groups: list[frozenset[str]],
               packed: Mapping[frozenset[str], Component]) -> Iterator[Any]:  # fmt: skip
    """Yield buffers that arrays may be over."""
    return (obj for group in groups for obj in packed[group].of_kinds(EXPORTERS))


def spread_refusals(components: list[Component],
                     space: Mapping[str, Any]) -> dict[frozenset[str], str]:  # fmt: skip
    """Return why components stay: what is refused in them, or in a class that they are of."""
    refused = {each.roots: _located(each, space) for each in components if each.error is not None}
    bad = {root[2:]: why for roots, why in refused.items() for root in roots if root[0] == "c"}
    for each in components:
        for oid in each.classes & bad.keys():
            refused.setdefault(each.roots, bad[oid])
    return refused


def _located(component: Component, space: Mapping[str, Any]) -> str:
    """Return what is refused in a component, with the way to it."""
    error = component.error
    assert error is not None
    values = {name: space[name] for name in component.names if name in space}
    return stayed.located(error.kind, values, error.blocker)


@contextmanager
def collector_waits() -> Iterator[None]:
    """Keep the collector from running: what it frees would give its address to another object."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
