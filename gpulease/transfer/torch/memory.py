"""Storages on their way out: which memory tensors and arrays show, and what stands for it."""

from __future__ import annotations

import array
import ctypes
import functools
import operator
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from gpulease.sides.libraries import library
from gpulease.transfer import pieces, rebuild
from gpulease.transfer.faces import byte_bounds
from gpulease.transfer.refuse import RefusedError
from gpulease.transfer.torch import commit, devices, loading
from gpulease.transfer.torch.commit import flat, put
from gpulease.transfer.torch.loading import STAND_IN
from gpulease.wire.memory import in_huge_pages

_EXPORTERS = (bytearray, array.array)
_Span = tuple[int, int, Any]

Row = tuple[Any, int, tuple[int, ...], tuple[int, ...]]


#: In a set of leaves: the graph begins over a value whose own graph is on the other side.
_OVER_AWAY = 0
_LEAF: Any = torch._C._functions.AccumulateGrad
Leaves = frozenset[int]
_NONE: Leaves = frozenset()
_OVER: Leaves = frozenset({_OVER_AWAY})


class Reached:
    """Which leaves graphs reach: what is below a node is found once in a survey."""

    def __init__(self) -> None:
        self._known: dict[Any, Leaves] = {None: _NONE}
        self._by_id: dict[int, torch.Tensor] = {}
        #: Each union once, so that ``is`` compares most of them.
        self._join = functools.cache(frozenset.union)
        self._tuples: dict[Leaves, tuple[torch.Tensor, ...]] = {}

    def of(self, tensor: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], bool]:
        """Return a graph's leaves, and whether a part of it is on the other side.

        Of the same leaves it is the same tuple.
        """
        node = commit.node_of(tensor)
        leaves = _NONE if isinstance(node, RuntimeError) else self._below(node)
        if leaves not in self._tuples:
            self._tuples[leaves] = tuple(self._by_id[key] for key in sorted(leaves - {_OVER_AWAY}))
        return self._tuples[leaves], _OVER_AWAY in leaves

    def _below(self, root: Any) -> Leaves:
        """Return the leaves below a node, from those of the nodes below it, which are kept."""
        known = self._known
        stack = [] if root in known else [(root, root.next_functions)]
        while stack:  # a node waits here until all below it are known
            node, following = stack[-1]
            found = _NONE
            if isinstance(node, STAND_IN):
                found = _OVER
                if not node.signed:  # an anchor, whose last leaf makes it a node without others
                    following = following[:-1]
            for below, _ in following:
                leaves = known.get(below)
                if leaves is None:
                    if type(below) is not _LEAF:
                        stack.append((below, below.next_functions))
                        break
                    leaf = below.variable
                    self._by_id[id(leaf)] = leaf
                    leaves = known[below] = frozenset({id(leaf)})
                if leaves and leaves is not found:
                    found = self._join(found, leaves) if found else leaves
            else:
                known[node] = found
                stack.pop()
        return known[root]


@dataclass
class Met:
    """What one survey met of torch."""

    #: Storage by its address in C++, and the tensors over it by ``id``.
    storages: dict[int, torch.UntypedStorage] = field(default_factory=dict)
    faces: dict[int, dict[int, torch.Tensor]] = field(default_factory=dict)
    #: Arrays that own memory, by ``id``; weakly, or each would look held by something outside.
    arrays: Any = field(default_factory=weakref.WeakValueDictionary)
    #: For a storage inside the memory of another one: that one, and where.
    inside: dict[int, tuple[torch.UntypedStorage, int]] = field(default_factory=dict)
    #: For an array over the memory of a storage, by ``id`` of the array that owns it: the storage.
    under: dict[int, torch.UntypedStorage] = field(default_factory=dict)
    #: Tensors that share the count of writes with another one: that one, and whether it is a view.
    shared: dict[int, tuple[torch.Tensor, bool]] = field(default_factory=dict)
    reached: Reached = field(default_factory=Reached)
    anchors: dict[tuple[str, int], Any] = field(default_factory=dict)
    _looked: dict[int, int] = field(default_factory=dict)

    def note(self, tensor: torch.Tensor) -> tuple[torch.UntypedStorage, Row]:
        """Return ``place`` of a tensor, and count it among those that show its memory."""
        self.faces.setdefault(tensor.untyped_storage()._cdata, {})[id(tensor)] = tensor
        return self.place(tensor)

    def place(self, tensor: torch.Tensor) -> tuple[torch.UntypedStorage, Row]:
        """Return the storage that stands for a tensor's memory, and how the tensor lies in it."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        self.storages[key] = storage
        offset = tensor.storage_offset()
        if key in self.inside:
            storage, shift = self.inside[key]
            step, rest = divmod(shift, tensor.element_size())
            if rest:
                raise RefusedError(
                    "tensors over parts of one memory that do not fit each other's elements"
                )
            offset += step
        return storage, (tensor.dtype, offset, tuple(tensor.size()), tensor.stride())

    def look(self, met: Any, members: Iterator[Any]) -> set[int]:
        """Find out what shares memory or counts; return the ids of what is reduced otherwise now.

        The rest is left alone: it was packed as what it is.
        """
        stale = self._find_shared_memory(members, met.refused)
        for key, faces in self.faces.items():
            if len(faces) > self._looked.get(key, 1):
                self._looked[key] = len(faces)
                found = commit.find(list(faces.values()), met.others.id_of)
                stale |= {each for each in found if each not in self.shared}
                self.shared |= found
        return stale

    # ---- memory that more than one shows

    def _find_shared_memory(self, members: Iterator[Any], refused: dict[int, str]) -> set[int]:
        spans: list[_Span] = []
        for key, storage in self.storages.items():
            if storage.device.type == "cpu" and storage.nbytes() and key not in self.inside:
                low = storage.data_ptr()
                spans.append((low, low + storage.nbytes(), storage))
        if not spans:
            return set()
        for key, owner in self.arrays.items():
            if key not in self.under:
                spans.append((*byte_bounds(owner), owner))
        spans += [(*_span(each), each) for each in members if type(each) in _EXPORTERS and each]
        spans.sort(key=operator.itemgetter(0, 1))
        stale: set[int] = set()
        for run in _runs(spans):
            try:
                stale |= self._join(run)
            except RefusedError as error:
                new = {id(each) for _, _, each in run} - refused.keys()
                refused.update(dict.fromkeys(new, error.kind))
                stale |= new
        return stale

    def _join(self, run: list[_Span]) -> set[int]:
        """Have one storage stand for memory that several show, one of them a storage."""
        storages = [(low, high, s) for low, high, s in run if isinstance(s, torch.UntypedStorage)]
        if len(run) < 2 or not storages:
            return set()
        buffer = next((each for _, _, each in run if type(each) in _EXPORTERS), None)
        if buffer is not None:
            raise RefusedError(f"memory that a tensor and a {type(buffer).__name__} share")
        low, high = run[0][0], max(each[1] for each in run)
        whole = next((s for start, end, s in storages if (start, end) == (low, high)), None)
        if whole is None:
            owner = next((a for start, end, a in run if (start, end) == (low, high)), None)
            if owner is None:
                raise RefusedError("tensors that show parts of one memory, and none all of it")
            whole = _storage_over(owner, [s for _, _, s in storages])
            self.storages[whole._cdata] = whole
        stale = set()
        for start, _, each in run:
            if not isinstance(each, torch.UntypedStorage):
                self.under[id(each)] = whole
                stale.add(id(each))
            elif each is not whole:
                self.inside[each._cdata] = (whole, start - low)
                stale.add(id(each))
        return stale


def _runs(spans: list[_Span]) -> Iterator[list[_Span]]:
    """Yield the spans that lie over each other, of sorted ones."""
    run: list[_Span] = []
    end = 0
    for each in spans:
        if run and each[0] >= end:
            yield run
            run = []
        end = max(each[1], end) if run else each[1]
        run.append(each)
    yield run


def _span(buffer: Any) -> tuple[int, int]:
    view = memoryview(buffer)
    low = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    return low, low + view.nbytes


#: Storage -> one over all of the memory of which it shows a part, which an array owns.
_wholes: Any = weakref.WeakKeyDictionary()


def _storage_over(owner: Any, parts: list[torch.UntypedStorage]) -> torch.UntypedStorage:
    """Return a storage over the memory of an array, the same as long as there are tensors on it."""
    known = next((_wholes[part] for part in parts if part in _wholes), None)
    if known is None:
        if not owner.flags.forc:
            raise RefusedError("a tensor over an array with gaps")
        low, high = byte_bounds(owner)
        raw = (ctypes.c_ubyte * (high - low)).from_address(low)
        raw._gpulease_keep = owner  # type: ignore[attr-defined]
        known = torch.frombuffer(raw, dtype=torch.uint8).untyped_storage()
    for part in parts:
        _wholes[part] = known
    return known


def of(pickler: Any) -> Met:
    """Return what this survey met."""
    found: Met | None = pickler.met.notes.get("torch")
    if found is None:
        found = pickler.met.notes["torch"] = Met()
    return found


def look(met: Any, members: Iterator[Any]) -> set[int]:
    """See ``ways.after_packing``."""
    own = met.notes.get("torch")
    return set() if own is None else own.look(met, members)


def reduce_storage(pickler: Any, storage: torch.UntypedStorage) -> Any:
    """Reduce a storage to its bytes, and the device on which it belongs."""
    own = of(pickler)
    own.storages[storage._cdata] = storage
    if storage._cdata in own.inside:
        raise RefusedError("a storage over a part of other memory")
    oid, size = pickler.met.others.id_of(storage), storage.nbytes()
    tag = devices.tag_of(storage)
    if tag == "meta":
        return loading.memory, (oid, size, tag, b"")
    if size > pieces.LARGE:
        return loading.large_memory, (pickler.note_large(storage), size, tag)
    return loading.memory, (oid, size, tag, bytes(read(storage, 0, size)))


def read(storage: torch.UntypedStorage, start: int, stop: int) -> Any:
    """Return a part of what is in a storage; of a device's it is a copy.

    No array of numpy's: torch does not resize a storage that has been one.
    """
    size = min(stop, storage.nbytes()) - start
    if storage.device.type == "cpu":
        address, keep = storage.data_ptr() + start, storage
    else:
        keep = flat(storage)[start : start + size].cpu()
        address = keep.data_ptr()
    raw = (ctypes.c_ubyte * size).from_address(address)
    raw._gpulease_keep = keep
    return raw


def _empty(size: int) -> torch.UntypedStorage:
    """Return a storage in this machine's memory, which torch takes in small pages."""
    made = torch.UntypedStorage(size)
    in_huge_pages(made.data_ptr(), size)
    return made


LARGE = pieces.Way(
    "torch",
    torch.UntypedStorage.nbytes,
    lambda storage: f"{storage.nbytes()} bytes {devices.tag_of(storage)}",
    read,
    put,
    lambda _storage: (),
    _empty,
    lambda part: getattr(part, "_gpulease_keep", None),
)


# ---- arrays


def reduce_array(pickler: Any, found: Any) -> Any:
    """Reduce an array over the memory of a storage; None for another one."""
    np = library("numpy")
    if not found.size or found.dtype.hasobject:
        return None
    own = of(pickler)
    root, base = found, found.base
    while isinstance(base, np.ndarray):
        root, base = base, base.base
    if isinstance(base, torch.Tensor):
        storage = base.untyped_storage()
        if storage._cdata in own.inside:
            storage = own.inside[storage._cdata][0]
    elif id(root) in own.under:
        storage = own.under[id(root)]
    else:
        if base is None or type(base) in _EXPORTERS:
            own.arrays[id(root)] = root
        return None
    pickler.met.memory.owns(root, *byte_bounds(root))
    offset = found.__array_interface__["data"][0] - storage.data_ptr()
    writeable = found.flags.writeable
    made = storage, type(found), found.dtype, found.shape, found.strides, offset, writeable
    space = getattr(found, "__dict__", None)
    if type(found) is np.ndarray or space is None:
        return loading.array, made
    return loading.array, made, (space,), None, None, rebuild.fill_array
