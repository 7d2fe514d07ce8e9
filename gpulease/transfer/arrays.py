"""The memory of numpy arrays: whose it is, and which arrays share it.

Owns address ranges and owners of buffers; it knows nothing of names, groups or pickles' form.
"""

from __future__ import annotations

import array
import ctypes
import pickle
import sys
from typing import Any


class Storage:
    """Memory that several arrays of one group share."""

    def __init__(self, low: int, high: int, keep: list[Any]) -> None:
        self.low = low
        self.size = high - low
        self.keep = keep

    def buffer(self) -> pickle.PickleBuffer:
        """Return the memory for a pickle, without a copy."""
        raw = (ctypes.c_ubyte * self.size).from_address(self.low)
        raw._gpulease_keep = self.keep  # type: ignore[attr-defined]  # noqa: SLF001
        return pickle.PickleBuffer(memoryview(raw).cast("B"))


def clusters(arrays: list[Any]) -> dict[int, Storage]:
    """Return id of array to the shared memory it is a view of, for overlapping ones only."""
    spans = sorted(
        ((*byte_bounds(a), i) for i, a in enumerate(arrays) if a.size and not a.dtype.hasobject),
    )
    out: dict[int, Storage] = {}
    run: list[tuple[int, int, int]] = []

    def close() -> None:
        if len(run) > 1:
            keep = [arrays[i] for _, _, i in run]
            memory = Storage(run[0][0], max(high for _, high, _ in run), keep)
            out.update({id(array): memory for array in keep})

    for span in spans:
        if run and span[0] >= max(high for _, high, _ in run):
            close()
            run = []
        run.append(span)
    close()
    return out


def address_of(owner: Any) -> int:
    """Return where the memory of an object begins."""
    return int(sys.modules["numpy"].frombuffer(owner, "u1").__array_interface__["data"][0])


def buffer_owner(array_: Any) -> Any:
    """Return the bytearray or ``array.array`` whose memory a numpy array shows, else None."""
    base = array_.base
    while isinstance(base, type(array_)):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, bytearray | array.array) else None


def byte_bounds(view: Any) -> tuple[int, int]:
    """Return first and one past the last address of an array's elements."""
    low = high = int(view.__array_interface__["data"][0])
    for extent, stride in zip(view.shape, view.strides, strict=True):
        if stride < 0:
            low += (extent - 1) * stride
        else:
            high += (extent - 1) * stride
    return low, high + int(view.itemsize)
