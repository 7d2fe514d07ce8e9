"""Storages on their way out: which memory tensors and arrays show, and what stands for it."""

from __future__ import annotations

import ctypes
import pickle
from typing import Any

import torch

from gpulease.transfer.arrays import Storage, byte_bounds
from gpulease.transfer.frameworks.base import Packing
from gpulease.transfer.refuse import RefusedError

from . import devices, loading

#: Smaller storages travel inside the pickle, as bytes.
_SMALL = 64 * 2**10
_NO_DISPATCH = getattr(torch.Tensor, "__torch_dispatch__", None)

Row = tuple[Any, int, tuple[int, ...], tuple[int, ...]]
#: First and one past the last address, and whose memory it is: a storage's or an array's.
Span = tuple[int, int, torch.UntypedStorage | None, Any]


class Memory:
    """Stands for one storage in the pickle."""

    def __init__(
        self, storage: torch.UntypedStorage, packing: Packing, *, lasting: bool = True
    ) -> None:
        self.storage = storage
        self._lasting = lasting
        self.low = storage.data_ptr()
        self._packing = packing

    def __reduce__(self) -> Any:
        oid = self._packing.oid(self.storage) if self._lasting else ""
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


def is_plain(tensor: torch.Tensor) -> bool:
    """Say whether a tensor is a strided face over a storage and nothing else."""
    kind: Any = type(tensor)
    return (
        tensor.layout is torch.strided
        and not tensor.is_quantized
        and not tensor.is_nested
        and not tensor.is_mkldnn
        and getattr(kind, "__torch_dispatch__", None) is _NO_DISPATCH
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )


def span(storage: torch.UntypedStorage) -> tuple[int, int]:
    """Return first and one past the last address."""
    low = 0 if storage.device.type == "meta" else storage.data_ptr()
    return low, low + (storage.nbytes() if low else 0)


def find_memory(tensors: list[torch.Tensor], packing: Packing) -> None:
    """Find out which storages and arrays show the same memory, and what stands for it."""
    memories: dict[int, tuple[Any, int]] = packing.scratch.setdefault("memories", {})
    spans: list[Span] = []
    away: list[Span] = []
    with torch._C.DisableTorchFunctionSubclass():
        for tensor in tensors:
            if not is_plain(tensor):
                continue
            storage = tensor.untyped_storage()
            if storage._cdata not in memories:
                memories[storage._cdata] = (Memory(storage, packing), 0)
                low, high = span(storage)
                if low < high:
                    (away if devices.tag_of(storage) else spans).append((low, high, storage, None))
    arrays = [a for a in packing.arrays if a.size and not a.dtype.hasobject]
    spans += [(*byte_bounds(array), None, array) for array in arrays]
    _find_shared(spans, memories, packing)
    _find_shared(away, memories, packing)  # no array shows the memory of a device
    packing.blocks.sort(key=lambda block: block[0])


def _find_shared(spans: list[Span], memories: dict[int, tuple[Any, int]], packing: Packing) -> None:
    spans.sort(key=lambda each: each[:2])
    run: list[Span] = []
    end = -1
    for each in spans:
        if each[0] >= end:
            _share(run, memories, packing)
            run = []
        run.append(each)
        end = max(end, each[1])
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


def memory_of(tensor: torch.Tensor, packing: Packing) -> tuple[Any, Row]:
    """Return what stands for a tensor's memory, and how the tensor lies in it."""
    storage = tensor.untyped_storage()
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


def storage_of(storage: torch.UntypedStorage, packing: Packing) -> Any:
    """Return the reduction of a bare storage."""
    memories = packing.scratch.setdefault("memories", {})
    known = memories.setdefault(storage._cdata, (Memory(storage, packing), 0))
    return loading.same, (known[0],)
