"""The units that a walk meets: each is a root of its own, walked apart from what refers to it.

Owns what there is to walk of a class, a function, a cell, a foreign globals dictionary or a leaf.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Callable
from typing import Any

from gpulease.sides.names.analysis import code_use
from gpulease.transfer.registry import Registry
from gpulease.transfer.values.groups import Group, unit_root
from gpulease.transfer.values.kinds.units import UnitBook, is_unit
from gpulease.transfer.values.stays import leaves
from gpulease.transfer_next import locks
from gpulease.transfer_next.stayed import Stayed, class_of, leaf_of

from .joining import NEED


class MetUnits:
    """What one walk met; ``queue`` has roots with the values that it has yet to walk.

    ``parts`` are the groups in the making, ``is_leaf`` is told of each leaf that lives here.
    """

    def __init__(
        self,
        ns: dict[str, Any],
        registry: Registry,
        book: UnitBook,
        parts: dict[str, Group],
        is_leaf: Callable[[str, Any], None],
    ) -> None:
        self._ns = ns
        self._registry = registry
        self._book = book
        self._parts = parts
        self._is_leaf = is_leaf
        self._keep: list[Any] = []
        self.queue: list[tuple[str, list[Any]]] = []
        self.units: dict[str, Any] = {}
        self.used_globals: dict[str, set[str]] = {}
        #: Whether a class or function is a unit, by its id: asked once.
        self.known: dict[int, bool] = {}

    def need(self, obj: Any) -> str:
        """Enter a unit that something refers to; return its id."""
        oid = self._registry.oid(obj)
        self.enter(oid, obj)
        return oid

    def enter(self, oid: str, obj: Any) -> None:
        """Enter a unit once."""
        if oid in self.units:
            return
        self.units[oid] = obj
        root = unit_root(oid)
        if leaves.stays(obj):
            self.leaf(root, obj)
            self.used_globals[oid] = set()
        elif isinstance(obj, types.FunctionType):
            self.queue.append((root, [self._made(root, self._book.content(obj))]))
            self._function(root, obj)
        elif isinstance(obj, type):
            content = self._made(root, self._book.content(obj))
            self.queue.append((root, [content, obj.__bases__, type(obj)]))
        elif type(obj) is dict:
            used = self.used_globals.setdefault(oid, set())
            self.queue.append((root, [self._made(root, self._book.content(obj, used))]))
        elif isinstance(obj, types.CellType):
            full, value = self._book.content(obj)
            self.queue.append((root, [value] if full else []))
        elif type(obj) is object:
            self.queue.append((root, []))
        elif locks.may_be(type(obj)):
            over = [locks.lock_of(obj)] if isinstance(obj, threading.Condition) else []
            self.queue.append((root, over))

    def leaf(self, root: str, obj: Any) -> None:
        """Enter what stays where it lives, here or there, and is not walked through."""
        self.queue.append((root, []))
        part = self._parts.setdefault(NEED + root, Group(()))
        cls = leaf_of(obj).cls if type(obj) is Stayed else class_of(obj)
        if isinstance(cls, type) and is_unit(cls, self.known):
            part.needs.add(self.need(cls))
        if type(obj) is Stayed:
            part.reads.update(leaf_of(obj).uses)
        else:
            self._is_leaf(root, obj)

    def _made(self, root: str, content: Any) -> Any:
        """Remember that ``content`` was put together for this walk."""
        part = self._parts.setdefault(NEED + root, Group(()))
        part.made.add(id(content))
        self._keep.append(content)
        if type(content) is tuple:
            part.made.update(id(p) for p in content if type(p) is dict)
        elif type(content.get("__dict__")) is dict:
            part.made.add(id(content["__dict__"]))
        return content

    def _function(self, root: str, obj: types.FunctionType) -> None:
        part = self._parts.setdefault(NEED + root, Group(()))
        for index, cell in enumerate(obj.__closure__ or ()):
            oid = self._registry.held_oid(obj, index)
            part.needs.add(oid)
            self.enter(oid, cell)
        foreign = self._book.foreign_globals(obj)
        if foreign is not None:
            oid, names = foreign
            self.used_globals.setdefault(oid, set()).update(names)
            part.needs.add(oid)
            if oid not in self.units:
                self.units[oid] = obj.__globals__
            content = self._book.content(obj.__globals__, self.used_globals[oid])
            self.queue.append((unit_root(oid), [self._made(unit_root(oid), content)]))
        elif obj.__globals__ is self._ns:
            use = code_use(obj.__code__)
            part.reads |= use.reads
            part.unbounded |= use.unbounded
