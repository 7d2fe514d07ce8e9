"""How numpy arrays are taken apart: memory apart from the faces that show it.

Owns the reduction of arrays, of their subclasses and of memory maps, and leaves to ``faces`` what
is no array and shows the memory of one.
"""

from __future__ import annotations

import io
import mmap
import pickle
import sys
from collections.abc import Collection
from typing import Any, Protocol

from gpulease.sides.libraries import library
from gpulease.transfer.arrays import SharedMemory, address_of, buffer_owner
from gpulease.transfer_next import faces
from gpulease.transfer_next.refuse import RefusedError

from . import tokens

_BYTES_IO = type(io.BytesIO().getbuffer().obj)


class Memory(Protocol):
    """What is known of a group's memory: shared by several arrays, a framework's, or a name's."""

    memory: SharedMemory
    inner: Collection[int]
    #: The group's arrays.
    arrays: Collection[Any]

    def block(self, address: int) -> Any:
        """Return the framework's memory at an address, or None."""
        ...


def reduce(obj: Any, context: Memory) -> Any:
    """Reduce an array or what shows one; NotImplemented where it has a better way of its own."""
    numpy = library("numpy")
    if numpy is None:
        return NotImplemented
    if type(obj) is numpy.ndarray:
        return _array(obj, context)
    if isinstance(obj, numpy.ndarray):
        return _subclass(obj, context)
    return faces.reduce(obj, lambda array: _is_shared(array, context))


def _is_shared(array: Any, context: Memory) -> bool:
    address = int(array.__array_interface__["data"][0])
    if not array.size or array.dtype.hasobject:
        return False
    return context.block(address) is not None or context.memory.at(address) is not None


def _subclass(array: Any, context: Memory) -> Any:
    """Reduce an instance of an array's subclass to its memory and its own attributes.

    numpy's own way copies the memory and loses the attributes; a class that has a way of its
    own is left to it.
    """
    kind = type(array)
    if (
        isinstance(array, sys.modules["numpy"].memmap)
        and getattr(array, "filename", None) is not None
    ):
        return _mapped(array, context)
    by_numpy = kind.__reduce__.__module__ if hasattr(kind.__reduce__, "__module__") else None
    if by_numpy is not None and not str(by_numpy).startswith("numpy"):
        return NotImplemented
    reduced = _array(array, context)
    if reduced is NotImplemented:
        return NotImplemented
    attributes = dict(getattr(array, "__dict__", {}))
    return tokens.face, (*reduced, kind, attributes)


def _mapped(array: Any, context: Memory) -> Any:
    """Reduce a read-only memory map, or a part of one, to its file and what is in it."""
    whole = array
    while getattr(whole.base, "_mmap", None) is not None:
        whole = whole.base
    if not array.size or getattr(whole, "mode", "") != "r" or whole.filename is None:
        return _array(array, context)
    start = int(array.__array_interface__["data"][0])
    offset = start - int(whole.__array_interface__["data"][0]) + int(whole.offset)
    digest = tokens.content_digest(array)
    args = (str(whole.filename), array.dtype, array.shape, array.strides, offset, digest)
    return tokens.memmap, args


def _array(array: Any, context: Memory) -> Any:
    if array.dtype.hasobject:
        return _of_objects(array, context)
    if not array.dtype.itemsize:
        return NotImplemented
    flags = array.flags
    if flags.writeable and not flags.owndata:
        _refuse_elsewhere(array)
    owner = buffer_owner(array)
    if array.size and id(owner) in context.inner:
        offset = int(array.__array_interface__["data"][0]) - address_of(owner)
        args = (owner, array.dtype, array.shape, array.strides, offset, flags.writeable)
        return tokens.view, args
    block = context.block(int(array.__array_interface__["data"][0]))
    if block is not None and array.size:
        low, _, stands, load = block
        offset = int(array.__array_interface__["data"][0]) - low
        args = (stands, array.dtype, array.shape, array.strides, offset, flags.writeable)
        return load or tokens.view, args
    shared = context.memory.at(int(array.__array_interface__["data"][0])) if array.size else None
    if shared is not None and shared[1] is not array:
        low, memory = shared
        offset = int(array.__array_interface__["data"][0]) - low
        args = (memory, array.dtype, array.shape, array.strides, offset, flags.writeable)
        return tokens.view, args
    return own_memory(array)


def own_memory(array: Any) -> Any:
    """Reduce an array to its elements and form, whoever else shows its memory."""
    flags = array.flags
    order = "F" if flags.f_contiguous and not flags.c_contiguous else "C"
    numpy = sys.modules["numpy"]
    plain = array if type(array) is numpy.ndarray else array.view(numpy.ndarray)
    raw = plain.ravel(order="K" if flags.forc else "C").view("u1")
    buffer = pickle.PickleBuffer(raw)
    return tokens.array, (buffer, array.dtype, array.shape, order, flags.writeable)


def _refuse_elsewhere(array: Any) -> None:
    """Raise RefusedError for an array over memory that something else may show and write to."""
    base = array.base
    numpy = sys.modules["numpy"]
    while isinstance(base, numpy.ndarray):
        if isinstance(base, numpy.memmap) and getattr(base, "mode", "") == "c":
            return  # nobody else sees what is written to it
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    if isinstance(base, mmap.mmap):
        raise RefusedError("an array over a writable memory map")
    if isinstance(base, _BYTES_IO):
        raise RefusedError("an array over the buffer of a BytesIO")


def _of_objects(array: Any, context: Memory) -> Any:
    """Reduce a view of an array of objects that something else shows, too."""
    base = whole_of(array)
    if base is array or not array.size:
        return NotImplemented
    if sum(whole_of(other) is base for other in context.arrays) < 2:
        return NotImplemented
    if array.dtype != object or base.dtype != object or not base.flags.forc:
        raise RefusedError(f"a view of an array of {base.dtype}")
    offset = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    start = offset // array.itemsize
    args = (base, array.shape, array.strides, start, array.flags.writeable)
    if type(array) is not type(base) or getattr(array, "__dict__", None):
        raise RefusedError(f"a view of an array of objects, as a {type(array).__name__}")
    return tokens.view_of_objects, args


def whole_of(array: Any) -> Any:
    """Return the array that an array of objects is a view of, itself where it is none."""
    numpy = sys.modules["numpy"]
    whole, base = array, getattr(array, "base", None)
    while base is not None:
        if isinstance(base, numpy.ndarray) and base.dtype.hasobject:
            whole = base
        base = getattr(base, "base", None)
    return whole
