"""What is left out where only a group's structure is packed: arrays and frames over much memory."""

from __future__ import annotations

from typing import Any

from gpulease.sides.libraries import library
from gpulease.transfer.frameworks import away
from gpulease.transfer_next import faces

from .array_reduction import Memory


def reduce(obj: Any, context: Memory, names: tuple[str, ...]) -> Any:
    """Reduce an array or a frame of ``names`` to what stands for it; NotImplemented for others."""
    numpy, pandas = library("numpy"), library("pandas")
    kind = type(obj)  # what stands for one says of itself that it is one
    if numpy is not None and issubclass(kind, numpy.ndarray):
        large = _memory(obj, context) >= away.SMALL
        return away.reduction(obj, ", ".join(names)) if large else NotImplemented
    if pandas is None or not issubclass(kind, (pandas.DataFrame, pandas.Series, pandas.Index)):
        return NotImplemented
    sizes = (_memory(array, context) for array in faces.arrays_of_pandas(obj))
    large = max(faces.inside_pandas(obj)[0], *sizes, 0) >= away.SMALL
    return away.reduction(obj, ", ".join(names), of_frame=True) if large else NotImplemented


def _memory(array: Any, context: Memory) -> int:
    """Return the bytes of the memory that an array shows, be it a part of it."""
    if not array.size or array.dtype.hasobject:
        return int(array.nbytes)
    address = int(array.__array_interface__["data"][0])
    block = context.block(address)
    if block is not None:
        return int(block[1] - block[0])
    return max(context.memory.size_at(address), int(array.nbytes))
