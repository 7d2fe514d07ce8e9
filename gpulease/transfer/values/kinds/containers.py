"""Containers that are their content, attributes and slots, and nothing else.

Owns what is in a ``deque``, ``OrderedDict``, ``defaultdict`` or ``Counter``, or in an object of a
class that is made from these, ``list``, ``dict`` or ``set``; how an empty one is made, and how a
new content is put into the one that is there.  No method of such a class runs for that: only the
builtin's own.
"""

from __future__ import annotations

import collections
import contextlib
import copyreg
import enum
import operator
from collections.abc import Callable
from typing import Any

from gpulease.transfer import frameworks

_Deque: Any = collections.deque
_Ordered: Any = collections.OrderedDict
_Default: Any = collections.defaultdict
#: What a class may be made from, the more special ones first.
_BUILTIN: tuple[type, ...] = (_Ordered, _Default, dict, list, set, _Deque)
_NAMED = frozenset({_Ordered, _Default, _Deque, collections.Counter})
_HEAP_TYPE = 1 << 9
_POINTER = 8
_OWN_WAYS = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__",
             "__getnewargs_ex__")  # fmt: skip
#: Types of which equal keys of one type are as good as the same.
_PLAIN_KEYS = frozenset({str, int, bool, bytes, type(None)})


class _Empty:
    """What Python adds to an object of a class: its dictionary and its weak references."""


_ADDED = _Empty.__basicsize__ - object.__basicsize__


def solid_base(cls: type) -> type | None:
    """Return the interpreter's type that ``cls`` is made from; None: another.

    A class of a C extension has room for more than a dictionary and slots.
    """
    if issubclass(cls, type | BaseException | enum.Enum):
        return None
    for base in cls.__mro__:
        if base in _BUILTIN or base is object:
            room = _ADDED + _POINTER * len(slots_of(cls))
            return base if cls.__basicsize__ <= base.__basicsize__ + room else None
        if not base.__flags__ & _HEAP_TYPE:
            return None
    return None


def slots_of(cls: type) -> list[str]:
    """Return the names of a class's slots, as they are found on an object."""
    found = []
    for base in cls.__mro__:
        names = base.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name not in ("__dict__", "__weakref__"):
                mangled = name.startswith("__") and not name.endswith("__")
                found.append(f"_{base.__name__.lstrip('_')}{name}" if mangled else name)
    return found


def is_container(obj: Any) -> bool:
    """Say whether ``obj`` is one of these, and has no way of its own to be pickled."""
    cls = type(obj)
    if not issubclass(cls, list | dict | set | _Deque) or cls in (list, dict, set):
        return False
    if cls in _NAMED:
        return True
    if frameworks.of(cls) is not None or cls in copyreg.dispatch_table:
        return False
    if solid_base(cls) is None:
        return False
    heap = (b for b in cls.__mro__ if b.__flags__ & _HEAP_TYPE and b is not collections.Counter)
    return not any(name in base.__dict__ for base in heap for name in _OWN_WAYS)


def reduce(obj: Any) -> Any:
    """Reduce what its own way would give to a constructor, or leave in part behind."""
    if type(obj) in _NAMED and not isinstance(obj, collections.Counter):
        return NotImplemented
    return (
        (make, shell_of(obj), content_of(obj), None, None, fill)
        if is_container(obj)
        else (NotImplemented)
    )


def shell_of(obj: Any) -> tuple[type, type]:
    """Return what ``make`` needs for an empty one."""
    solid = solid_base(type(obj))
    assert solid is not None
    return solid, type(obj)


def make(solid: Any, cls: type) -> Any:
    """Return an empty container; none of its class's code runs."""
    return solid.__new__(cls)


def content_of(obj: Any) -> tuple[Any, Any, Any]:
    """Return what is in it: items, the one option of its builtin, attributes and slots."""
    state: Any = object.__getstate__(obj)
    state = dict(state) if type(state) is dict else state
    if isinstance(obj, _Ordered):
        return dict(_Ordered.items(obj)), None, state
    if isinstance(obj, _Default):
        return dict(dict.items(obj)), _factory.__get__(obj), state
    if isinstance(obj, dict):
        return dict(dict.items(obj)), None, state
    if isinstance(obj, _Deque):
        return list(_Deque.__iter__(obj)), _maxlen.__get__(obj), state
    kind: Any = list if isinstance(obj, list) else set
    return list(kind.__iter__(obj)), None, state


def fill(obj: Any, content: tuple[Any, Any, Any]) -> None:
    """Make ``obj`` what ``content`` says, whatever is in it."""
    items, option, state = content
    fill_items(obj, items, option)
    space, slots = state if isinstance(state, tuple) else (state, None)
    if type(obj).__dictoffset__:
        fill_dict(object.__getattribute__(obj, "__dict__"), space or {})
    for name in slots_of(type(obj)):
        if name in (slots or {}):
            object.__setattr__(obj, name, slots[name])
        else:
            with contextlib.suppress(AttributeError):  # it has none
                object.__delattr__(obj, name)


def fill_items(obj: Any, items: Any, option: Any) -> None:
    """Make its items ``items``, and the option of its builtin ``option``."""
    solid = solid_base(type(obj))
    assert solid is not None
    _FILL[solid](obj, items, option)


def fill_dict(old: Any, new: dict[Any, Any], kind: Any = dict) -> None:
    """Make ``old`` equal to ``new``, keys and order included, and never empty in between.

    ``kind`` has the methods: a subclass may have others of its own.
    """
    keys, wanted = list(kind.keys(old)), list(new)
    if _are_same(keys, wanted[: len(keys)]):
        _update(old, new, kind)
        return
    _update(old, new, kind)
    for key in keys:
        if key not in new:
            kind.__delitem__(old, key)
    if not _are_same(list(kind.keys(old)), wanted):
        for key, value in new.items():
            kind.__delitem__(old, key)  # an equal one may be there: 1 for True
            kind.__setitem__(old, key, value)


def _update(old: Any, new: dict[Any, Any], kind: Any) -> None:
    if kind is dict:
        dict.update(old, new)
        return
    for key, value in new.items():
        kind.__setitem__(old, key, value)


def _are_same(keys: list[Any], others: list[Any]) -> bool:
    """Say whether these are one and the same keys; when in doubt, no."""
    if len(keys) != len(others):
        return False
    if all(map(operator.is_, keys, others)):
        return True
    kinds = list(map(type, keys))
    return _PLAIN_KEYS.issuperset(kinds) and kinds == list(map(type, others)) and keys == others


def _fill_set(obj: Any, items: list[Any], _option: Any) -> None:
    set.intersection_update(obj, items)
    set.update(obj, items)


def _fill_default(obj: Any, items: dict[Any, Any], factory: Any) -> None:
    _factory.__set__(obj, factory)
    fill_dict(obj, items)


_factory: Any = vars(_Default)["default_factory"]
_maxlen: Any = vars(_Deque)["maxlen"]
_FILL: dict[type, Callable[[Any, Any, Any], None]] = {
    dict: lambda obj, items, _option: fill_dict(obj, items),
    _Ordered: lambda obj, items, _option: fill_dict(obj, items, _Ordered),
    _Default: _fill_default,
    list: lambda obj, items, _option: list.__setitem__(obj, slice(None), items),
    set: _fill_set,
    _Deque: _Deque.__init__,
}
