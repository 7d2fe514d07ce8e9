"""The stream of one group: what an object is reduced to.

Owns references to units instead of their contents, refusals by kind, and what of the language has
no pickle of its own.
"""

from __future__ import annotations

import collections
import enum
import io
import math
import pickle
import sys
import types
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import cloudpickle

from gpulease.sides import caches, process_objects
from gpulease.sides.libraries import library
from gpulease.sides.module_files import module_digest
from gpulease.sides.state.stateful import is_stateful
from gpulease.transfer import frameworks
from gpulease.transfer.arrays import SharedMemory, Storage
from gpulease.transfer.frameworks import sealed
from gpulease.transfer.frameworks.base import Packing
from gpulease.transfer.registry import Registry
from gpulease.transfer.values.groups import Check
from gpulease.transfer.values.kinds import (
    array_reduction,
    constants,
    containers,
    imported,
    spaces,
    structure,
    tokens,
    weak,
)
from gpulease.transfer.values.kinds.reductions import (
    reduce_answering,
    reduce_code,
    reduce_exception,
    reduce_member,
    reduce_own,
    reduce_whole,
)
from gpulease.transfer.values.kinds.units import (
    UnitBook,
    is_interpreters,
    is_plain_instance,
    is_unit,
)
from gpulease.transfer.values.stays import leaves
from gpulease.transfer_next import cloudpickle_names, files, locks, unpickled
from gpulease.transfer_next.refuse import RefusedError, is_running_shell, refused_kind
from gpulease.transfer_next.stayed import Stayed
from gpulease.transfer_next.weak import PROXIES

_CONTAINERS = (list, dict, set, collections.deque)


@dataclass
class Context:
    """What is known while one group is packed, and what is learned of it."""

    book: UnitBook
    registry: Registry
    memory: SharedMemory
    shells: dict[int, str] = field(default_factory=dict)
    referred: set[str] = field(default_factory=set)
    #: All units that the walk met, by id.
    units: Mapping[str, Any] = field(default_factory=dict)
    #: The group's objects by id: memory that a name reaches is not only an array's.
    inner: Collection[int] = ()
    arrays: Collection[Any] = ()
    check: Check = lambda: None
    packings: dict[frameworks.Framework, Packing] = field(default_factory=dict)
    #: Dictionaries of attributes that something else holds as well, by their object's id; and
    #: by their own id the objects that take no other one.
    spaces: Mapping[int, Any] = field(default_factory=dict)
    owners: Mapping[int, Any] = field(default_factory=dict)
    #: What the other side cannot load.
    culprits: Collection[sealed.Culprit] = ()
    #: Reductions of frameworks that are known already, by ``id`` of their objects.
    ready: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    #: Whether anything but the pickler's own basic types was met.
    reduced: bool = False
    #: Whether large values are left out, and the group's names, for what then stands there.
    structure: bool = False
    names: tuple[str, ...] = ()

    def packing(self, framework: frameworks.Framework) -> Packing:
        """Return what a framework keeps for this group."""
        found = self.packings.get(framework)
        if found is None:
            found = Packing(self.registry, self.structure, group=self.names)
            self.packings[framework] = found
        return found

    def owner(self, buffer: pickle.PickleBuffer) -> str | None:
        """Return the id of the object whose memory a buffer is, or None."""
        found = (packing.owner(buffer) for packing in self.packings.values())
        return next((oid for oid in found if oid is not None), None)

    def block(self, address: int) -> Any:
        """See ``array_reduction.Memory``."""
        found = (packing.block(address) for packing in self.packings.values())
        return next((block for block in found if block is not None), None)

    def refer(self, oid: str) -> str:
        """Note that the group needs a unit."""
        self.referred.add(oid)
        return oid


class Sink(io.BytesIO):
    """What a pickler writes to, 64 KiB at a time: the one place where it can be given up.

    Here other threads get their turn, too: the pickler itself never lets go of the interpreter.
    """

    def __init__(self, check: Check) -> None:
        super().__init__()
        self._check = check

    def write(self, data: Any, /) -> int:
        """Take some bytes; raises what ``check`` raises."""
        self._check()
        return super().write(data)


class GroupPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """One stream of a group."""

    def __init__(
        self, file: io.BytesIO, context: Context, buffers: Callable[[Any], Any] | None
    ) -> None:
        # What cloudpickle has, found in one look: it is asked for every object of a class.
        self.dispatch_table = {}
        for table in reversed(cloudpickle.Pickler.dispatch_table.maps):
            self.dispatch_table.update(table)
        self.dispatch_table[types.CodeType] = partial(
            reduce_code, self.dispatch_table[types.CodeType]
        )
        super().__init__(file, protocol=5, buffer_callback=buffers)
        self.context = context
        self._plain: set[type] = set()
        self._of_modules = context.registry.of_modules
        asked = context.culprits or context.shells or context.spaces
        self._ready = {} if asked else context.ready

    def reducer_override(self, obj: Any) -> Any:
        """See ``pickle``; raises RefusedError for what never moves."""
        ready = self._ready.get(id(obj))
        if ready is not None:  # of thousands of tensors in a list
            return ready
        if getattr(type(obj), "gpulease_stands", False):
            return obj.__reduce__()  # a framework's own, in place of something of the user's
        culprits = self.context.culprits
        if culprits:
            if sealed.is_wanted(obj, culprits):
                return self._seal(obj)
            reduced = self._reduce(obj)
            return self._seal(obj) if sealed.is_made_by(reduced, culprits) else reduced
        kind = type(obj)
        if kind in self._plain and not self.context.shells:
            return NotImplemented
        reduced = self._reduce(obj)
        if reduced is NotImplemented and is_plain_instance(obj) and all(map(is_unit, _bases(kind))):
            self._plain.add(kind)  # and so is every other one of this very class
        return reduced

    def _of_module(self, obj: Any) -> str | None:
        """Return the id of what a module holds, where the other side's holds it with this state."""
        oid = self.context.registry.of_module(obj)
        return oid if oid and is_stateful(type(obj)) and not is_unit(obj) else None

    def _is_held(self, obj: Any) -> bool:
        """Say whether something that travels, or a module, holds an object."""
        return id(obj) in self.context.inner or imported.Imported()(obj)

    def _seal(self, obj: Any) -> Any:
        return sealed.seal(obj, self.context.packing(sealed.FRAMEWORK))

    def _reduce(self, obj: Any) -> Any:
        self.context.reduced = True
        reduced = self._reduced(obj)
        space = self.context.spaces.get(id(obj)) if self.context.spaces else None
        if space is None:
            return reduced
        if reduced is NotImplemented:
            reduced = obj.__reduce_ex__(5)
        return reduced if reduced[0] is tokens.unit else spaces.reduce(obj, space, reduced)

    def _reduced(self, obj: Any) -> Any:  # noqa: C901, PLR0911, PLR0912, PLR0915 - one line a kind
        shell = self.context.shells.get(id(obj)) if self.context.shells else None
        if shell is not None:
            return tokens.unit, (self.context.refer(shell),)
        if type(obj) is Stayed:
            return self._leaf(obj, "something of the other side")
        if obj is Stayed:  # `type` cannot be answered as `isinstance` is
            raise RefusedError("the type of what stands for something of the other side")
        if type(obj) in PROXIES:  # it says of itself that it is what it refers to
            return weak.reduce(obj, self._is_held)
        if id(obj) in self._of_modules and (oid := self._of_module(obj)) is not None:
            return tokens.unit, (oid,)
        if self.context.structure:
            left = structure.reduce(obj, self.context, self.context.names)
            if left is not NotImplemented:
                return left
        framework = frameworks.of(type(obj))
        if framework is not None:
            reduced = framework.reduce(obj, self.context.packing(framework))
            return super().reducer_override(obj) if reduced is NotImplemented else reduced
        if is_unit(obj):
            return tokens.unit, (self.context.refer(self.context.registry.oid(obj)),)
        if type(obj) is types.CellType:
            oid = self.context.registry.find(obj)
            if oid is None:
                raise RefusedError("a closure cell that no function holds")
            return tokens.unit, (self.context.refer(oid),)
        if isinstance(obj, Storage):
            return tokens.storage, (obj.buffer(),)
        if type(obj) is types.ModuleType and sys.modules.get(obj.__name__) is obj:
            return tokens.module, (obj.__name__, module_digest(obj.__name__))
        if isinstance(obj, io.IOBase):
            if (name := files.standard_name(obj)) is not None:
                return files.standard_stream, (name,)
            if files.is_closed_file(obj):
                return files.reduce_closed(obj)
        if isinstance(obj, type) and (found := cloudpickle_names.alias(obj)) is not None:
            return getattr, found
        by_name = isinstance(obj, type | types.FunctionType | caches.LRU_CACHE)
        if by_name and (own := _own_module(obj)) is not None:
            return tokens.attribute, (own, obj.__qualname__)
        if is_interpreters(obj) and not cloudpickle_names.is_named(obj):
            raise RefusedError(f"the type {obj.__name__}, which has no name to import it by")
        if weak.is_weak(type(obj)):
            return weak.reduce(obj, self._is_held)
        if is_running_shell(obj):
            return tokens.shell, ()
        stays = leaves.leaf_kind(obj)
        if stays is not None or locks.may_be(type(obj)):
            return self._leaf(obj, stays or "a lock that its own pickling makes or finds")
        refused = refused_kind(obj)
        if refused is not None:
            raise RefusedError(refused, obj)
        if isinstance(obj, caches.LRU_CACHE) and not imported.is_cached_by_name(obj):
            return caches.reduce(obj)
        if type(obj) in cloudpickle_names.VARIABLES and obj.__module__ == "__main__":
            return tokens.type_variable, (obj.__module__, cloudpickle_names.parts_of_variable(obj))
        if (one := process_objects.reduce(obj)) is not None:
            return one
        if (reduced := unpickled.reduce(obj)) is not NotImplemented:
            return reduced
        if isinstance(obj, BaseException):
            return reduce_exception(obj)
        if (
            issubclass(type(obj), _CONTAINERS)
            and (reduced := containers.reduce(obj)) is not NotImplemented
        ):
            return reduced
        if (whole := reduce_whole(obj)) is not NotImplemented:
            return whole
        if is_unit(type(obj)):
            if isinstance(obj, enum.Enum):
                return reduce_member(obj)
            reduced = reduce_own(obj)
            if reduced is not NotImplemented:
                return reduced
        else:
            reduced = imported.reduce(obj)
            if reduced is not NotImplemented:
                return reduced
        reduced = array_reduction.reduce(obj, self.context)
        if reduced is NotImplemented:
            reduced = super().reducer_override(obj)
        if reduced is NotImplemented and type(obj) not in self.dispatch_table:
            reduced = reduce_answering(obj)
        return reduced

    def _leaf(self, obj: Any, kind: str) -> Any:
        oid = self.context.registry.find(obj)
        if oid is None or oid not in self.context.units:  # made, or found, by code of the value's
            raise RefusedError(kind, obj)
        return tokens.unit, (self.context.refer(oid),)


class ShellPickler(GroupPickler):
    """The same, asking for every object: only where a pinned container, NaN or a text that is
    compared by ``is`` may be in the group.
    """

    nans = False

    def persistent_id(self, obj: Any) -> Any:
        """See ``pickle``."""
        if type(obj) is float:
            if self.nans and math.isnan(obj):
                return ("nan", _nan_name(obj) or self.context.registry.oid(obj))
            return None
        if type(obj) is str:
            name = constants.name_of(obj)
            return None if name is None else ("constant", name)
        if obj is self.context.book.ns:
            return ("namespace",)
        if id(obj) in self.context.owners:
            return ("attributes", self.context.owners[id(obj)])
        shell = self.context.shells.get(id(obj))
        return ("unit", self.context.refer(shell)) if shell is not None else None


def _own_module(obj: Any) -> types.ModuleType | None:
    """Return the module of a person's own that has a class or function by its name."""
    name = obj.__module__
    if type(name) is not str or not module_digest(name) or "<" in obj.__qualname__:
        return None
    if isinstance(obj, caches.LRU_CACHE) and not imported.is_cached_by_name(obj):
        return None
    return sys.modules[name]


def _bases(kind: type) -> tuple[type, ...]:
    return kind.__mro__[:-1]


def _nan_name(value: float) -> str:
    if value is math.nan:  # noqa: PLW0177 - which NaN it is, not whether
        return "math"
    numpy = library("numpy")
    singleton = getattr(numpy, "nan", None)
    return "numpy" if value is singleton else ""
