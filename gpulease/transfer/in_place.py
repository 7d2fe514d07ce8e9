"""New contents for objects that something outside their component holds.

Such an object stays the object that it is.  What cannot be given another content is replaced, and
named.
"""

from __future__ import annotations

import collections
import types
from functools import partial
from typing import Any

from gpulease.sides.libraries import library
from gpulease.sides.looks import is_a
from gpulease.wire.memory import OwnedBytes

from . import anatomy, memory, pieces, rebuild, ways
from .by_class import takes_raw
from .classes import Undo

_ITERATORS = tuple(
    type(made)
    for made in (
        iter([]),
        iter(()),
        iter(""),
        iter(b""),
        iter(bytearray()),
        iter(range(0)),
        reversed([]),
    )
)
_PLAIN = (list, dict, set, bytearray)


def can_be_filled(obj: Any) -> bool:  # noqa: PLR0911 - one a kind
    """Say whether an object can be given another content."""
    kind = type(obj)
    if kind is types.CellType:
        return all(anatomy.class_with(each) is None for each in _cell_content(obj))
    if kind in _PLAIN or kind in _ITERATORS:
        return True
    if kind is types.FunctionType or kind is types.ModuleType:
        return True
    np = library("numpy")
    if np is not None and is_a(obj, np.ndarray):
        is_map = isinstance(obj, np.memmap)
        return not is_map and (not obj.dtype.hasobject or bool(obj.dtype == object))
    if is_a(obj, type) or kind in _TOKENS:
        return False
    base = anatomy.builtin_under(kind)
    if base is None or not (kind in NAMED or takes_raw(kind)):
        return False
    builtin = anatomy.BUILTINS[base]
    return builtin.fill is not None or base is object or base is types.SimpleNamespace


#: What stands for arrays while they are packed.
_TOKENS = (memory.Whole, memory.InFrame, pieces.Bytes)
#: Containers of the standard library that are taken apart as classes made from them are.
NAMED = (
    collections.deque, collections.OrderedDict, collections.defaultdict, collections.Counter,
)  # fmt: skip


def keeps(obj: Any) -> list[Any]:
    """Return what a held object goes on holding when it gets another content."""
    kind = type(obj)
    if kind is types.FunctionType:
        return list(obj.__closure__ or ())
    if is_array(kind) and obj.base is not None:
        if is_over_lasting(obj):
            return []
        root, exporter = memory.Memory().owner(obj)
        return [root] if exporter is None else [exporter]
    if kind in _ITERATORS:
        return list(obj.__reduce__()[1])
    return []


def is_array(kind: type) -> bool:
    """Say whether a class is one of numpy's arrays."""
    np = library("numpy")
    return np is not None and issubclass(kind, np.ndarray)


def is_over_lasting(array: Any) -> bool:
    """Say whether an array is over the memory of what each side has for good."""
    return array.base is not None and ways.is_lasting(type(memory.base_of(array)))


def content_of(obj: Any) -> Any:  # noqa: PLR0911 - one a kind
    """Return what ``fill`` puts into the counterpart."""
    kind = type(obj)
    if kind in _PLAIN:
        return kind(obj)
    if kind is types.CellType:
        return _cell_content(obj)
    if kind is types.ModuleType:
        return dict(vars(obj))
    if kind is types.FunctionType:
        return obj.__code__, rebuild.parts_of(obj), obj.__dict__
    if kind in _ITERATORS:
        return obj.__reduce__()[1:]
    np = library("numpy")
    if np is not None and is_a(obj, np.ndarray):
        return _array_content(np, obj)
    return anatomy.take_apart(obj)[1]


def _cell_content(obj: types.CellType) -> tuple[Any, ...]:
    try:
        return (obj.cell_contents,)
    except ValueError:
        return ()


def _array_content(np: Any, obj: Any) -> Any:
    space = getattr(obj, "__dict__", None)
    flags = obj.flags.writeable
    if is_over_lasting(obj):  # whose bytes go into the memory of the other side with this
        return memory.base_of(obj), obj.dtype, obj.shape, obj.strides, flags, space
    if obj.base is not None and not _has_all_of(np, obj.base, obj):
        return "view", obj.dtype, obj.shape, obj.strides, flags, space
    if pieces.is_large(obj):
        return pieces.Bytes(obj), obj.dtype, obj.shape, obj.strides, flags, space
    flat = obj.view(np.ndarray).ravel(order="K")
    raw = flat.tolist() if obj.dtype == object else flat.view("u1").tobytes()
    return raw, obj.dtype, obj.shape, obj.strides, flags, space


def _has_all_of(np: Any, base: Any, obj: Any) -> bool:
    """Say whether an array is all that its memory is for, as records are where they were loaded."""
    if type(base) is OwnedBytes:
        return True
    is_record = type(obj) is np.recarray and type(base) is np.ndarray
    return is_record and base.nbytes == obj.nbytes and bool(obj.flags.c_contiguous)


def fill(obj: Any, content: Any, undo: Undo) -> bool:
    """Give an object this content; False where it cannot be given one like that."""
    before = content_of(obj)
    if not put(obj, content):
        return False
    undo.add(partial(put, obj, before))
    return True


def put(obj: Any, content: Any) -> bool:  # noqa: PLR0911 - one a kind
    """Give an object this content for good; False where it cannot be given one like that."""
    kind = type(obj)
    if kind is list or kind is bytearray:
        obj[:] = content
        return True
    if kind is set or kind is dict:
        obj.clear()
        obj.update(content)
        return True
    if kind is types.ModuleType:
        anatomy.set_space(obj, content)
        return True
    if kind is types.CellType:
        rebuild.fill_cell(obj, content)
        return True
    if kind is types.FunctionType:
        code, parts, space = content
        if len(code.co_freevars) != len(obj.__code__.co_freevars):
            return False
        obj.__code__ = code
        rebuild.fill_function(obj, (parts, space, None))
        return True
    if kind in _ITERATORS:
        return _fill_iterator(obj, content)
    np = library("numpy")
    if np is not None and is_a(obj, np.ndarray):
        return _fill_array(np, obj, content)
    anatomy.fill(obj, content)
    return True


def _fill_iterator(obj: Any, content: Any) -> bool:
    over, *state = content
    mine = obj.__reduce__()
    if len(mine) < 3:
        return not state
    if not state:
        collections.deque(obj, maxlen=0)
        return True
    if mine[1][0] is not over[0]:
        return False
    obj.__setstate__(state[0])
    return True


def _write_bytes(np: Any, obj: Any, raw: bytes) -> None:
    plain = obj.view(np.ndarray)
    if plain.ravel(order="K").view("u1").tobytes() != raw:
        if not plain.flags.writeable:
            obj.flags.writeable = True
            plain = obj.view(np.ndarray)
        plain.ravel(order="K").view("u1")[...] = np.frombuffer(raw, "u1")


def _fill_array(np: Any, obj: Any, content: Any) -> bool:
    raw, dtype, shape, strides, writeable, space = content
    if obj.dtype != dtype or (obj.shape, obj.strides) != (shape, strides):
        return False
    if isinstance(raw, np.ndarray) and raw is not obj:
        return False  # it came as another one
    if isinstance(raw, str | pieces.Bytes | np.ndarray) or ways.is_lasting(type(raw)):
        pass  # its bytes are another's, or were written while it was loaded
    elif dtype.hasobject:
        flat = obj.view(np.ndarray).ravel(order="K")
        for index, item in enumerate(raw):
            flat[index] = item
    elif obj.nbytes != len(raw):
        return False
    else:
        _write_bytes(np, obj, raw)
    if obj.flags.writeable != writeable:
        obj.flags.writeable = writeable
    if space is not None:
        obj.__dict__ = space
    return True
