"""Turns one group into bytes and buffers.

Owns the pickler: protocol 5 with out-of-band buffers, references to units instead of their
contents, arrays that arrive writable and with their overlaps, and refusals by kind.  It knows
nothing of what the receiver has: a packed group says everything about its own roots.
"""

from __future__ import annotations

import enum
import functools
import gc
import io
import math
import pickle
import sys
import time
import types
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from gpulease.transfer import frameworks
from gpulease.transfer.arrays import SharedMemory, Storage, is_owner
from gpulease.transfer.frameworks import sealed
from gpulease.transfer.frameworks.base import Packing
from gpulease.transfer.libraries import library
from gpulease.transfer.refuse import RefusedError, refused_kind
from gpulease.transfer.registry import Registry

from . import array_reduction, cloudpickle_names, files, tokens
from .attempt import attempt
from .groups import Check, Group
from .hashing import buffer_digest, combine
from .module_files import module_digest
from .reductions import reduce_exception, reduce_member, reduce_own
from .trace import Trace, trace
from .transplant import lasting_ids
from .units import UnitBook, is_interpreters, is_plain_instance, is_unit

#: Smaller buffers travel inside the pickle: a frame of their own would cost more than a copy.
_INLINE = 64 * 2**10
_NAN_OPCODES = (b"G\x7f\xf8\0\0\0\0\0\0", b"G\xff\xf8\0\0\0\0\0\0")


@dataclass(frozen=True)
class Packed:
    """A group as bytes: ``inband`` holds names and contents, ``skeletons`` the empty units."""

    roots: tuple[str, ...]
    inband: bytes
    skeletons: dict[str, bytes]
    buffers: list[memoryview]
    digest: bytes
    seconds: float
    #: Units that must be there with it.  Walking finds more: an object may leave out parts of
    #: itself when it is pickled (a figure leaves out its callbacks), and those need not travel.
    needs: frozenset[str] = frozenset()
    #: See ``trace``: empty where equal contents always pickle alike.
    trace: Trace = frozenset()
    #: Buffer index to object id and digest, where a buffer is the memory of an object both know.
    memory: Mapping[int, tuple[str, bytes]] = field(default_factory=dict)
    #: Object id to a count of writes: of frameworks that keep one.
    versions: Mapping[str, int] = field(default_factory=dict)
    #: Names to ids of values that may keep being the objects that they are, see ``transplant``.
    lasting: Mapping[str, str] = field(default_factory=dict)
    #: Whether the receiver would pack what it loads of this into the very same bytes.
    alike: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        return (
            len(self.inband)
            + sum(map(len, self.skeletons.values()))
            + sum(b.nbytes for b in self.buffers)
        )


#: Memory of out-of-band buffers, with the id of the object that they are the memory of.
_Buffers = list[tuple[memoryview, str | None]]

_VIEWS = {type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items"}


_LRU_CACHE: Any = type(functools.lru_cache(len))


@dataclass
class _Context:
    book: UnitBook
    registry: Registry
    memory: SharedMemory
    shells: dict[int, str] = field(default_factory=dict)
    referred: set[str] = field(default_factory=set)
    #: The group's objects by id: memory that a name reaches is not only an array's.
    inner: Collection[int] = ()
    arrays: Collection[Any] = ()
    check: Check = lambda: None
    packings: dict[frameworks.Framework, Packing] = field(default_factory=dict)
    #: What the other side cannot load.
    culprits: Collection[sealed.Culprit] = ()
    #: Whether anything but the pickler's own basic types was met.
    reduced: bool = False

    def packing(self, framework: frameworks.Framework) -> Packing:
        found = self.packings.get(framework)
        if found is None:
            found = self.packings[framework] = Packing(self.registry)
        return found

    def owner(self, buffer: pickle.PickleBuffer) -> str | None:
        found = (packing.owner(buffer) for packing in self.packings.values())
        return next((oid for oid in found if oid is not None), None)

    def block(self, address: int) -> Any:
        found = (packing.block(address) for packing in self.packings.values())
        return next((block for block in found if block is not None), None)

    def refer(self, oid: str) -> str:
        self.referred.add(oid)
        return oid


class _Sink(io.BytesIO):
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


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """One stream of a group."""

    def __init__(
        self, file: io.BytesIO, context: _Context, buffers: Callable[[Any], Any] | None
    ) -> None:
        # What cloudpickle has, found in one look: it is asked for every object of a class.
        self.dispatch_table = {}
        for table in reversed(cloudpickle.Pickler.dispatch_table.maps):
            self.dispatch_table.update(table)
        super().__init__(file, protocol=5, buffer_callback=buffers)
        self.context = context
        self._plain: set[type] = set()

    def reducer_override(self, obj: Any) -> Any:
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

    def _seal(self, obj: Any) -> Any:
        return sealed.seal(obj, self.context.packing(sealed.FRAMEWORK))

    def _reduce(self, obj: Any) -> Any:  # noqa: C901, PLR0911, PLR0912 - one line a kind
        self.context.reduced = True
        shell = self.context.shells.get(id(obj)) if self.context.shells else None
        if shell is not None:
            return tokens.unit, (self.context.refer(shell),)
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
            return tokens.module, (obj.__name__, module_digest(obj))
        if isinstance(obj, io.IOBase) and (
            obj in (sys.stdout, sys.stderr, sys.stdin) or files.is_closed_file(obj)
        ):
            return files.reduce_closed(obj) if obj.closed else super().reducer_override(obj)
        if isinstance(obj, type) and (name := cloudpickle_names.alias(obj)):
            return getattr, (sys.modules[obj.__module__], name)
        if is_interpreters(obj) and not cloudpickle_names.is_named(obj):
            raise RefusedError(f"the type {obj.__name__}, which has no name to import it by")
        refused = refused_kind(obj)
        if refused is not None:
            raise RefusedError(refused, obj)
        if type(obj) in _VIEWS:
            return tokens.dict_view, (gc.get_referents(obj)[0], _VIEWS[type(obj)])
        if isinstance(obj, _LRU_CACHE):
            bounds = obj.cache_parameters()
            return tokens.lru_cache, (obj.__wrapped__, bounds["maxsize"], bounds["typed"])
        if type(obj) is functools.cached_property:
            return tokens.cached_property, (obj.func, obj.attrname)
        if isinstance(obj, BaseException):
            return reduce_exception(obj)
        if is_unit(type(obj)):
            if isinstance(obj, enum.Enum):
                return reduce_member(obj)
            reduced = reduce_own(obj)
            if reduced is not NotImplemented:
                return reduced
        reduced = array_reduction.reduce(obj, self.context)
        if reduced is not NotImplemented:
            return reduced
        return super().reducer_override(obj)


class _ShellPickler(_Pickler):
    """The same, asking for every object: only where a pinned container or NaN is in the group."""

    nans = False

    def persistent_id(self, obj: Any) -> Any:
        if type(obj) is float:
            if self.nans and math.isnan(obj):
                return ("nan", _nan_name(obj) or self.context.registry.oid(obj))
            return None
        if obj is self.context.book.ns:
            return ("namespace",)
        shell = self.context.shells.get(id(obj))
        return ("unit", self.context.refer(shell)) if shell is not None else None


def _shared_memory(group: Group) -> SharedMemory:
    """Find memory that several show; an image does not say whose memory it shows."""
    owners = [obj for obj in group.inner.values() if is_owner(obj)] if group.faces else []
    return SharedMemory(group.arrays, owners)


def _bases(kind: type) -> tuple[type, ...]:
    return kind.__mro__[:-1]


def _nan_name(value: float) -> str:
    if value is math.nan:  # noqa: PLW0177 - which NaN it is, not whether
        return "math"
    numpy = library("numpy")
    singleton = getattr(numpy, "nan", None)
    return "numpy" if value is singleton else ""


class Packer:
    """Packs groups of one side; the objects must not change while ``pack`` runs."""

    def __init__(
        self,
        ns: dict[str, Any],
        registry: Registry,
        book: UnitBook,
        lasting: Registry,
        culprits: Collection[sealed.Culprit] = (),
    ) -> None:
        self._ns = ns
        self._registry = registry
        self._book = book
        self._culprits = culprits
        self._lasting = lasting

    def pack(
        self,
        group: Group,
        units: dict[str, Any],
        used_globals: dict[str, set[str]],
        *,
        pins: dict[str, Any] | None = None,
        check: Check | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> Packed:
        """Return the group packed; raises RefusedError with what cannot move, in words.

        ``values`` gives names their values; the namespace unless another is given.
        """
        started = time.perf_counter()
        if (scalar := _scalar(group, values or self._ns)) is not None:
            inband = pickle.dumps(scalar, 5)
            digest = combine([inband])
            seconds = time.perf_counter() - started
            return Packed(group.roots, inband, {}, [], digest, seconds, alike=True)
        # Before the pickle: to ask an object for its dictionary may make one, and that is pickled.
        seen = trace(group)
        pinned = pins or {}
        context = _Context(self._book, self._registry, _shared_memory(group))
        context.inner, context.arrays = group.inner.keys(), group.arrays
        context.culprits = self._culprits
        context.check = check or context.check
        names = {name: (values or self._ns)[name] for name in group.names}
        contents = _prepare(group, context, names)
        context.shells = {id(obj): oid for oid, obj in pinned.items()}
        foreign = {id(obj) for obj in units.values() if type(obj) is dict} - context.shells.keys()
        if foreign & group.inner.keys():
            raise RefusedError("a dictionary that functions have as their globals")
        everything = {oid: units[oid] for oid in group.oids if oid in units} | pinned
        # No keys: a value's own string may be the same object as a key, and is not on arrival.
        units_content = {
            oid: self._book.content(obj, used_globals.get(oid)) for oid, obj in everything.items()
        }
        payload = (names, units_content, contents)

        def dump() -> tuple[bytes, _Buffers, dict[str, bytes]]:
            inband, buffers = self._dump(payload, context, group.has_namespace)
            skeletons = {
                oid: self._dump(self._book.skeleton(obj), context, False)[0]
                for oid, obj in everything.items()
            }
            return inband, buffers, skeletons

        try:
            inband, found, skeletons = attempt(dump, names)
        finally:
            for packing in context.packings.values():
                packing.release()
        buffers = [raw for raw, _ in found]
        digests = [buffer_digest(buffer, check) for buffer in buffers]
        versions = {o: v for each in context.packings.values() for o, v in each.versions.items()}
        digest = combine(
            [inband]
            + [part for oid in sorted(skeletons) for part in (oid.encode(), skeletons[oid])]
            + digests
            + ([repr(sorted(versions.items())).encode()] if versions else [])
        )
        seconds = time.perf_counter() - started
        for obj in everything.values():
            context.referred |= self._book.held(obj)
        needs = frozenset(context.referred - everything.keys())
        memory = {
            index: (oid, digests[index]) for index, (_, oid) in enumerate(found) if oid is not None
        }
        alike = not everything and not context.reduced and _loads_alike(group)
        return Packed(
            group.roots, inband, skeletons, buffers, digest, seconds, needs, seen, memory, versions,
            lasting_ids(names, self._lasting), alike,
        )  # fmt: skip

    def _dump(self, payload: Any, context: _Context, shells: bool) -> tuple[bytes, _Buffers]:
        data, buffers = self._stream(payload, context, shells, nans=False)
        if any(opcode in data for opcode in _NAN_OPCODES):
            data, buffers = self._stream(payload, context, True, nans=True)
        return data, buffers

    def _stream(
        self, payload: Any, context: _Context, shells: bool, *, nans: bool
    ) -> tuple[bytes, _Buffers]:
        file = _Sink(context.check)
        buffers: _Buffers = []

        def out_of_band(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes < _INLINE:
                return True
            buffers.append((raw, context.owner(buffer)))
            return False

        kind = _ShellPickler if shells or context.shells or nans else _Pickler
        pickler = kind(file, context, out_of_band)
        if isinstance(pickler, _ShellPickler):
            pickler.nans = nans
            context.reduced = True  # what has an id is not rebuilt from bytes alone
        pickler.dump(payload)
        return file.getvalue(), buffers


#: Types of which equal objects, built up alike, always pickle to the same bytes on both sides.  An
#: instance does not: loading one interns the names of its attributes.
_ALIKE = frozenset({list, dict, tuple, bytearray})
_SCALARS = frozenset({int, float, bool, complex, str, bytes, type(None)})
#: Longer ones take the common way, which can be given up in between.
_SHORT = 1 << 16


def _loads_alike(group: Group) -> bool:
    """Say whether the receiver's own look at this group would give the same digest.

    A set comes in another order there.
    """
    return not group.unordered and _ALIKE.issuperset(map(type, group.inner.values()))


def _scalar(group: Group, values: Mapping[str, Any]) -> Any:
    """Return what to pickle of a name bound to a short number or text, None for all else."""
    if len(group.roots) != 1 or group.inner or not group.names:
        return None
    name = group.names[0]
    value = values[name]
    if type(value) not in _SCALARS or value != value or group.nbytes > _SHORT:  # noqa: PLR0124
        return None
    return {name: value}, {}, []


def _prepare(group: Group, context: _Context, names: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """Let frameworks look at what they claimed; return what is put into it at the commit."""
    claimed: dict[frameworks.Framework, list[Any]] = {}
    # In an order of their own: the walk's depends on where it began.
    for obj in sorted(group.claimed, key=context.registry.oid):
        framework = frameworks.of(type(obj))
        if framework is not None:
            claimed.setdefault(framework, []).append(obj)
    contents: list[tuple[Any, Any]] = []
    for framework, objects in claimed.items():
        packing = context.packing(framework)
        packing.arrays, packing.known = group.arrays, set(map(id, objects))
        packing.names = {id(value): name for name, value in names.items()}
        packing.group = group.names
        packing.walked = group.noted.get(framework, {})
        framework.prepare(objects, packing)
        found = ((obj, framework.content(obj, packing)) for obj in objects)
        contents += [(obj, content) for obj, content in found if content is not None]
    return contents
