"""How numpy arrays are taken apart: memory apart from the faces that show it.

Owns the reduction of arrays, of their subclasses and of memory maps.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Collection
from typing import Any, Protocol

from gpulease.transfer.arrays import Storage, address_of, buffer_owner

from . import tokens


class Memory(Protocol):
    """What is known of a group's memory: shared by several arrays, a framework's, or a name's."""

    memory: dict[int, Storage]
    inner: Collection[int]

    def block(self, address: int) -> Any:
        """Return the framework's memory at an address, or None."""
        ...


def reduce(array: Any, context: Memory) -> Any:
    """Reduce an array; NotImplemented where it has a better way of its own."""
    plain = type(array) is sys.modules["numpy"].ndarray
    return _array(array, context) if plain else _subclass(array, context)


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
    if array.dtype.hasobject or not array.dtype.itemsize:
        return NotImplemented
    flags = array.flags
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
    memory = context.memory.get(id(array))
    if memory is not None:
        offset = int(array.__array_interface__["data"][0]) - memory.low
        args = (memory, array.dtype, array.shape, array.strides, offset, flags.writeable)
        return tokens.view, args
    order = "F" if flags.f_contiguous and not flags.c_contiguous else "C"
    numpy = sys.modules["numpy"]
    plain = array if type(array) is numpy.ndarray else array.view(numpy.ndarray)
    raw = plain.ravel(order="K" if flags.forc else "C").view("u1")
    buffer = pickle.PickleBuffer(raw)
    return tokens.array, (buffer, array.dtype, array.shape, order, flags.writeable)
