"""Which objects stay where they were made, while what holds them travels.

Such a *leaf* is referred to by id: on the other side something stands for it (``stayed``), and
where it is copied back it is the very object.  Kinds that show memory of others are
no leaves, and neither is what has an equality of its own: to be asked for it is not to be used.
``transfer_next.leaves`` lets more stay than this engine, which carries it.
"""

from __future__ import annotations

import io
import mmap
import types
import weakref
from collections.abc import Callable
from typing import Any

from gpulease.transfer_next import locks, ways
from gpulease.transfer_next.files import is_closed_file, standard_name
from gpulease.transfer_next.refuse import is_running_shell, kind_of_all
from gpulease.transfer_next.stayed import Stayed

_NEVER = (mmap.mmap, memoryview, weakref.ref)
_GRAPH = "CUDAGraph"
_METHODS = (types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType)
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
        known = _words[kind] = _look_at(kind)
    return known


def _look_at(kind: type) -> str:
    # A graph of CUDA's writes to addresses.
    if kind in (io.StringIO, io.BytesIO) or issubclass(kind, _NEVER) or kind.__name__ == _GRAPH:
        return ""
    words = kind_of_all(kind)
    if not words:  # of no other class is anything asked: a MagicMock's makes another mock then
        return ""
    ways: Any = (kind.__eq__, kind.__hash__)
    return words if ways == (object.__eq__, object.__hash__) else ""
