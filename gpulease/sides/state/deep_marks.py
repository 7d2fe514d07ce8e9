"""Marks of objects that a person's own modules hold, by the arrays that lie in them.

One look goes through a bounded number of objects, and reads only a part of a large array.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple

import xxhash

from gpulease.sides.libraries import library
from gpulease.sides.state.named_modules import attributes_of
from gpulease.sides.state.plain import SCALARS

#: Objects that one look goes through, and bytes of one array that it reads.
_MOST = 2_000
_BYTES = 1 << 16
_CONTAINERS = (list, dict, set, bytearray)
_STATELESS = (*SCALARS, tuple, frozenset, FunctionType, BuiltinFunctionType, type, ModuleType)


class Deep(NamedTuple):
    """The mark of an object: which it is (by ``id``), of itself, and of all arrays in it."""

    number: int
    shallow: Any
    arrays: bytes


def has_state(value: Any) -> bool:
    """Say whether this is an object that a cell may change and that could be a variable's, too.

    Not what Python's own modules make, as loggers, locks and streams: each process has its own.
    """
    kind = type(value)
    if issubclass(kind, _CONTAINERS):
        return True
    root = kind.__module__.partition(".")[0] if type(kind.__module__) is str else ""
    return not issubclass(kind, _STATELESS) and root not in sys.stdlib_module_names


def arrays_mark(value: Any) -> bytes:
    """Return what tells, for as long as one cell runs, whether an array in this was changed.

    Numbers and texts that lie in objects do not count: clients and streams count for themselves.
    """
    mark = xxhash.xxh3_128()
    seen: set[int] = set()
    queue = [value]
    while queue and len(seen) < _MOST:
        each = queue.pop()
        if type(each) in SCALARS or id(each) in seen:
            continue
        seen.add(id(each))
        with suppress(Exception):  # as much as a library's object lets itself be looked at
            for part in _numbers(each):
                mark.update(part)
            queue += _parts(each)
    return mark.digest()


def _numbers(value: Any) -> Iterator[bytes]:
    """Return which array or tensor this is, and its numbers, or some of them."""
    numpy, torch, jax = library("numpy"), library("torch"), library("jax")
    if jax is not None and isinstance(value, jax.Array):
        yield b"%d" % id(value)  # it never changes
    if torch is not None and isinstance(value, torch.Tensor):
        grad = id(value.grad) if value.is_leaf else 0
        yield b"%d %d %d" % (id(value), value._version, grad)  # noqa: SLF001
        if value.device.type != "cpu":
            return
        value = value.detach().numpy()
    if numpy is not None and isinstance(value, numpy.ndarray) and not value.dtype.hasobject:
        yield b"%d" % value.ctypes.data
        flat = value.reshape(-1) if value.flags.contiguous else value.ravel()
        step = max(1, value.nbytes // _BYTES)
        yield flat[::step].tobytes()


def _parts(value: Any) -> list[Any]:
    kind = type(value)
    if issubclass(kind, dict):
        items = islice(dict.items(value), _MOST)
        return [*(part for item in items for part in item), *_attributes(value)]
    if issubclass(kind, list | tuple | set | frozenset):
        return [*islice(value, _MOST), *_attributes(value)]
    pandas = library("pandas")
    if pandas is not None and isinstance(value, pandas.DataFrame | pandas.Series):
        return [*value._mgr.arrays]  # noqa: SLF001
    return [] if issubclass(kind, _STATELESS) else _attributes(value)


def _attributes(value: Any) -> list[Any]:
    return list((attributes_of(value) or {}).values())
