"""Which objects stay where they were made, while what holds them travels.

Owns the judgement.  Such a *leaf* is referred to by id: on the other side something stands for it
(``stayed``), and where it comes home it is the very object.  Kinds that show memory of others are
no leaves, and neither is what has an equality of its own: to be asked for it is not to be used.
"""

from __future__ import annotations

import gc
import io
import itertools
import mmap
import types
import weakref
from collections.abc import Collection, Mapping
from typing import Any

from gpulease.transfer import frameworks
from gpulease.transfer.refuse import RefusedError, is_running_shell, kind_of_all, refused_kind
from gpulease.transfer.values.groups import Group
from gpulease.transfer.values.names import path

from . import locks
from .files import is_closed_file, standard_name
from .stayed import Stayed, leaf_of

_NEVER = (mmap.mmap, memoryview, weakref.ref)
_GRAPH = "CUDAGraph"
_METHODS = (types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType)
#: Type -> what is said of its objects, "" where they are no leaves.
_words: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()


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
    if not words or frameworks.of(kind) is not None or is_running_shell(obj):
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


# ---- where no placeholder may stand


def blocker(values: Mapping[str, Any]) -> str | None:
    """Return what is in the way in these values, in words; a leaf, where nothing else is found."""
    found = path.blocker(values, lambda obj: _is_refused(obj) and leaf_kind(obj) is None)
    return found or path.blocker(values, _is_refused)


def _is_refused(obj: Any) -> bool:
    return type(obj) is not Stayed and not locks.is_free(obj) and refused_kind(obj) is not None


def refuse_unsafe(group: Group, leaves: Collection[Any], values: Mapping[str, Any]) -> None:
    """Raise RefusedError where code of a value's would meet what stands for a leaf.

    A ``__del__`` that runs where the leaf is not cannot close the file, say; an own way of being
    loaded may ask the leaf for something, or use the very one when it comes home.
    """
    wanted = set(map(id, leaves))
    for obj in group.inner.values():
        if not _runs_code(type(obj)):
            continue
        found = _reached(obj, group.inner, wanted)
        if found is not None:
            kind = leaf_of(found).kind if type(found) is Stayed else leaf_kind(found)
            raise RefusedError(path.located(kind or "", values, found), None)


def _runs_code(kind: type) -> bool:
    return (
        kind in _ASKING
        or hasattr(kind, "__del__")
        or any(
            type(vars(base).get(name)) is types.FunctionType
            for base in kind.__mro__
            if (base.__module__ or "") not in _HARMLESS
            for name in _OWN_WAYS
        )
    )


#: Python's iterators that ask what they are over for an iterator whenever one is made.
_ASKING = frozenset({zip, map, filter, enumerate}).union(
    getattr(itertools, name)
    for name in ("accumulate", "compress", "cycle", "dropwhile", "filterfalse", "groupby",
                 "islice", "pairwise", "starmap", "takewhile", "zip_longest")
)  # fmt: skip
_OWN_WAYS = ("__reduce__", "__reduce_ex__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")
#: Whose own ways of being loaded ask nothing of what they get.
_HARMLESS = frozenset({"torch.nn.modules.module", "torch.optim.optimizer", "sklearn.base"})


def _reached(obj: Any, inner: Mapping[int, Any], wanted: Collection[int]) -> Any:
    """Return one of the ``wanted`` that an object leads to within its group, or None."""
    seen = {id(obj)}
    frontier = [obj]
    while frontier:
        found = gc.get_referents(*frontier)
        for each in found:
            if id(each) in wanted:
                return each
        fresh = {id(o): o for o in found if id(o) not in seen and _goes_on(o, inner)}
        seen |= fresh.keys()
        frontier = list(fresh.values())
    return None


def _goes_on(obj: Any, inner: Mapping[int, Any]) -> bool:
    return id(obj) in inner or type(obj) in (dict, tuple)
