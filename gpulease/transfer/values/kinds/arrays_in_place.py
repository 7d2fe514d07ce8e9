"""Arrays whose elements are put into the array that is there already, views and subclasses too.

Owns which arrays these are: their memory is in one piece, and no object's but theirs.
A class of arrays may have attributes; its code runs only where an empty one is made.
"""

from __future__ import annotations

import sys
from typing import Any

from gpulease.sides.libraries import library
from gpulease.transfer.arrays import order_of
from gpulease.transfer_next.references import references
from gpulease.transfer_next.unsaid import unsaid

from .containers import fill_dict, slots_of


def is_array(obj: Any) -> bool:
    """Say whether ``obj`` is an array that is its elements and attributes, and nothing else."""
    numpy = library("numpy")
    if numpy is None or not issubclass(type(obj), numpy.ndarray):
        return False
    cls: Any = type(obj)
    if cls is numpy.ndarray or _is_masked(cls):
        return True
    own = (cls.__reduce__, cls.__reduce_ex__, cls.__setstate__)
    usual = (numpy.ndarray.__reduce__, numpy.ndarray.__reduce_ex__, numpy.ndarray.__setstate__)
    return own == usual and not issubclass(cls, numpy.memmap) and not slots_of(cls)


def _is_masked(cls: Any) -> bool:
    """Say whether this is numpy's masked array: all that is its own is among its attributes."""
    masked = sys.modules.get("numpy.ma")  # where it is not loaded, there is none
    return masked is not None and cls is masked.MaskedArray


def can_be_filled(array: Any) -> bool:
    """Say whether an array, which ``is_array``, may be given other elements."""
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        return False
    base = array.base
    if array.dtype.hasobject:  # of objects only: their memory holds them, and is no other's
        return (
            base is None and array.dtype == object and type(array) is sys.modules["numpy"].ndarray
        )
    if base is not None and not array.flags.writeable:
        return False  # its memory is another's, which may be protected
    while is_array(base):
        array, base = base, base.base
    del base
    return array.base is None or _is_its_alone(array)


def _is_its_alone(array: Any) -> bool:
    """Say whether memory is as it comes in a message: bytes that only this array refers to."""
    memory = {0: array.base}
    return type(memory[0]) is bytearray and references(memory)[0] <= 1


def shell_of(array: Any) -> tuple[Any, ...]:
    """Return what ``make`` needs for an empty one."""
    return array.shape, array.dtype, order_of(array), type(array)


def make(shape: tuple[int, ...], dtype: Any, order: Any, cls: type) -> Any:
    """Return an array of any elements."""
    numpy = sys.modules["numpy"]  # its dtype has imported it
    made = numpy.empty(shape, dtype, order=order)
    return made if cls is numpy.ndarray else numpy.ndarray.view(made, cls)


def content_of(array: Any) -> tuple[Any, dict[str, Any] | None]:
    """Return its elements, without a copy, and its attributes."""
    space = getattr(array, "__dict__", None)
    plain = _plain(array)
    if array.dtype.hasobject:
        plain = plain.copy()  # a view of objects is pickled with what it is a view of
    return plain, None if space is None else dict(space)


def fill(array: Any, content: tuple[Any, dict[str, Any] | None]) -> None:
    """Make its elements and attributes these; raises ValueError where its size is another.

    One over another's memory has no elements of its own (see ``shared_arrays``).
    """
    elements, space = content
    if type(elements) is tuple:
        _lie_as(array, *elements)
    else:
        _take(array, elements)
    if space is not None:
        fill_dict(array.__dict__, space)


def _take(array: Any, elements: Any) -> None:
    plain = array if type(array) is type(elements) else _plain(array)
    if not plain.flags.writeable:
        plain.flags.writeable = array.flags.writeable = True
    if (array.shape, array.dtype) != (elements.shape, elements.dtype):
        with unsaid():  # newer numpy would rather have a new array
            array.dtype, array.shape = elements.dtype, elements.shape
        plain = _plain(array)
    plain[...] = elements
    array.flags.writeable = elements.flags.writeable


def _lie_as(array: Any, dtype: Any, shape: tuple[int, ...], writeable: bool) -> None:
    if (array.shape, array.dtype) != (shape, dtype):
        with unsaid():
            array.dtype, array.shape = dtype, shape
    if array.flags.writeable != writeable:
        array.flags.writeable = writeable


def _plain(array: Any) -> Any:
    numpy = sys.modules["numpy"]
    return numpy.ndarray.view(array, numpy.ndarray)
