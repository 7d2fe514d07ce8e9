"""Weak references and containers of them: they travel with what they refer to, and hold nothing.

What is referred to must be held by something that travels as well.  Otherwise it would be gone on
the other side the moment it arrived, and so it is refused.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

from gpulease.transfer.refuse import RefusedError, is_dead

from . import finalizers

PROXIES = frozenset(weakref.ProxyTypes)
REFERENCES = PROXIES | {weakref.ref, weakref.WeakMethod}
CONTAINERS: tuple[type, ...] = (
    weakref.WeakSet,
    weakref.WeakKeyDictionary,
    weakref.WeakValueDictionary,
)
_APART = (*CONTAINERS, finalizers.KIND)
#: What these containers are made of; a subclass may have further attributes.
_OWN = frozenset((
    "data", "_remove", "_pending_removals", "_iterating", "_dirty_len", "_commit_removals",
))  # fmt: skip
#: Referred to by name, or held by a name on both sides.
_NAMED = (type, types.FunctionType, types.ModuleType)


def is_weak(kind: type) -> bool:
    """Say whether objects of this type are told apart here: a subclass of a reference is not."""
    # Not issubclass: these are abstract to it, and remember each class that they are asked about.
    return kind in REFERENCES or any(base in _APART for base in kind.__mro__)


def strong(obj: Any) -> list[Any]:
    """Return what a weak object holds for itself."""
    if type(obj) in REFERENCES:
        return []
    if finalizers.is_finalizer(type(obj)):
        return [type(obj), *finalizers.parts(obj)[1:]]
    held: list[Any] = [type(obj), *_attributes(obj).values()]
    if isinstance(obj, weakref.WeakKeyDictionary):
        held += list(obj.values())
    elif isinstance(obj, weakref.WeakValueDictionary):
        held += list(obj.keys())
    return held


def referents(obj: Any) -> list[Any]:
    """Return what a weak object refers to, as far as that is alive."""
    if type(obj) is weakref.WeakMethod:
        method = obj()
        return [] if method is None else [method.__self__, method.__func__]
    if type(obj) in REFERENCES:
        referent = _referent(obj)
        return [] if referent is None else [referent]
    if finalizers.is_finalizer(type(obj)):
        return list(finalizers.parts(obj)[:1])
    return list(obj.values() if isinstance(obj, weakref.WeakValueDictionary) else obj)


def reduce(obj: Any, is_held: Callable[[Any], bool]) -> Any:
    """Reduce a weak object; raises RefusedError where nothing that travels holds a referent."""
    # Where a value is replaced the one before dies, which is nothing that the person did.
    if type(obj) is weakref.ref and obj.__callback__ is not None:
        raise RefusedError("a weak reference with a callback", obj)
    for referent in referents(obj):
        if not isinstance(referent, _NAMED) and not is_held(referent):
            raise RefusedError("a weak reference to something that no variable holds", obj)
    if finalizers.is_finalizer(type(obj)):
        return finalizers.reduce(obj)
    if type(obj) in PROXIES:
        return proxy, (_referent(obj),)
    if type(obj) in REFERENCES:
        return reference, (type(obj), obj())
    items = obj.items() if isinstance(obj, _MAPPINGS) else obj
    return empty, (type(obj),), (_attributes(obj), list(items)), None, None, fill


def _referent(obj: Any) -> Any:
    if type(obj) not in PROXIES:
        return obj()
    # A proxy hands every question on, and a method knows whose it is.
    return None if is_dead(obj) else obj.__reduce_ex__.__self__


_MAPPINGS = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary)


def _attributes(obj: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(obj).items() if name not in _OWN}


# ---- rebuilding


class _Gone:
    """What a dead reference referred to."""

    def method(self) -> None:
        """Be what a dead reference to a method referred to."""


def reference(kind: Any, referent: Any) -> Any:
    """Return a reference; a dead one where there is no ``referent``."""
    if referent is None:
        gone = _Gone()
        return kind(gone.method) if kind is weakref.WeakMethod else kind(gone)
    return kind(referent)


def proxy(referent: Any) -> Any:
    """Return a proxy; a dead one where there is no ``referent``."""
    return weakref.proxy(_Gone() if referent is None else referent)


def empty(kind: Any) -> Any:
    """Return a container without anything in it; none of a subclass's code runs."""
    made = kind.__new__(kind)
    base: Any = next(base for base in CONTAINERS if base in kind.__mro__)
    base.__init__(made)
    return made


def fill(obj: Any, state: tuple[dict[str, Any], list[Any]]) -> None:
    """Put attributes and items into an empty container."""
    attributes, items = state
    vars(obj).update(attributes)
    for item in items:
        if isinstance(obj, weakref.WeakSet):
            weakref.WeakSet.add(obj, item)
        elif isinstance(obj, weakref.WeakKeyDictionary):
            weakref.WeakKeyDictionary.__setitem__(obj, *item)
        else:
            weakref.WeakValueDictionary.__setitem__(obj, *item)
