"""Memory that arrives as what it is to be: an array's own, so that nothing is copied once more.

An array that is new to the receiver owns its memory, as one that was made there would; so numpy
must have taken it before the content arrives.  Owns which buffers these are, on both sides.  Where
anything does not fit, the array has memory of its own and the content is copied.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from gpulease.transfer.libraries import library
from gpulease.wire.memory import fresh

#: Smaller ones are copied: see ``tokens.array``.
_LARGE = 2**20


def buffers_of_arrays(units: Mapping[str, Any], buffers: Iterable[memoryview]) -> dict[str, int]:
    """Return the large arrays among units, by id, each with the one buffer that is all of it."""
    numpy = library("numpy")
    if numpy is None:
        return {}
    found: dict[tuple[int, int], list[int]] = {}
    for index, buffer in enumerate(buffers):
        if buffer.nbytes > _LARGE:
            place = numpy.frombuffer(buffer, "u1").__array_interface__["data"][0]
            found.setdefault((place, buffer.nbytes), []).append(index)
    arrays: dict[str, int] = {}
    for oid, obj in units.items() if found else ():
        if type(obj) is numpy.ndarray and obj.flags.c_contiguous and not obj.dtype.hasobject:
            own = found.get((obj.__array_interface__["data"][0], obj.nbytes), [])
            if len(own) == 1:
                arrays[oid] = own[0]
    return arrays


def is_array(blob: Any) -> bool:
    """Say whether a blob is memory that an array is to keep."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(blob) is numpy.ndarray


def memory_for(body: Mapping[str, Any], sizes: list[int]) -> list[Any]:
    """Return what the blobs of a shipment are written into: arrays' own memory, or a byte array."""
    numpy = sys.modules.get("numpy")
    kept = _blobs_of_arrays(body) if numpy is not None else set()
    return [
        numpy.empty(size, "u1") if numpy is not None and at in kept else fresh(size)
        for at, size in enumerate(sizes)
    ]


def _blobs_of_arrays(body: Mapping[str, Any]) -> set[int]:
    kept, at = set(), 1
    try:
        for group in body.get("groups", ()):
            held = set(group["held"])
            sent = [index for index in range(group["buffers"]) if index not in held]
            wanted = set(group["arrays"].values())
            kept |= {at + place for place, index in enumerate(sent) if index in wanted}
            at += len(sent)
    except (AttributeError, KeyError, TypeError):
        return set()  # no shipment of ours: whoever reads it says so
    return kept


def become(memory: Any, shape: tuple[int, ...], dtype: Any, order: Any, cls: type) -> Any | None:
    """Return ``memory`` (an array of bytes) as an array of this shape; None where it is none."""
    numpy = sys.modules["numpy"]
    fits = memory.nbytes == math.prod(shape) * dtype.itemsize and not dtype.hasobject
    if cls is not numpy.ndarray or not fits or (order == "F" and len(shape) > 1):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer numpy would rather have a new array
        memory.dtype = dtype
        memory.shape = shape
    return memory
