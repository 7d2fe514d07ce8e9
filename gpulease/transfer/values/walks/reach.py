"""What a leaf that lives here leads to: a generator's variables, a thread's arguments.

Owns that look.  What a leaf shares with a name does not join their groups, for the leaf does not
travel; but it may read or change the name's value, it keeps the object that it has, and so that
must stay itself on this side, too.
"""

from __future__ import annotations

import gc
import itertools
import logging
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpulease.sides.libraries import library
from gpulease.sides.names.analysis import code_use
from gpulease.transfer import frameworks
from gpulease.transfer.registry import Registry
from gpulease.transfer.values.groups import ATOMIC, unit_root
from gpulease.transfer.values.kinds.scalars import is_scalar
from gpulease.transfer.values.kinds.units import is_unit
from gpulease.transfer.values.stays import leaves
from gpulease.transfer_next.faces import is_row
from gpulease.transfer_next.refuse import SET_AND_DICT_ITERATORS, live_kind
from gpulease.transfer_next.stayed import Stayed, leaf_of

#: Of what leads to more objects everything may be read.
LIMIT = 20_000
_CUT = (type, types.ModuleType, logging.Logger)
_CODES = ("gi_code", "cr_code", "ag_code")
_PLAIN_KEYS = frozenset({str, int, bool, bytes, type(None)})


@dataclass
class Reach:
    """``roots`` share an object with the leaf, by ``id`` in ``held``; ``reads`` are names.

    ``fragile`` are roots of which a part may not even be written in place: a set that is iterated.
    ``spans`` is memory that no object in ``held`` stands for; so is that of ``arrays``.
    """

    reads: set[str] = field(default_factory=set)
    roots: set[str] = field(default_factory=set)
    held: set[int] = field(default_factory=set)
    fragile: set[str] = field(default_factory=set)
    spans: list[tuple[int, int]] = field(default_factory=list)
    arrays: list[Any] = field(default_factory=list)
    unbounded: bool = False


def reach(leaf: Any, ns: dict[str, Any], owner: Mapping[int, str], registry: Registry) -> Reach:
    """Return what a leaf leads to; ``owner`` has the root of each object by ``id``."""
    return _Look(ns, owner, registry).over(leaf)


class _Look:
    def __init__(self, ns: dict[str, Any], owner: Mapping[int, str], registry: Registry) -> None:
        self._ns = ns
        self._owner = owner
        self._registry = registry
        self._scratch: dict[Any, dict[Any, Any]] = {}
        self._found = Reach()

    def over(self, leaf: Any) -> Reach:
        seen: dict[int, Any] = {id(leaf): leaf}
        frontier = self._inside(leaf)
        while frontier:
            fresh = {id(o): o for o in frontier if type(o) not in ATOMIC and id(o) not in seen}
            seen |= fresh
            if len(seen) > LIMIT:
                self._found.unbounded = True
                break
            frontier = [each for obj in fresh.values() for each in self._beyond(obj)]
        return self._found

    def _beyond(self, obj: Any) -> list[Any]:  # noqa: PLR0911 - one line a kind
        """Note what an object is; return where to go on."""
        kind = type(obj)
        if obj is self._ns:
            self._found.unbounded = True
            return []
        if kind is Stayed:
            self._found.reads.update(leaf_of(obj).uses)
            return []
        if kind is types.FunctionType:
            return self._function(obj)
        if issubclass(kind, _CUT):
            return []
        if kind is types.CellType and (oid := self._registry.find(obj)) is not None:
            self._found.roots.add(unit_root(oid))
        root = self._owner.get(id(obj))
        if root is None:
            return self._inside(obj)
        self._found.roots.add(root)
        if is_row(kind) and obj.base is not None:  # a face of that
            return [obj.base]
        if issubclass(kind, _OF_OTHERS):  # an equal one is as good: what is in it may not be
            return gc.get_referents(obj)
        if not is_scalar(kind):
            self._found.held.add(id(obj))
        return []

    def _inside(self, obj: Any) -> list[Any]:
        kind = type(obj)
        if live_kind(kind) is not None:
            return []
        framework = frameworks.of(kind)
        if framework is not None:
            inside = framework.inside(obj, self._scratch.setdefault(framework, {}))
            self._found.spans += inside.spans
            return list(inside.values)
        if is_row(kind):
            return [obj.base] if obj.base is not None else []
        numpy = library("numpy")
        if numpy is not None and issubclass(kind, numpy.ndarray):
            self._found.arrays.append(obj)
            if obj.dtype.hasobject:
                return list(obj.view(numpy.ndarray).ravel(order="K").tolist())
            return [] if isinstance(obj.base, numpy.ndarray) else [obj.base]
        found = gc.get_referents(obj)
        if kind in SET_AND_DICT_ITERATORS:
            self._found.fragile.update(
                self._owner[id(each)]
                for each in found
                if id(each) in self._owner and not _is_steady(each)
            )
        if leaves.leaf_kind(obj) is not None:
            self._code(obj)
        return found

    def _function(self, function: types.FunctionType) -> list[Any]:
        if not is_unit(function):
            return []
        if function.__globals__ is self._ns:
            self._use(function.__code__)
        defaults = (function.__defaults__ or (), (function.__kwdefaults__ or {}).values())
        return [*(function.__closure__ or ()), *itertools.chain(*defaults)]

    def _code(self, leaf: Any) -> None:
        for name in _CODES:
            code = getattr(leaf, name, None) if type(leaf) in _SUSPENDED else None
            if code is not None:
                self._use(code)

    def _use(self, code: types.CodeType) -> None:
        use = code_use(code)
        self._found.reads.update(use.reads)
        self._found.unbounded |= use.unbounded


_OF_OTHERS = (tuple, frozenset, slice)
_SUSPENDED = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)


def _is_steady(container: Any) -> bool:
    """Say whether an iteration goes on rightly while its container is written in place."""
    return type(container) is dict and _PLAIN_KEYS.issuperset(map(type, container))
