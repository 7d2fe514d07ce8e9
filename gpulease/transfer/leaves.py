"""Which objects stay where they were made, while what holds them travels.

Such a *leaf* is referred to by id: on the other side something stands for it (``stayed``), and
where it is copied back it is the very object.  Kinds that show memory of others are
no leaves, and neither is what has an equality of its own: to be asked for it is not to be used.
"""

from __future__ import annotations

import csv
import functools
import gc
import io
import mmap
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable, Collection, Iterator
from typing import Any

from . import ways
from .refuse import is_running_shell, kind_of_all, kind_that_stays
from .stayed import Stayed

_NEVER = (mmap.mmap, memoryview, weakref.ref)
_GRAPH = "CUDAGraph"
_METHODS = (types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType)
#: Iterators that compiled code makes over others; those of itertools are some, too.
_OVER = frozenset((map, filter, zip, enumerate, type(csv.reader([]))))
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
    return (
        issubclass(kind, Stayed)
        or kind in _METHODS
        or _is_over_others(kind)
        or bool(_words_of(kind))
    )


def leaf_kind(obj: Any) -> str | None:
    """Return in words what ``obj`` is, if it is a leaf of this side, else None."""
    kind = type(obj)
    if kind in _METHODS:
        inner = leaf_kind(obj.__self__)
        return f"a method of {inner}" if inner is not None else None
    words = _words_of(kind)
    if not words and _is_over_others(kind):
        return _over_leaf(obj)
    if not words or any(says(kind) for says in travelling) or is_running_shell(obj):
        return None
    if issubclass(kind, io.IOBase) and (standard_name(obj) is not None or is_closed_file(obj)):
        return None
    if may_be_lock(kind):
        return None if is_free(obj) else f"{words} that is in use"
    return words


def _is_over_others(kind: type) -> bool:
    return kind in _OVER or kind.__module__ == "itertools"


def _over_leaf(iterator: Any) -> str | None:
    """Say that an iterator goes on with a leaf: what stands for that cannot be iterated over."""
    held = gc.get_referents(iterator)
    # Not by a loop over the tuple: ``zip_longest`` leaves holes in its own.
    held += gc.get_referents(*(each for each in held if type(each) is tuple))
    inner = next((found for each in held if (found := leaf_kind(each)) is not None), None)
    return f"an iterator over {inner}" if inner is not None else None


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


_LOCK: Any = type(threading.Lock())
_RLOCK: Any = type(threading.RLock())
_LOCKS = (_LOCK, _RLOCK)
_KINDS = (*_LOCKS, threading.Condition)
#: What a condition has of its own; any other attribute is the user's.
_PLAIN = frozenset(vars(threading.Condition()))


def may_be_lock(kind: type) -> bool:
    """Say whether objects of exactly this type travel while they are free."""
    return kind in _KINDS


def is_free(obj: Any) -> bool:
    """Say whether ``obj`` is a lock or condition of which no thread has or waits for anything."""
    kind = type(obj)
    if kind is _LOCK:
        return not obj.locked()
    if kind is _RLOCK:  # to try it would be to hold it, for other threads
        return repr(obj).startswith("<unlocked")
    if kind is not threading.Condition or not vars(obj).keys() <= _PLAIN:
        return False
    lock = obj._lock  # noqa: SLF001 - Python says it nowhere else
    free = type(lock) in _LOCKS and is_free(lock) and not obj._waiters  # noqa: SLF001 - no other way
    return free and not _others_may_notify()


def _others_may_notify() -> bool:
    """Say whether a thread of the notebook's code lives: who waits on the other side for its word
    would wait for ever.
    """
    return any(map(_is_of_notebook, threading.enumerate()))


def _is_of_notebook(thread: threading.Thread) -> bool:
    if thread is threading.main_thread():
        return False
    target = getattr(thread, "_target", None)  # gone once the thread ends
    code: Any = getattr(target, "__func__", target)
    space = getattr(code, "__globals__", None) if type(code) is types.FunctionType else None
    main = vars(sys.modules["__main__"])
    return space is main or type(thread).__module__ == "__main__"


_STREAMS = ("stdout", "stderr", "stdin")
_FILES = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)


def standard_name(obj: Any) -> str | None:
    """Return the name of ``obj`` in ``sys`` if it is one of the three streams, else None."""
    return next((name for name in _STREAMS if getattr(sys, name) is obj), None)


def standard_stream(name: str) -> Any:
    """Return this side's stream of this name."""
    return getattr(sys, name)


def is_closed_file(obj: Any) -> bool:
    """Say whether ``obj`` is a file of Python's own, and closed."""
    return type(obj) in _FILES and bool(obj.closed)


def reduce_closed(obj: Any) -> Any:
    """Reduce a closed file to what can still be asked of it."""
    mode = str(getattr(obj, "mode", "r"))
    name = getattr(obj, "name", "")
    encoding = getattr(obj, "encoding", None)
    errors = getattr(obj, "errors", None)
    return closed_file, (type(obj).__name__, name, mode, encoding, errors)


def closed_file(kind: str, name: Any, mode: str, encoding: str | None, errors: str | None) -> Any:
    """Return a closed file of this kind; nothing is opened but the null device."""
    raw: Any = io.FileIO(os.devnull, "".join(c for c in mode if c in "rwa+") or "w")
    raw.name = name
    made: Any = raw
    if kind != "FileIO":
        both = raw.readable() and raw.writable()
        one = io.BufferedReader if raw.readable() else io.BufferedWriter
        made = (io.BufferedRandom if both else one)(raw)
    if kind == "TextIOWrapper":
        made = io.TextIOWrapper(made, encoding=encoding, errors=errors)
        made.mode = mode
    made.close()
    return made


def is_animated(obj: Any) -> bool:
    """Say whether an image has more pictures, which its file is asked for."""
    file = getattr(sys.modules.get("PIL.ImageFile"), "ImageFile", None)
    if file is None or not isinstance(obj, file):
        return False
    try:
        return bool(getattr(obj, "is_animated", False))
    except Exception:  # noqa: BLE001 - the file is gone or broken: then it is what was read of it
        return False
