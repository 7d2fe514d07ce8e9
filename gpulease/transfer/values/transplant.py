"""What a new value holds, put into the older object that it is the newer content of.

Owns which values may keep being the object that they were: one that nothing but its names refers to
when it is loaded, and that consists of attributes (a data frame's too), slots and the content of a
builtin container.  Nobody met the older object while the new one was loaded, so none can have seen
it half filled.  It runs no code of the object's own.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpulease.transfer import frameworks
from gpulease.transfer.libraries import library
from gpulease.transfer.registry import Registry

from .groups import ATOMIC

_Deque: Any = collections.deque
_Ordered: Any = collections.OrderedDict
#: Containers that a class may be made from, the more special ones first.
_CONTAINERS: tuple[type, ...] = (_Ordered, collections.defaultdict, dict, list, set, _Deque)
_HEAP_TYPE = 1 << 9
_POINTER = 8
#: References of our own while counting: the value and the call that counts.
_OURS = 2


class _Empty:
    """What Python adds to an object of a class: its dictionary and its weak references."""


_ADDED = _Empty.__basicsize__ - object.__basicsize__


def lasting_ids(names: Mapping[str, Any], known: Registry) -> dict[str, str]:
    """Return the ids of the values that may keep being the objects that they are, by name."""
    return {name: known.oid(value) for name, value in names.items() if may_last(type(value))}


def keep_objects(
    names: dict[str, Any],
    ids: Mapping[str, str],
    known: Registry,
    may_bind: Callable[[str], bool],
) -> None:
    """Put new values into the objects that they are, where these live here; ``names`` get those."""
    for oid in dict.fromkeys(ids.values()):
        own = [name for name in names if ids.get(name) == oid]
        if not own:
            continue
        old, new = known.get(oid), names[own[0]]
        if old is new or old is None or not any(map(may_bind, own)):
            known.bind(oid, new)
            continue
        seen = sys.getrefcount(new) > len(own) + _OURS
        if seen or type(old) is not type(new) or not _is_alone(new) or not _is_alone(old, None):
            known.bind(oid, new)
            continue
        transplant(old, new)
        names.update(dict.fromkeys(own, old))


def may_last(cls: Any) -> bool:
    """Say whether objects of ``cls`` are nothing but what is known here, and can be found again."""
    if not cls.__weakrefoffset__ or hasattr(cls, "__del__") or frameworks.of(cls) is not None:
        return False
    solid = _solid(cls)
    return solid is not None and cls is not object and cls.__new__ is solid.__new__


def _is_alone(obj: Any, weak: int | None = 0) -> bool:
    """Say whether nothing finds ``obj`` by a weak reference, and its keys run no code."""
    if weak is not None and weakref.getweakrefcount(obj) > weak + _is_frame(type(obj)):
        return False
    keys: Iterator[Any] = iter(())
    if isinstance(obj, dict):
        keys = dict.__iter__(obj)
    elif isinstance(obj, set):
        keys = set.__iter__(obj)
    return all(type(key) in ATOMIC for key in keys)


def _solid(cls: type) -> type | None:
    """Return the interpreter's type that ``cls`` is made from; None: another.

    A class of a C extension has room for more than a dictionary and slots.
    """
    if issubclass(cls, type | BaseException | enum.Enum):
        return None
    for base in cls.__mro__:
        if base in _CONTAINERS or base is object:
            room = _ADDED + _POINTER * len(_slots(cls))
            return base if cls.__basicsize__ <= base.__basicsize__ + room else None
        if not base.__flags__ & _HEAP_TYPE:
            return None
    return None


def _slots(cls: type) -> list[str]:
    found = []
    for base in cls.__mro__:
        names = base.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name not in ("__dict__", "__weakref__"):
                mangled = name.startswith("__") and not name.endswith("__")
                found.append(f"_{base.__name__.lstrip('_')}{name}" if mangled else name)
    return found


def transplant(old: Any, new: Any) -> None:
    """Make ``old`` what ``new`` is; both are of one type that ``may_last``."""
    kind: Any = type(old)
    fill = _FILL.get(_solid(kind) or object)
    if fill is not None:
        fill(old, new)
    for name in _slots(kind):
        try:
            object.__setattr__(old, name, object.__getattribute__(new, name))
        except AttributeError:  # it has none
            with contextlib.suppress(AttributeError):
                object.__delattr__(old, name)
    if not kind.__dictoffset__:
        return
    space = object.__getattribute__(old, "__dict__")
    flags = space.get("_flags") if _is_frame(kind) else None
    _fill_dict(space, object.__getattribute__(new, "__dict__"))
    if flags is not None:  # they know whose they are
        theirs = vars(space["_flags"])
        vars(flags).update({**theirs, "_obj": vars(flags)["_obj"]})
        space["_flags"] = flags


def _is_frame(cls: type) -> bool:
    pandas = library("pandas")
    return pandas is not None and issubclass(cls, pandas.DataFrame | pandas.Series)


def _fill_dict(old: Any, new: Any, kind: Any = dict) -> None:
    """Make ``old`` equal to ``new``, order included, and never empty in between.

    ``kind`` has the methods: a subclass may have others of its own.
    """
    wanted = list(kind.keys(new))
    for key in [key for key in kind.keys(old) if not dict.__contains__(new, key)]:
        kind.__delitem__(old, key)
    in_order = list(kind.keys(old)) == wanted[: len(old)]
    for key in wanted:
        if not in_order and dict.__contains__(old, key):
            kind.pop(old, key)
        kind.__setitem__(old, key, dict.__getitem__(new, key))


def _fill_default(old: Any, new: Any) -> None:
    vars(collections.defaultdict)["default_factory"].__set__(old, new.default_factory)
    _fill_dict(old, new)


def _fill_deque(old: Any, new: Any) -> None:
    content = list(_Deque.__iter__(new))
    _Deque.clear(old)
    _Deque.extend(old, content)


def _fill_set(old: Any, new: Any) -> None:
    set.intersection_update(old, new)
    set.update(old, new)


_FILL: dict[type, Callable[[Any, Any], None]] = {
    dict: _fill_dict,
    _Ordered: functools.partial(_fill_dict, kind=_Ordered),
    collections.defaultdict: _fill_default,
    list: lambda old, new: list.__setitem__(old, slice(None), list(list.__iter__(new))),
    set: _fill_set,
    _Deque: _fill_deque,
}
