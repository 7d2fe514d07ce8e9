"""The walk over one side's values: who reaches which object, and so which roots belong together.

Classes, functions, modules, loggers and code are never walked through.  The walk only reads; it
knows nothing of versions or wires.
"""

from __future__ import annotations

import enum
import gc
import logging
import types
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpulease.sides.libraries import library
from gpulease.sides.looks import unseen
from gpulease.transfer import frameworks
from gpulease.transfer.arrays import HOLDERS, buffer_owner
from gpulease.transfer.registry import Registry
from gpulease.transfer.values import given_up
from gpulease.transfer.values.groups import (
    ATOMIC,
    AbandonedError,
    Check,
    Group,
    Held,
    are_atomic,
    name_root,
)
from gpulease.transfer.values.kinds import weak
from gpulease.transfer.values.kinds.array_reduction import whole_of
from gpulease.transfer.values.kinds.imported import ALIAS, Imported, parts_of_alias
from gpulease.transfer.values.kinds.units import UnitBook, is_unit, makes_its_space, own_space
from gpulease.transfer.values.stays import leaves
from gpulease.transfer_next import faces, locks
from gpulease.transfer_next.refuse import live_kind
from gpulease.transfer_next.weak import REFERENCES

from .joining import Joined
from .leaf_groups import LeafGroups
from .met_units import MetUnits
from .overlaps import Overlaps

#: How many objects are visited between two looks whether to give up: about a millisecond.
_SLICE = 2048
_OWNERLESS = (types.ModuleType, type(None), type)
_CUT = (types.ModuleType, logging.Logger, types.FrameType, types.TracebackType, weakref.ref)
_SPECIAL = (type, enum.Enum, ALIAS, BaseException, *_CUT, *HOLDERS)
#: Types of which some objects are units, are cut off, or are looked through at once.
_TREATED = frozenset({types.FunctionType, object, types.BuiltinFunctionType, tuple, frozenset})


class Walk:
    """One pass over values of one side; ``groups`` afterwards partitions everything reached.

    ``values`` gives names their values; the namespace ``ns`` unless another is given.  ``noted`` is
    what frameworks noted in an earlier walk: they look again at what may have changed since.
    """

    def __init__(  # noqa: PLR0917 - what a walk is made of
        self,
        ns: dict[str, Any],
        registry: Registry,
        book: UnitBook,
        check: Check | None = None,
        values: Mapping[str, Any] | None = None,
        noted: dict[Any, dict[Any, Any]] | None = None,
    ) -> None:
        self._ns = ns
        self._values = ns if values is None else values
        self._check = check or (lambda: None)
        self._joined = Joined()
        self._parts: dict[str, Group] = {}
        self._owner: dict[int, str] = {}
        self._keep: list[Any] = []
        self._memory = Overlaps()
        self._live: dict[type, bool] = {}
        self._common: dict[type, bool] = {}
        self._unseen: dict[type, str] = {}  # types that cannot be looked at, and why
        self._is_imported = Imported()
        self._weakly: list[tuple[str, Any]] = []
        self._scratch = {} if noted is None else noted
        frameworks.refresh()
        self._leaves = LeafGroups(registry)
        self._registry = registry
        self._met = MetUnits(ns, registry, book, self._parts, self._leaves.met)
        pandas = library("pandas")
        found = [getattr(pandas, name, None) for name in ("DataFrame", "Series", "Index")]
        self._pandas: tuple[type, ...] = tuple(kind for kind in found if kind is not None)
        self._ndarray: type | None = getattr(library("numpy"), "ndarray", None)

    @property
    def units(self) -> dict[str, Any]:
        """All units that were met, by id."""
        return self._met.units

    @property
    def used_globals(self) -> dict[str, set[str]]:
        """Of foreign globals dictionaries, the names that functions use, by id."""
        return self._met.used_globals

    @property
    def held(self) -> Held:
        """What leaves that were met keep."""
        return self._leaves.held

    def run(self, names: Iterable[str], oids: Iterable[str] = ()) -> list[Group]:
        """Walk from these names and units (live ones); return the groups, sorted by roots."""
        for name in names:
            if name in self._values:
                self._name(name_root(name), self._values[name])
        for oid in oids:
            unit = self._registry.get(oid)
            if unit is not None:
                self._met.enter(oid, unit)
        while self._met.queue:
            root, values = self._met.queue.pop()
            self._check()
            self._walk_root(root, values)
        self._leaves.look(self._ns, self._owner, self._parts, self._memory)
        for one, two in self._memory.pairs(self._parts, self._owner):
            self._joined.join(one, two)
        for root, referent in self._weakly:  # it is entered by whoever holds it
            if id(referent) in self._owner:
                self._joined.join(root, self._owner[id(referent)])
        return self._collect()

    # ---- one root

    def _name(self, root: str, value: Any) -> None:
        try:
            is_leaf = leaves.leaf_kind(value) is not None
        except Exception:  # noqa: BLE001 - the walk of the root says why it cannot be looked at
            is_leaf = False
        if is_leaf:  # it stays here, and so does the name
            self._met.leaf(root, value)
        else:
            self._met.queue.append((root, [value]))

    def _walk_root(self, root: str, values: list[Any]) -> None:
        if root in self._parts:
            return
        self._joined.add(root)
        part = self._parts[root] = Group((root,))
        for value in values:
            if type(value) in (str, bytes):
                part.nbytes += len(value)
        frontier = self._visit(root, part, values)
        while frontier:
            part.objects += len(frontier)
            self._keep.append(frontier)
            following: list[Any] = []
            for some in _slices(frontier):
                self._check()
                for found in _slices(gc.get_referents(*some)):
                    self._check()
                    following += self._visit(root, part, found)
            frontier = following

    def _visit(self, root: str, part: Group, found: list[Any]) -> list[Any]:
        """Enter objects into their group; return those to look into.

        A notebook's many objects are of few types.  Where nothing is special about a type, its
        objects are entered together, by operations that run without the interpreter's loop.
        """
        there = set(map(type, found))
        kinds = there - ATOMIC
        if not kinds:
            return []
        special = {kind for kind in kinds if not self._is_common(kind)}
        if not special:
            all_of_it = len(kinds) == len(there)
            common = found if all_of_it else [obj for obj in found if type(obj) in kinds]
            return self._visit_together(root, part, common)
        odd = special & self._unseen.keys()
        for kind in odd:
            part.unseen = part.unseen or self._unseen[kind]
        special -= odd
        kinds -= odd
        claimed = {kind for kind in special if frameworks.of(kind) is not None}
        out: list[Any] = []
        if claimed:
            out += self._visit_claimed(root, part, [obj for obj in found if type(obj) in claimed])
        if rest := special - claimed:
            few = {id(obj): obj for obj in found if type(obj) in rest}  # a class, of its instances
            out += self._visit_each(root, part, list(few.values()))
        kinds -= special
        if kinds:
            common = [obj for obj in found if type(obj) in kinds]
            out += self._visit_together(root, part, common)
        return out

    def _visit_together(self, root: str, part: Group, found: list[Any]) -> list[Any]:
        """Enter objects of types that ``_is_common``."""
        return self._entered(root, part, found, self._ns)

    def _entered(
        self, root: str, part: Group, found: list[Any], namespace: Any = None
    ) -> list[Any]:
        """Enter objects; return those that were not met before."""
        owner = self._owner
        fresh = dict(zip(map(id, found), found, strict=True))
        if namespace is not None and fresh.pop(id(namespace), None) is not None:
            part.has_namespace = True
        for key in owner.keys() & fresh.keys():
            del fresh[key]
            if owner[key] != root:
                self._joined.join(root, owner[key])
        owner.update(dict.fromkeys(fresh, root))
        part.inner.update(fresh)
        return list(fresh.values())

    def _is_common(self, kind: type) -> bool:
        """Say whether ``_visit_each`` would treat no object of this type in a way of its own."""
        known = self._common.get(kind)
        if known is None:
            try:
                known = self._judged(kind)
            except Exception as error:  # noqa: BLE001 - a metaclass may raise anything
                known, self._unseen[kind] = False, unseen(error, kind)
            self._common[kind] = known
        return known

    def _judged(self, kind: type) -> bool:
        given_up.met(kind)
        numpy = (self._ndarray,) if self._ndarray is not None else ()
        return not (
            kind in _TREATED
            or faces.is_face(kind)
            or issubclass(kind, (*_SPECIAL, *self._pandas, *numpy))
            or faces.is_arrow(kind)
            or faces.is_polars(kind)
            or self._is_imported.may_be(kind)
            or self._is_live(kind)
            or weak.is_weak(kind)
            or frameworks.of(kind) is not None
            or leaves.may_be(kind)
            or makes_its_space(kind)
        )

    def _visit_each(self, root: str, part: Group, found: list[Any]) -> list[Any]:
        """Enter objects one by one; one that does not let itself be looked at stays, with all."""
        left, out = iter(found), list[Any]()
        all_seen = False
        while not all_seen:
            try:
                self._visit_left(root, part, left, out)
                all_seen = True
            except AbandonedError:
                raise
            except Exception as error:  # noqa: BLE001 - a value may raise anything when asked
                part.unseen = part.unseen or unseen(error)
        return out

    def _visit_left(  # noqa: C901, PLR0912, PLR0915 - one loop over every object: a call each would double its cost
        self, root: str, part: Group, left: Iterator[Any], out: list[Any]
    ) -> None:
        owner = self._owner
        for obj in left:
            kind = type(obj)
            key = id(obj)
            if key in owner and owner[key] == root:
                continue
            if weak.is_weak(kind):
                out += self._weak(root, part, obj)
                continue
            if locks.may_be(kind) or leaves.stays(obj):
                part.needs.add(self._met.need(obj))
                continue
            if kind is types.FunctionType or kind is object or isinstance(obj, type):
                if is_unit(obj, self._met.known):
                    part.needs.add(self._met.need(obj))
                continue
            if self._is_imported(obj):
                continue
            if isinstance(obj, enum.Enum):
                part.needs.add(self._met.need(kind))  # a member is its class's
                continue
            if issubclass(kind, ALIAS):  # typing gives out the same one to all who ask
                out += self._visit(root, part, parts_of_alias(obj))
                continue
            if isinstance(obj, _CUT):
                part.modules |= isinstance(obj, types.ModuleType)
                continue
            if kind is types.BuiltinFunctionType and (
                type(obj.__self__) in _OWNERLESS or self._is_imported(obj.__self__)
            ):
                continue  # a function of a module or a class; others hold their object
            if (kind is tuple or kind is frozenset) and are_atomic(obj):
                part.unordered |= kind is frozenset
                continue
            if key in owner:
                self._joined.join(root, owner[key])
                continue
            if makes_its_space(kind):
                own_space(obj)  # one that raises stays, before anything relies on it
            owner[key] = root
            part.inner[key] = obj
            if self._is_live(kind):
                self._keep.append(obj)
                continue
            if self._pandas and isinstance(obj, self._pandas):
                self._keep.append(obj)
                part.objects += 1
                out.extend(self._frame(root, part, obj))
                continue
            out.append(_without_trace(obj) if issubclass(kind, BaseException) else obj)
            if self._ndarray is not None and isinstance(obj, self._ndarray):
                out.extend(self._array(root, part, obj))
            elif issubclass(kind, HOLDERS):
                self._memory.holders.append((obj, root))
            elif faces.is_face(kind):
                self._face(part, obj)
            elif faces.is_polars(kind):
                part.nbytes += obj.estimated_size()
                self._memory.blocks += [(array, root) for array in faces.arrays_of_polars(obj)]
            elif faces.is_arrow(kind):
                part.nbytes += int(getattr(obj, "nbytes", 0) or 0)
                self._memory.blocks += [(array, root) for array in faces.arrays_of_arrow(obj)]

    def _weak(self, root: str, part: Group, obj: Any) -> list[Any]:
        """Enter a container of weak references (one has no identity); return what it holds."""
        if type(obj) not in REFERENCES and not self._entered(root, part, [obj]):
            return []
        held, referents = weak.strong(obj), weak.referents(obj)
        self._keep.append((held, referents))
        self._weakly += [(root, referent) for referent in referents]
        return self._visit(root, part, [type(obj), *held])

    def _is_live(self, kind: type) -> bool:
        known = self._live.get(kind)
        if known is None:
            known = self._live[kind] = live_kind(kind) is not None
        return known

    def _visit_claimed(self, root: str, part: Group, found: list[Any]) -> list[Any]:
        """Enter objects of frameworks; return those to look into that they reach."""
        fresh = self._entered(root, part, frameworks.not_imported(found))
        if not fresh:
            return []
        self._keep.append(fresh)
        part.claimed += fresh
        part.objects += len(fresh)
        kinds = set(map(type, fresh))
        values: list[Any] = [kind for kind in kinds if is_unit(kind, self._met.known)]
        for framework in {frameworks.of(kind): None for kind in kinds}:
            assert framework is not None
            own = [obj for obj in fresh if frameworks.of(type(obj)) is framework]
            inside = framework.inside_all(own, self._scratch.setdefault(framework, {}))
            spans = set(inside.spans) - part.spans
            part.spans |= spans
            part.nbytes += sum(high - low for low, high in spans)
            values += inside.values
        if not values:
            return []
        self._keep.append(values)
        return self._visit(root, part, values)

    def _array(self, root: str, part: Group, found: Any) -> list[Any]:
        part.arrays.append(found)
        part.nbytes += found.nbytes
        if not found.dtype.hasobject:
            owner = buffer_owner(found)
            if owner is not None:  # an alias, where something else refers to it as well
                self._keep.append(owner)
                self._memory.owners.append((id(owner), root))
            return []
        whole = whole_of(found).view(self._ndarray)
        return self._visit(root, part, whole.ravel(order="K").tolist())

    def _face(self, part: Group, obj: Any) -> None:
        memory = faces.memory_of(obj)
        if memory is not None:
            part.arrays.append(memory)
            part.faces = True

    def _frame(self, root: str, part: Group, frame: Any) -> list[Any]:
        nbytes, values = faces.inside_pandas(frame)
        part.nbytes += nbytes
        self._memory.blocks += [(array, root) for array in faces.arrays_of_pandas(frame)]
        return self._visit(root, part, [type(frame), *values])

    def _collect(self) -> list[Group]:
        groups = self._joined.groups(self._parts)
        for group in groups:
            group.noted = self._scratch
            group.needs.difference_update(group.oids)
        self._leaves.finish(groups, self.used_globals)
        return sorted(groups, key=lambda g: g.roots)


def _without_trace(error: BaseException) -> list[Any]:
    """Return what an exception leads to that travels; its traceback is of code that has ended."""
    trace = error.__traceback__
    return [each for each in gc.get_referents(error) if each is not trace]


def _slices(objects: list[Any]) -> Iterator[list[Any]]:
    return (objects[start : start + _SLICE] for start in range(0, len(objects), _SLICE))
