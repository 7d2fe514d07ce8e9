"""What a new object holds, put into an older one of the same type.

Owns the list of what such an object may consist of: attributes (a data frame's too), slots, the
content of a builtin container.  What holds more cannot be updated in place.  It runs no code of
the object's own.
"""

from __future__ import annotations

import collections
import copyreg
import functools
from typing import Any

_Deque: Any = collections.deque
_Default: Any = collections.defaultdict
#: Containers that a class may be made from, the more special ones first.
_CONTAINERS: tuple[type, ...] = (
    collections.OrderedDict, collections.defaultdict, dict, list, set, collections.deque, bytearray,
)  # fmt: skip
_HEAP_TYPE = 1 << 9
_POINTER = 8


_MAKER: Any = copyreg.__newobj__  # type: ignore[attr-defined]


class _Empty:
    """What Python adds to an object of a class: its dictionary and its weak references."""


_ADDED = _Empty.__basicsize__ - object.__basicsize__


class Whole:
    """Stands in a pickle for an object's own content, where the object itself goes by its id."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def can_transplant(obj: Any) -> bool:
    """Say whether nothing of ``obj`` would stay behind, and it is made anew where it is loaded.

    A library's own sentinel is not: it is found there by its name.
    """
    cls = type(obj)
    if not is_made_of_parts(cls):
        return False
    try:
        reduced = obj.__reduce_ex__(5)
    except Exception:  # noqa: BLE001 - a value's own code; packing will say what is wrong
        return False
    if isinstance(reduced, str):
        return False
    made = reduced[1][0] if reduced[0] is _MAKER else reduced[0]
    return made is cls


def is_made_of_parts(cls: Any) -> bool:
    """Say whether objects of ``cls`` are nothing but what is known here."""
    solid = _solid(cls)
    return solid is not None and cls is not object and cls.__new__ is solid.__new__


@functools.lru_cache(2048)
def _solid(cls: type) -> type | None:
    """Return the interpreter's type that ``cls`` is made from; None: another.

    A class of a C extension has room for more than a dictionary and slots.
    """
    if issubclass(cls, (type, BaseException)):
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


def empty(cls: Any, bound: int | None) -> Any:
    """Return a new ``cls`` with nothing in it; ``bound`` is a deque's."""
    made = cls.__new__(cls)
    if isinstance(made, _Deque):
        _Deque.__init__(made, (), bound)
    return made


def bound_of(obj: Any) -> int | None:
    """Return the largest length of a deque; None for all else."""
    return obj.maxlen if isinstance(obj, _Deque) else None


def transplant(old: Any, new: Any) -> None:
    """Make ``old`` what ``new`` is; both are of one type that ``can_transplant``."""
    kind: Any = type(old)
    solid = _solid(kind)
    if solid in _FILL:
        _FILL[solid](old, new)
    for name in _slots(type(old)):
        for obj, act in ((new, _set), (old, _drop)):
            try:
                value = object.__getattribute__(obj, name)
            except AttributeError:
                continue
            act(old, name, value)
            break
    space = getattr(old, "__dict__", None)
    if type(space) is dict:
        fill_dict(space, new.__dict__)


def _set(old: Any, name: str, value: Any) -> None:
    object.__setattr__(old, name, value)


def _drop(old: Any, name: str, _value: Any) -> None:
    object.__delattr__(old, name)


def fill_dict(old: Any, new: Any, kind: Any = dict) -> None:
    """Make ``old`` equal to ``new``, order included, and never empty in between.

    ``kind`` has the methods: a subclass may have others of its own.
    """
    wanted = list(kind.keys(new))
    if list(kind.keys(old)) != wanted[: len(old)]:
        for key in [key for key in kind.keys(old) if not dict.__contains__(new, key)]:
            kind.__delitem__(old, key)
        if list(kind.keys(old)) != wanted[: len(old)]:
            for key in wanted:
                if dict.__contains__(old, key):
                    kind.pop(old, key)
                kind.__setitem__(old, key, dict.__getitem__(new, key))
            return
    for key in wanted:
        kind.__setitem__(old, key, dict.__getitem__(new, key))


def _fill_default(old: Any, new: Any) -> None:
    _Default.default_factory.__set__(old, new.default_factory)
    fill_dict(old, new)


def _fill_deque(old: Any, new: Any) -> None:
    content = list(_Deque.__iter__(new))
    _Deque.clear(old)
    _Deque.extend(old, content)


def _fill_set(old: Any, new: Any) -> None:
    set.intersection_update(old, new)
    set.update(old, new)


_FILL: dict[type, Any] = {
    dict: fill_dict,
    collections.OrderedDict: functools.partial(fill_dict, kind=collections.OrderedDict),
    collections.defaultdict: _fill_default,
    list: lambda old, new: list.__setitem__(old, slice(None), list(list.__iter__(new))),
    set: _fill_set,
    bytearray: lambda old, new: bytearray.__setitem__(old, slice(None), bytes(new)),
    collections.deque: _fill_deque,
}
