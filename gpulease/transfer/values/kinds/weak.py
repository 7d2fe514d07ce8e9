"""Weak references and containers of them: they travel with what they refer to, and hold nothing.

What is referred to must be held by something that travels as well.  Otherwise it would be gone on
the other side the moment it arrived, and so it is refused.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

from gpulease.transfer_next.refuse import RefusedError
from gpulease.transfer_next.weak import REFERENCES, attributes, is_weak, referent_of
from gpulease.transfer_next.weak import reduce as _reduce

from . import finalizers

__all__ = ["is_weak"]  # passed on

#: Referred to by name, or held by a name on both sides.
_NAMED = (type, types.FunctionType, types.ModuleType)


def strong(obj: Any) -> list[Any]:
    """Return what a weak object holds for itself."""
    if type(obj) in REFERENCES:
        return []
    if finalizers.is_finalizer(type(obj)):
        return [type(obj), *finalizers.parts(obj)[1:]]
    held: list[Any] = [type(obj), *attributes(obj).values()]
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
        referent = referent_of(obj)
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
    return _reduce(obj)
