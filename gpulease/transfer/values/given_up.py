"""Objects with a ``__del__`` that are given up here because they live on elsewhere.

An object of the notebook is one, with a copy on each side.  Its ``__del__`` (which may delete a
file) runs where the notebook's code lets go of it, and for no copy that is replaced or dropped
because the other side's is the newer one.  Of what no other side has there is no copy.
"""

from __future__ import annotations

import functools
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

#: Classes with a ``__del__`` of Python's, of which objects were carried.
_finalized: weakref.WeakSet[type] = weakref.WeakSet()
#: Objects that both sides have, by ``id``.
_shared: dict[int, weakref.ref[Any]] = {}
#: Other methods that run at an object's end, and what stands for them while copies are given up.
_others: dict[tuple[Any, str], Callable[..., Any]] = {}
#: By class and name, the methods that something stands for now, and what does.
_replaced: dict[tuple[Any, str], tuple[Any, Any]] = {}
#: What runs when no copy is given up any more.
_later: list[Callable[[], Any]] = []
#: Threads that give up copies, and how many calls deep.
_giving_up: dict[int, int] = {}
_lock = threading.RLock()


def met(kind: type) -> None:
    """Remember a class of which objects are carried; asks nothing of it."""
    for base in type.__getattribute__(kind, "__mro__"):
        if type(base.__dict__.get("__del__")) is types.FunctionType and base not in _finalized:
            with _lock:
                _finalized.add(base)


def is_needed() -> bool:
    """Say whether a class with a ``__del__`` was met."""
    return bool(_finalized)


def share(objects: Iterable[Any]) -> None:
    """Both sides have these, from here on."""
    for obj in _with_del(objects):
        with suppress(TypeError):  # it cannot be told from another one later: it counts as shared
            _shared[id(obj)] = weakref.ref(obj, functools.partial(_forget, id(obj)))


def alone(objects: Iterable[Any]) -> None:
    """Of these the other side has no copy any more: they end here."""
    for obj in _with_del(objects):
        _shared.pop(id(obj), None)


def _with_del(objects: Iterable[Any]) -> list[Any]:
    if not _finalized:
        return []
    kinds = set(_finalized)
    return [obj for obj in objects if not kinds.isdisjoint(type(obj).__mro__)]


def _forget(key: int, ref: weakref.ref[Any]) -> None:
    if _shared.get(key) is ref:
        del _shared[key]


def also(kind: type, name: str, standing: Callable[..., Any]) -> None:
    """Let ``standing`` stand for another method while copies are given up."""
    _others[kind, name] = standing


def is_giving_up() -> bool:
    """Say whether this thread gives up copies."""
    return threading.get_ident() in _giving_up


def later(call: Callable[[], Any]) -> None:
    """Call this when no copy is given up any more."""
    _later.append(call)


def own(cls: type, name: str) -> Any:
    """Return the method of a class, its own where another stands for it."""
    return _replaced.get((cls, name), (cls.__dict__[name], None))[0]


@contextmanager
def quietly() -> Iterator[None]:
    """Run no ``__del__`` of a copy on this thread in the body, and any other one after it."""
    if not _finalized and not _others:
        yield
        return
    me = threading.get_ident()
    with _lock:
        _giving_up[me] = _giving_up.get(me, 0) + 1
        for kind in _finalized:
            finalize = kind.__dict__.get("__del__")
            if type(finalize) is types.FunctionType:
                _stand(kind, "__del__", _quiet(finalize))
        for (kind, name), standing in _others.items():
            _stand(kind, name, standing)
    calls: list[Callable[[], Any]] = []
    try:
        yield
    finally:
        with _lock:
            _giving_up[me] -= 1
            if not _giving_up[me]:
                del _giving_up[me]
            if not _giving_up:
                _put_back()
                calls, _later[:] = list(_later), ()
        while calls:
            _Last(calls.pop(0))


class _Last:
    """Calls what it gets at its own end: an error there is told as one of a ``__del__``."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call

    def __del__(self) -> None:
        self._call()


def _stand(kind: type, name: str, standing: Callable[..., Any]) -> None:
    if (kind, name) not in _replaced:
        _replaced[kind, name] = kind.__dict__[name], standing
        type.__setattr__(kind, name, standing)


def _put_back() -> None:
    for (kind, name), (own, standing) in _replaced.items():
        if kind.__dict__.get(name) is standing:  # else the class has another one, or none
            type.__setattr__(kind, name, own)
    _replaced.clear()


def _quiet(finalize: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(finalize)
    def quiet(obj: Any) -> Any:
        if not is_giving_up():
            return finalize(obj)
        known = _shared.get(id(obj))
        copied = known() is obj if known is not None else not type(obj).__weakrefoffset__
        if not copied:
            later(functools.partial(finalize, obj))
        return None

    return quiet
