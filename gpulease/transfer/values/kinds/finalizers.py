"""What ``weakref.finalize`` registered: it travels, and runs once.

A finalizer is one for both sides, known by a key.  It runs where the notebook's code lets go of
its object, or when the notebook ends; not because a copy of the object is given up, and not when
the companion ends, since the notebook has it as well.
"""

from __future__ import annotations

import atexit
import functools
import secrets
import weakref
from typing import Any

from gpulease.transfer.values import given_up
from gpulease.transfer_next.references import references

KIND = weakref.finalize
_call: Any = KIND.__call__
_registry: dict[Any, Any] = KIND._registry  # type: ignore[attr-defined]  # noqa: SLF001
#: Finalizers that both sides have.  They have no attributes, and nothing refers to them weakly.
_keys: dict[weakref.finalize[Any, Any], str] = {}
_by_key: dict[str, weakref.finalize[Any, Any]] = {}
_FEW = 100
#: At how many of them the ended ones are looked for next.
_most = [_FEW]


def is_finalizer(kind: type) -> bool:
    """Say whether objects of this type are finalizers; asks nothing of it."""
    return KIND in type.__getattribute__(kind, "__mro__")


def is_shared(finalizer: Any) -> bool:
    """Say whether the other side has it, too."""
    return finalizer in _keys


def parts(finalizer: Any) -> tuple[Any, ...]:
    """Return object, function, arguments and keywords; nothing of one that has run."""
    info = _registry.get(finalizer)
    if info is None or (obj := info.weakref()) is None:
        return ()
    return obj, info.func, info.args, info.kwargs


def watches(obj: Any) -> bool:
    """Say whether a finalizer waits for the end of ``obj``."""
    if not type(obj).__weakrefoffset__ or not weakref.getweakrefcount(obj):
        return False
    refs = (ref for ref in weakref.getweakrefs(obj) if type(ref) is weakref.ref)
    return any(is_finalizer(type(ref.__callback__)) for ref in refs)


def reduce(finalizer: Any) -> Any:
    """Reduce a finalizer whose object travels, or one that has run."""
    key = _keys.get(finalizer)
    if key is None:
        key = secrets.token_hex(8)
        _know(finalizer, key)
    found = parts(finalizer)
    if not found:
        return ended, (type(finalizer), key)
    return waiting, (type(finalizer), key, found, finalizer.atexit)


def _at_an_end(finalizer: Any, ref: Any = None) -> Any:
    """Stand for a finalizer's call while copies are given up."""
    if ref is None or not given_up.is_giving_up():
        return _call(finalizer, ref)
    if is_shared(finalizer):
        _registry.pop(finalizer, None)
    else:
        given_up.later(functools.partial(_call, finalizer, ref))
    return None


def _know(finalizer: Any, key: str) -> None:
    given_up.also(KIND, "__call__", _at_an_end)
    if len(_keys) >= _most[0]:
        _forget_ended()
    _keys[finalizer] = key
    _by_key[key] = finalizer


def _forget_ended() -> None:
    """Nothing tells of the end of one: all are looked at each time there are twice as many."""
    known = dict(enumerate(_keys))
    counts = references(known)  # two are those of our tables
    for each in [f for n, f in known.items() if not f.alive and counts[n] <= 2]:
        _by_key.pop(_keys.pop(each), None)
    _most[0] = max(_FEW, 2 * len(_keys))


def waiting(kind: Any, key: str, what: tuple[Any, Any, Any, Any], at_exit: bool) -> Any:
    """Return the finalizer with this key of an object, or make it; ``what`` is as ``parts``."""
    obj, function, args, keywords = what
    known: Any = _by_key.get(key)
    found = parts(known)
    if not found or found[0] is not obj:
        known = kind(obj, function, *args)
        _registry[known].kwargs = keywords  # itself: it may get its content later
        _know(known, key)
    known.atexit = at_exit
    return known


def ended(kind: Any, key: str) -> Any:
    """Return a finalizer that has run on the other side, and so does not run here."""
    known = _by_key.get(key)
    if known is not None:
        known.detach()
        return known
    made = kind.__new__(kind)
    _know(made, key)
    return made


def leave_to_the_other_side() -> None:
    """Run none that the other side has when this process ends."""
    KIND(leave_to_the_other_side, int).detach()  # its own turn at the end is later than ours
    atexit.register(_detach)


def _detach() -> None:
    for finalizer in _keys:
        finalizer.detach()
