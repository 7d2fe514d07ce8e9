"""Weak references and containers of them: they travel with what they refer to, and hold nothing."""

from __future__ import annotations

import weakref
from typing import Any

from .refuse import RefusedError, is_dead

PROXIES = frozenset(weakref.ProxyTypes)
REFERENCES = PROXIES | {weakref.ref, weakref.WeakMethod}
CONTAINERS: tuple[type, ...] = (
    weakref.WeakSet,
    weakref.WeakKeyDictionary,
    weakref.WeakValueDictionary,
)
_APART = (*CONTAINERS, weakref.finalize)
#: What these containers are made of; a subclass may have further attributes.
_OWN = frozenset((
    "data", "_remove", "_pending_removals", "_iterating", "_dirty_len", "_commit_removals",
))  # fmt: skip


def is_weak(kind: type) -> bool:
    """Say whether objects of this type are told apart here: a subclass of a reference is not."""
    # Not issubclass: these are abstract to it, and remember each class that they are asked about.
    return kind in REFERENCES or any(base in _APART for base in kind.__mro__)


def reduce(obj: Any) -> Any:
    """Reduce a weak object; raises RefusedError for what runs when something dies."""
    # Where a value is replaced the one before dies, which is nothing that the person did.
    if type(obj) is weakref.ref and obj.__callback__ is not None:
        raise RefusedError("a weak reference with a callback", obj)
    if weakref.finalize in type(obj).__mro__:
        raise RefusedError("a finalizer", obj)
    if type(obj) in PROXIES:
        return proxy, (referent_of(obj),)
    if type(obj) in REFERENCES:
        return reference, (type(obj), obj())
    items = obj.items() if isinstance(obj, _MAPPINGS) else obj
    return empty, (type(obj),), (attributes(obj), list(items)), None, None, fill


def referent_of(obj: Any) -> Any:
    """Return what a reference or proxy refers to, None where that is gone."""
    if type(obj) not in PROXIES:
        return obj()
    # A proxy hands every question on, and a method knows whose it is.
    return None if is_dead(obj) else obj.__reduce_ex__.__self__


_MAPPINGS = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary)


def attributes(obj: Any) -> dict[str, Any]:
    """Return what a container has beside its items."""
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
    own, items = state
    vars(obj).update(own)
    for item in items:
        if isinstance(obj, weakref.WeakSet):
            weakref.WeakSet.add(obj, item)
        elif isinstance(obj, weakref.WeakKeyDictionary):
            weakref.WeakKeyDictionary.__setitem__(obj, *item)
        else:
            weakref.WeakValueDictionary.__setitem__(obj, *item)
