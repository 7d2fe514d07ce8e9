"""Turns one group into bytes and buffers.

Owns what is packed together: protocol 5 with out-of-band buffers, units apart from what refers to
them, digests.  It knows nothing of what the receiver has: a packed group says everything about its
own roots.
"""

from __future__ import annotations

import enum
import pickle
import types
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpulease.sides.looks import unseen
from gpulease.transfer import frameworks
from gpulease.transfer.arrays import shared_by
from gpulease.transfer.frameworks import sealed
from gpulease.transfer.registry import Registry
from gpulease.transfer.values.groups import AbandonedError, Check, Group
from gpulease.transfer.values.kinds import constants, shared_arrays, spaces
from gpulease.transfer.values.kinds.units import UnitBook, is_plain_instance
from gpulease.transfer.values.landing.transplant import lasting_ids
from gpulease.transfer.values.stays import leaves
from gpulease.transfer.values.walks.trace import Trace, trace
from gpulease.transfer_next.hashing import chunk_digests, combine, of_chunks
from gpulease.transfer_next.refuse import RefusedError

from .attempt import attempt
from .pickler import Context, GroupPickler, ShellPickler, Sink

#: Smaller buffers travel inside the pickle: a frame of their own would cost more than a copy.
_INLINE = 64 * 2**10
_NAN_OPCODES = (b"G\x7f\xf8\0\0\0\0\0\0", b"G\xff\xf8\0\0\0\0\0\0")


class Alike(enum.IntEnum):
    """Whether what is loaded of a group packs into the very same bytes: NO is "not known".

    LIKELY is for what takes long to pack and little to send: where it was wrong, the group seems
    to have changed, and is sent once more.  The GPU's side does not rely on it: there a write
    raises a version, by which graphs are told apart.
    """

    NO = 0
    LIKELY = 1
    SURELY = 2


@dataclass(frozen=True)
class Packed:
    """A group as bytes: ``inband`` holds names and contents, ``skeletons`` the empty units."""

    roots: tuple[str, ...]
    inband: bytes
    skeletons: dict[str, bytes]
    buffers: list[memoryview]
    digest: bytes
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
    #: The digest without ``versions``, which each side counts for itself.
    content: bytes = b""
    #: Whether the receiver would pack what it loads of this into the very same bytes, or may.
    alike: Alike = Alike.NO
    #: The digests of each buffer's chunks.
    chunks: tuple[bytes, ...] = ()

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
        self.culprits = culprits
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
        structure: bool = False,
    ) -> Packed:
        """Return the group packed; raises RefusedError with what cannot move, in words.

        ``values`` gives names their values; the namespace unless another is given.  With
        ``structure`` large values of what can be shown without are left out.
        """
        if group.unseen:
            raise RefusedError(group.unseen)
        try:
            return self._pack(
                group, units, used_globals, pins=pins, check=check, values=values,
                structure=structure,
            )  # fmt: skip
        except (RefusedError, AbandonedError):
            raise
        except Exception as error:
            raise RefusedError(unseen(error)) from error

    def _pack(
        self,
        group: Group,
        units: dict[str, Any],
        used_globals: dict[str, set[str]],
        *,
        pins: dict[str, Any] | None,
        check: Check | None,
        values: Mapping[str, Any] | None,
        structure: bool,
    ) -> Packed:
        if (scalar := _scalar(group, values or self._ns)) is not None:
            return scalar
        _refuse_shown(group)
        # Before the pickle: to ask an object for its dictionary may make one, and that is pickled.
        seen = trace(group)
        pinned = pins or {}
        knows = self._registry.knows
        shared = shared_by(group.arrays, group.inner.values(), knows, faces=group.faces)
        context = Context(
            self._book, self._registry, shared, units=units, inner=group.inner.keys(),
            arrays=group.arrays, culprits=self.culprits, structure=structure, names=group.names,
        )  # fmt: skip
        context.check = check or context.check
        names = {name: (values or self._ns)[name] for name in group.names}
        _refuse_bound(names)
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
        cells = (units_content[o][1] for o, x in everything.items() if type(x) is types.CellType)
        context.spaces = spaces.held_besides(group.inner, (*names.values(), *cells))
        context.owners = {
            id(space): group.inner[key]
            for key, space in context.spaces.items()
            if not spaces.can_be_given(type(group.inner[key]))
        }
        for oid, obj in pinned.items():
            if id(obj) in context.spaces and is_plain_instance(obj):
                units_content[oid] = (context.spaces[id(obj)], units_content[oid][1], "given")
        units_content |= shared_arrays.contents(pinned, shared)
        payload = (names, units_content, contents)

        def dump() -> tuple[bytes, _Buffers, dict[str, bytes]]:
            asked = group.has_namespace or constants.may_be_in(group.inner.values())
            inband, buffers = self._dump(payload, context, asked)
            empty = {oid: self._book.skeleton(obj) for oid, obj in everything.items()}
            empty |= shared_arrays.skeletons(pinned, context)
            skeletons = {oid: self._dump(each, context, False)[0] for oid, each in empty.items()}
            return inband, buffers, skeletons

        try:
            inband, found, skeletons = attempt(dump, names)
        finally:
            for packing in context.packings.values():
                packing.release()
        _refuse_unsafe(group, context, names)
        buffers = [raw for raw, _ in found]
        chunks = tuple(chunk_digests(buffer, check) for buffer in buffers)
        digests = [of_chunks(each) for each in chunks]
        versions = {o: v for each in context.packings.values() for o, v in each.versions.items()}
        content = combine(
            [inband]
            + [part for oid in sorted(skeletons) for part in (oid.encode(), skeletons[oid])]
            + digests
        )
        for obj in everything.values():
            context.referred |= self._book.held(obj)
        needs = frozenset(context.referred - everything.keys())
        memory = {
            index: (oid, digests[index]) for index, (_, oid) in enumerate(found) if oid is not None
        }
        alike = Alike.NO if everything else _loads_alike(group, context, buffers)
        return Packed(
            group.roots, inband, skeletons, buffers, with_versions(content, versions), needs,
            seen, memory, versions, lasting_ids(names, self._lasting), content, alike,
            chunks,
        )  # fmt: skip

    def _dump(self, payload: Any, context: Context, shells: bool) -> tuple[bytes, _Buffers]:
        data, buffers = self._stream(payload, context, shells, nans=False)
        if any(opcode in data for opcode in _NAN_OPCODES):
            data, buffers = self._stream(payload, context, True, nans=True)
        return data, buffers

    def _stream(
        self, payload: Any, context: Context, shells: bool, *, nans: bool
    ) -> tuple[bytes, _Buffers]:
        file = Sink(context.check)
        buffers: _Buffers = []

        def out_of_band(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes < _INLINE:
                return True
            buffers.append((raw, context.owner(buffer)))
            return False

        asked = shells or context.shells or context.owners or nans
        kind = ShellPickler if asked else GroupPickler
        pickler = kind(file, context, out_of_band)
        if isinstance(pickler, ShellPickler):
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
#: So many objects of frameworks (a list of losses) take long to look at.
_MANY = 1000


def with_versions(content: bytes, versions: Mapping[str, int]) -> bytes:
    """Return the digest of a group of this content whose objects were written to so often."""
    return combine([content, repr(sorted(versions.items())).encode()]) if versions else content


def _loads_alike(group: Group, context: Context, buffers: list[memoryview]) -> Alike:
    """Say whether the receiver's own look at this group would give the same digest.

    A set comes in another order there.
    """
    if group.unordered:
        return Alike.NO
    if not context.reduced and _ALIKE.issuperset(map(type, group.inner.values())):
        return Alike.SURELY
    likely = len(group.claimed) >= _MANY and not buffers
    return Alike.LIKELY if likely else Alike.NO


def _refuse_shown(group: Group) -> None:
    for obj in group.shown:
        raise RefusedError(f"memory that a tensor and a {type(obj).__name__} share", obj)


def _refuse_bound(names: Mapping[str, Any]) -> None:
    """Raise RefusedError where a name is bound to what never moves."""
    for value in names.values():
        if (kind := leaves.leaf_kind(value)) is not None:
            raise RefusedError(kind, value)


def _refuse_unsafe(group: Group, context: Context, names: Mapping[str, Any]) -> None:
    referred = [unit for oid in context.referred if (unit := context.units.get(oid)) is not None]
    found = [unit for unit in referred if leaves.stays(unit)]
    if found:
        leaves.refuse_unsafe(group, found, names)


def _scalar(group: Group, values: Mapping[str, Any]) -> Packed | None:
    """Pack a name bound to a short number or text; None for all else."""
    if len(group.roots) != 1 or group.inner or not group.names:
        return None
    name = group.names[0]
    value = values[name]
    if type(value) not in _SCALARS or value != value or group.nbytes > _SHORT:  # noqa: PLR0124
        return None
    inband = pickle.dumps(({name: value}, {}, []), 5)
    digest = combine([inband])
    return Packed(group.roots, inband, {}, [], digest, content=digest, alike=Alike.SURELY)


def _prepare(group: Group, context: Context, names: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """Let frameworks look at what they claimed; return what is put into it at the commit."""
    claimed: dict[frameworks.Framework, list[Any]] = {}
    # In an order of their own: the walk's depends on where it began.
    oids = context.registry.oids(group.claimed)
    order = sorted(zip(oids, range(len(oids)), strict=True))
    for obj in [group.claimed[index] for _, index in order]:
        framework = frameworks.of(type(obj))
        if framework is not None:
            claimed.setdefault(framework, []).append(obj)
    contents: list[tuple[Any, Any]] = []
    for framework, objects in claimed.items():
        packing = context.packing(framework)
        packing.arrays, packing.known = group.arrays, set(map(id, objects))
        packing.names = {id(value): name for name, value in names.items()}
        packing.walked = group.noted.get(framework, {})
        framework.prepare(objects, packing)
        contents += framework.contents(objects, packing)
        context.ready.update(packing.ready)
    return contents
