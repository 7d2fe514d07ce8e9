"""Which objects stay where they were made, while what holds them travels.

Such a *leaf* is referred to by id: on the other side something stands for it (``stayed``), and
where it is copied back it is the very object.  Kinds that show memory of others are
no leaves, and neither is what has an equality of its own: to be asked for it is not to be used.
"""

from __future__ import annotations

import functools
import gc
import io
import mmap
import types
import weakref
from collections.abc import Callable, Collection, Iterator
from typing import Any

from . import locks, ways
from .files import is_closed_file, standard_name
from .refuse import is_running_shell, kind_of_all, kind_that_stays
from .stayed import Stayed

_NEVER = (mmap.mmap, memoryview, weakref.ref)
_GRAPH = "CUDAGraph"
_METHODS = (types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType)
#: What runs code of its own when it is used.
RUNNING = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
_CODE = ("gi_code", "cr_code", "ag_code")
#: What leads to code that such code calls.
_CALLING = (
    *RUNNING, types.FunctionType, types.MethodType, types.CellType, functools.partial, map, filter,
    zip, enumerate, tuple, list, dict,
)  # fmt: skip
#: Type -> what is said of its objects, "" where they are no leaves.
_words: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()


#: Say of a type that its objects travel in a way of their own.
travelling: list[Callable[[type], bool]] = [lambda kind: ways.of(kind) is not None]


def may_be(kind: type) -> bool:
    """Say whether an object of exactly this type may be a leaf, or stand for one."""
    return kind is Stayed or kind in _METHODS or bool(_words_of(kind))


def leaf_kind(obj: Any) -> str | None:
    """Return in words what ``obj`` is, if it is a leaf of this side, else None."""
    kind = type(obj)
    if kind in _METHODS:
        inner = leaf_kind(obj.__self__)
        return f"a method of {inner}" if inner is not None else None
    words = _words_of(kind)
    if not words or any(says(kind) for says in travelling) or is_running_shell(obj):
        return None
    if issubclass(kind, io.IOBase) and (standard_name(obj) is not None or is_closed_file(obj)):
        return None
    if locks.may_be(kind):
        return None if locks.is_free(obj) else f"{words} that is in use"
    return words


def stays(obj: Any) -> bool:
    """Say whether ``obj`` is a leaf, or stands for one."""
    return type(obj) is Stayed or leaf_kind(obj) is not None


def _words_of(kind: type) -> str:
    known = _words.get(kind)
    if known is None:
        known = _look_at(kind)
        if kind.__module__ != "__main__":  # a notebook may change its own classes
            _words[kind] = known
    return known


def _look_at(kind: type) -> str:
    # A graph of CUDA's writes to addresses.
    if kind in (io.StringIO, io.BytesIO) or issubclass(kind, _NEVER) or kind.__name__ == _GRAPH:
        return ""
    words = kind_of_all(kind) or kind_that_stays(kind)
    if not words:  # of no other class is anything asked: a MagicMock's makes another mock then
        return ""
    ways: Any = (kind.__eq__, kind.__hash__)
    return words if ways == (object.__eq__, object.__hash__) else ""


def code_within(found: Collection[Any]) -> Iterator[types.CodeType]:
    """Yield the code of generators and coroutines, and of the functions that they hold."""
    seen = dict(zip(map(id, found), found, strict=True))
    pending = list(found)
    while pending:
        obj = pending.pop()
        if isinstance(obj, RUNNING):
            yield next(getattr(obj, name) for name in _CODE if hasattr(obj, name))
        elif type(obj) is types.FunctionType:
            yield obj.__code__
        held = obj.__closure__ if type(obj) is types.FunctionType else gc.get_referents(obj)
        more = [each for each in held or () if type(each) in _CALLING and id(each) not in seen]
        seen.update(zip(map(id, more), more, strict=True))
        pending += more
