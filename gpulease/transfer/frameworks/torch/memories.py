"""Storages on their way out: which memory tensors and arrays show, and what stands for it."""

from __future__ import annotations

import ctypes
import itertools
import operator
import pickle
from collections.abc import Iterator
from typing import Any

import torch

from gpulease.transfer.arrays import Storage
from gpulease.transfer.frameworks import away
from gpulease.transfer.frameworks.base import Packing
from gpulease.transfer_next.addresses import byte_bounds
from gpulease.transfer_next.refuse import RefusedError
from gpulease.transfer_next.torch import devices

from . import loading, versions

#: Smaller storages travel inside the pickle, as bytes.
_SMALL = 64 * 2**10
#: So many of a device are joined there to be fetched: room for 16 MiB.
_AT_ONCE = 256
_NO_DISPATCH = getattr(torch.Tensor, "__torch_dispatch__", None)
_TENSOR: Any = torch.Tensor
_BYTES: Any = torch.UntypedStorage
# Called by `map`, so that thousands of tensors take no call of Python's each.
_LAYOUT, _STORAGE = _TENSOR.layout.__get__, _TENSOR.untyped_storage
_POINTER, _NBYTES, _DEVICE = _BYTES.data_ptr, _BYTES.nbytes, _BYTES.device.__get__
_DTYPE, _OFFSET = _TENSOR.dtype.__get__, _TENSOR.storage_offset
_SIZE, _STRIDE = _TENSOR.size, _TENSOR.stride
_NEGATIVE = _TENSOR.is_neg
#: Of these numbers tensors are joined.
_JOINED = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64})
_OTHER_KINDS = (
    *(getattr(_TENSOR, name).__get__ for name in ("is_quantized", "is_nested", "is_mkldnn")),
    torch._C._functorch.is_functorch_wrapped_tensor,
)

Row = tuple[Any, int, tuple[int, ...], tuple[int, ...]]
#: First and one past the last address, and whose memory it is: a storage's or an array's.
Span = tuple[int, int, torch.UntypedStorage | None, Any]


class Memory:
    """Stands for one storage in the pickle."""

    gpulease_stands = True

    def __init__(
        self, storage: torch.UntypedStorage, packing: Packing, *, lasting: bool = True
    ) -> None:
        self.storage = storage
        self.lasting = lasting
        self._packing = packing
        #: Its number in the group's table of small storages.
        self.place: int | None = None

    def __reduce__(self) -> Any:
        if self._packing.structure and self.storage.nbytes() >= away.SMALL:
            raise RefusedError("memory that is too large for your notebook, by a face of its own")
        if self.place is not None:
            return operator.getitem, (table(self._packing), self.place)
        oid = self._packing.oid(self.storage) if self.lasting else ""
        size, tag = self.storage.nbytes(), devices.tag_of(self.storage)
        if self.storage.device.type == "meta":
            return loading.meta_memory, (oid, size)
        return loading.memory, (oid, size, tag, self._data(oid, size))

    def _data(self, oid: str, size: int) -> Any:
        storage = self.storage
        if storage.device.type != "cpu":
            storage = storage.cpu()
        if size < _SMALL:
            return ctypes.string_at(storage.data_ptr(), size)
        raw = (ctypes.c_ubyte * size).from_address(storage.data_ptr())
        raw._gpulease_keep = storage  # type: ignore[attr-defined]
        view = memoryview(raw).cast("B")
        return self._packing.memory(oid, view) if oid else pickle.PickleBuffer(view)


class Table:
    """Small storages of one group that are pickled together: a list of losses has thousands."""

    gpulease_stands = True

    def __init__(self, packing: Packing) -> None:
        self._packing = packing
        self.storages: list[torch.UntypedStorage] = []
        #: Tensors of one look, one for each storage, where there are such.
        self.alike: list[torch.Tensor] = []

    def __reduce__(self) -> Any:
        oids = ",".join(self._packing.registry.oids(self.storages))
        sizes = list(map(_NBYTES, self.storages))
        devices_of = list(map(_DEVICE, self.storages))
        tags: dict[str, int] = {}
        column = [tags.setdefault(tag, len(tags)) for tag in devices.tags_of(self.storages)]
        data = _joined(self.alike, sizes)
        if data is None:
            data = b"".join(_bytes_of(self.storages, sizes, devices_of))
        return loading.small_memories, (oids, sizes, list(tags), bytearray(column), data)


def _joined(tensors: list[torch.Tensor], sizes: list[int]) -> bytes | None:
    """Return the bytes of tensors that look alike and show all of their memory, else None.

    Those of a device are joined there.
    """
    if len(tensors) < _AT_ONCE or len({sizes[0], *sizes}) > 1:
        return None
    one = tensors[0]
    whole = one.numel() * one.element_size() == sizes[0] and one.is_contiguous()
    if not whole or one.dtype not in _JOINED or any(map(_NEGATIVE, tensors)):
        return None
    with torch.no_grad():
        joined = torch.stack(tensors).cpu()
    return ctypes.string_at(joined.data_ptr(), joined.nbytes)


def _bytes_of(
    storages: list[torch.UntypedStorage], sizes: list[int], places: list[torch.device]
) -> Iterator[bytes]:
    """Yield the bytes of small storages; those of a device in a row are fetched together."""
    if all(place.type == "cpu" for place in set(places)):
        pointers = [storage.data_ptr() for storage in storages]
        yield from map(ctypes.string_at, pointers, sizes)
        return
    for place, run in itertools.groupby(zip(places, storages, strict=True), lambda each: each[0]):
        mine = [storage for _, storage in run]
        for start in range(0, len(mine), _AT_ONCE):
            flat = [loading.flat(storage) for storage in mine[start : start + _AT_ONCE]]
            joined = torch.cat(flat) if place.type == "cpu" else torch.cat(flat).cpu()
            yield ctypes.string_at(joined.data_ptr(), joined.nbytes)


def is_plain(tensor: torch.Tensor) -> bool:
    """Say whether a tensor is a strided face over a storage and nothing else."""
    return _are_plain([tensor])


def split_plain(tensors: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return those that ``is_plain`` is said of, and the others."""
    if _are_plain(tensors):
        return tensors, []
    plain = [tensor for tensor in tensors if is_plain(tensor)]
    ids = set(map(id, plain))
    return plain, [tensor for tensor in tensors if id(tensor) not in ids]


def _are_plain(tensors: list[torch.Tensor]) -> bool:
    """Say whether all are plain: column by column, thousands in few steps."""
    kinds: set[Any] = set(map(type, tensors))
    return (
        all(getattr(kind, "__torch_dispatch__", None) is _NO_DISPATCH for kind in kinds)
        and set(map(_LAYOUT, tensors)) <= {torch.strided}
        and not any(any(map(other, tensors)) for other in _OTHER_KINDS)
    )


def shown_by(tensors: list[torch.Tensor]) -> list[tuple[torch.UntypedStorage, int, int]]:
    """Return storage and span of each of these plain tensors."""
    storages = list(map(_STORAGE, tensors))
    lows = list(map(_POINTER, storages))
    columns = zip(storages, lows, map(_NBYTES, storages), strict=True)
    return [(storage, low, low + size if low else 0) for storage, low, size in columns]


def span(storage: torch.UntypedStorage) -> tuple[int, int]:
    """Return first and one past the last address."""
    low = 0 if storage.device.type == "meta" else storage.data_ptr()
    return low, low + (storage.nbytes() if low else 0)


def seen(scratch: dict[Any, Any]) -> dict[int, tuple[torch.UntypedStorage, int, int]]:
    """Return storage and span of the plain tensors, by ``id``, that a walk has seen."""
    found: dict[int, tuple[torch.UntypedStorage, int, int]] = scratch.setdefault("seen", {})
    return found


def table(packing: Packing) -> Table:
    """Return the group's table of small storages."""
    found = packing.scratch.get("table")
    if found is None:
        found = packing.scratch["table"] = Table(packing)
    return found


def put_in_table(tensors: list[torch.Tensor], packing: Packing) -> None:
    """Have the memory of tensors that the walk has seen pickled together, where it is small.

    Only of tensors that are themselves pickled together: others may be left out when what holds
    them is pickled.
    """
    storages, memories = table(packing).storages, packing.scratch["memories"]
    for storage, low, high in map(seen(packing.walked).__getitem__, map(id, tensors)):
        if not low or high - low >= _SMALL:
            continue
        memory, _ = memories[storage._cdata]
        if type(memory) is Memory and memory.storage is storage and memory.place is None:
            memory.place = len(storages)
            storages.append(storage)


def find_memory(tensors: list[torch.Tensor], packing: Packing) -> None:
    """Find out which storages and arrays show the same memory, and what stands for it."""
    memories: dict[int, tuple[Any, int]] = packing.scratch.setdefault("memories", {})
    spans: list[Span] = []
    away: list[Span] = []
    walked = seen(packing.walked)
    first: dict[int, torch.Tensor] = {}
    faces: dict[int, list[torch.Tensor]] = {}
    with torch._C.DisableTorchFunctionSubclass():
        met = [tensor for tensor in tensors if id(tensor) in walked]
        shown = list(map(walked.__getitem__, map(id, met)))
        tags = devices.tags_of([storage for storage, _, _ in shown])
        for tensor, (storage, low, high), tag in zip(met, shown, tags, strict=True):
            key = storage._cdata
            if first.setdefault(key, tensor) is not tensor:
                faces.setdefault(key, [first[key]]).append(tensor)
            if key not in memories:
                memories[key] = (Memory(storage, packing), 0)
                if low < high:
                    (away if tag else spans).append((low, high, storage, None))
        for several in faces.values():
            versions.find_shared(several, packing)
    arrays = [a for a in packing.arrays if a.size and not a.dtype.hasobject]
    spans += [(*byte_bounds(array), None, array) for array in arrays]
    _find_shared(spans, memories, packing)
    _find_shared(away, memories, packing)  # no array shows the memory of a device
    packing.blocks.sort(key=lambda block: block[0])


def _find_shared(spans: list[Span], memories: dict[int, tuple[Any, int]], packing: Packing) -> None:
    spans.sort(key=operator.itemgetter(0, 1))
    run: list[Span] = []
    end = -1
    for each in spans:
        low, high, _, _ = each
        if low >= end:
            if len(run) > 1:
                _share(run, memories, packing)
            run = [each]
            end = high
            continue
        run.append(each)
        end = max(end, high)
    _share(run, memories, packing)


def _share(run: list[Span], memories: dict[int, tuple[Any, int]], packing: Packing) -> None:
    """Decide what stands for memory that more than one storage or array shows."""
    if len(run) < 2 or all(storage is None for _, _, storage, _ in run):
        return
    low, high = run[0][0], max(each[1] for each in run)
    storages = [storage for _, _, storage, _ in run if storage is not None]
    whole = next((s for s in storages if span(s) == (low, high)), None)
    stands: Any
    if whole is not None:
        stands = memories[whole._cdata][0]
        if not devices.tag_of(whole):
            packing.blocks.append((low, high, stands, loading.array))
    elif any(devices.tag_of(storage) for storage in storages):
        raise RefusedError("tensors that show parts of one memory of a device, and none all of it")
    else:  # nobody shows all of it: memory of its own, over which all are made anew
        stands = Storage(low, high, storages)
        packing.blocks.append((low, high, stands, None))
    for storage in storages:
        memories[storage._cdata] = (stands, storage.data_ptr() - low)


def memories_of(tensors: list[torch.Tensor], packing: Packing) -> tuple[list[Any], list[Row]]:
    """Return ``memory_of`` each, column by column."""
    stands, ids = packing.scratch.setdefault("memories", {}), list(map(id, tensors))
    shown: list[Any] = [None]
    if packing.known.issuperset(ids):
        storages = map(seen(packing.walked).__getitem__, ids)
        shown = [stands.get(storage._cdata) for storage, _, _ in storages]
    if any(each is None or each[1] for each in shown):
        found = [memory_of(tensor, packing) for tensor in tensors]
        return [memory for memory, _ in found], [row for _, row in found]
    columns = (map(of, tensors) for of in (_DTYPE, _OFFSET))
    shapes = (map(tuple, map(of, tensors)) for of in (_SIZE, _STRIDE))
    return [memory for memory, _ in shown], list(zip(*columns, *shapes, strict=True))


def memory_of(tensor: torch.Tensor, packing: Packing) -> tuple[Any, Row]:
    """Return what stands for a tensor's memory, and how the tensor lies in it."""
    seen_there = id(tensor) in packing.known and id(tensor) in seen(packing.walked)
    storage = seen(packing.walked)[id(tensor)][0] if seen_there else tensor.untyped_storage()
    memories = packing.scratch.setdefault("memories", {})
    found = memories.get(storage._cdata)
    if found is None:  # the walk did not see it: a value's own way of being pickled made it
        found = memories[storage._cdata] = (Memory(storage, packing, lasting=False), 0)
    stands, shift = found
    step, rest = divmod(shift, tensor.element_size())
    if rest:
        raise RefusedError("tensors over parts of one memory that do not fit each other's elements")
    offset = tensor.storage_offset() + step
    return stands, (tensor.dtype, offset, tuple(tensor.size()), tensor.stride())


def is_away(tensor: torch.Tensor, packing: Packing) -> bool:
    """Say whether the bytes of a plain tensor's memory stay where they are, for their number."""
    if not packing.structure:
        return False
    memory, _ = memory_of(tensor, packing)
    size = memory.size if isinstance(memory, Storage) else memory.storage.nbytes()
    return bool(size >= away.SMALL)


def storage_of(storage: torch.UntypedStorage, packing: Packing) -> Any:
    """Return the reduction of a bare storage."""
    memories = packing.scratch.setdefault("memories", {})
    known = memories.setdefault(storage._cdata, (Memory(storage, packing), 0))
    return loading.same, (known[0],)
